"""SentencePiece's byte-pair encoding (tokenizer.ggml.model = llama): pieces with scores, bytes for the rest."""

from collections.abc import Iterator, Mapping
from typing import Any

from specfw.models.gguf_file.words import Words

import numpy as np
from tokenizers import Tokenizer, decoders, models, normalizers

_SPACE = "\N{LOWER ONE EIGHTH BLOCK}"


def check(metadata: Mapping[str, Any]) -> None:
    """Refuse a vocabulary without scores.

    Raises:
        ValueError: there are none, or not one a token.
    """
    scores, tokens = metadata.get("tokenizer.ggml.scores", ()), metadata.get("tokenizer.ggml.tokens", ())
    if len(scores) != len(tokens):
        raise ValueError(f"tokenizer.ggml.scores must be one number a token, {len(tokens)}, got {len(scores)}")


def begins(metadata: Mapping[str, Any]) -> bool:
    """Whether a text begins with the beginning-of-sequence token where the file does not say."""
    return True


def build(words: Words) -> Tokenizer:
    """The tokenizer, without what it adds to a text."""
    unknown = words.roles.get("unk")
    model = models.BPE(
        vocab=dict(words.ids), merges=list(_merges(words)), unk_token=unknown, fuse_unk=True, byte_fallback=True
    )
    tokenizer = Tokenizer(model)
    spaces: list[Any] = [normalizers.Replace(" ", _SPACE)]
    texts: list[Any] = [decoders.Replace(_SPACE, " "), decoders.ByteFallback(), decoders.Fuse()]
    if words.value("add_space_prefix", True):
        spaces = [normalizers.Prepend(_SPACE), *spaces]
        texts = [*texts, decoders.Strip(" ", 1, 0)]
    tokenizer.normalizer = normalizers.Sequence(spaces)
    tokenizer.decoder = decoders.Sequence(texts)
    return tokenizer


def _merges(words: Words) -> Iterator[tuple[str, str]]:
    """Every pair of pieces that makes a piece, best first: SentencePiece joins the pair that makes the best piece.

    Pieces of equal score come by id, pairs of one piece by the length of their left part.
    """
    ranks = np.argsort(-words.value("scores", ()), kind="stable").argsort().tolist()
    pieces = words.ids
    for piece in sorted(pieces, key=lambda piece: ranks[pieces[piece]]):
        pairs = ((piece[:cut], piece[cut:]) for cut in range(1, len(piece)))
        yield from (pair for pair in pairs if pair[0] in pieces and pair[1] in pieces)
