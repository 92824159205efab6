"""Byte-level byte-pair encoding (tokenizer.ggml.model = gpt2), with the splits that tokenizer.ggml.pre names."""

from collections.abc import Mapping
from typing import Any, NamedTuple

from specfw.models.gguf_file.words import Words

from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers


class Splits(NamedTuple):
    """How a text is cut before pairs are merged.

    Attributes:
        cuts: the text's pieces, one after the other.
        nfc: whether characters are composed first, as the model was trained.
        whole_first: whether a piece that is a token is taken as it is.
        begins: whether a text begins with the beginning-of-sequence token where the file does not say.
    """

    cuts: tuple[Any, ...]
    nfc: bool = False
    whole_first: bool = False
    begins: bool = False


def _words_and(digits: str) -> tuple[Any, ...]:
    """The pattern of GPT-4 and its kin; digits in groups of `digits`."""
    pattern = (
        r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|"
        rf"\p{{N}}{digits}| ?[^\s\p{{L}}\p{{N}}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
    )
    cut = pre_tokenizers.Split(Regex(pattern), "isolated")
    return cut, pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)


_GPT2 = pre_tokenizers.ByteLevel(add_prefix_space=False)

SPLITS: Mapping[str, Splits] = {
    "gpt-2": Splits((_GPT2,)),
    "smollm": Splits((pre_tokenizers.Digits(individual_digits=True), _GPT2)),
    "qwen2": Splits(_words_and(""), nfc=True),
    "llama-bpe": Splits(_words_and("{1,3}"), whole_first=True, begins=True),
}
"""By the names that llama.cpp's converter gives them."""


def check(metadata: Mapping[str, Any]) -> None:
    """Refuse splits that are not known.

    Raises:
        ValueError: the sentence lists the known.
    """
    if (name := metadata.get("tokenizer.ggml.pre")) not in SPLITS:
        raise ValueError(f"tokenizer.ggml.pre must be one of {', '.join(SPLITS)}, got {name!r}")


def begins(metadata: Mapping[str, Any]) -> bool:
    """Whether a text begins with the beginning-of-sequence token where the file does not say."""
    return SPLITS[metadata["tokenizer.ggml.pre"]].begins


def build(words: Words) -> Tokenizer:
    """The tokenizer, without what it adds to a text."""
    splits = SPLITS[words.value("pre", None)]
    merges = [_pair(text) for text in words.value("merges", [])]
    model = models.BPE(vocab=dict(words.ids), merges=merges, ignore_merges=splits.whole_first)
    tokenizer = Tokenizer(model)
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(list(splits.cuts))
    if splits.nfc:
        tokenizer.normalizer = normalizers.NFC()
    tokenizer.decoder = decoders.ByteLevel()
    return tokenizer


def _pair(text: str) -> tuple[str, str]:
    left, _, right = text.partition(" ")
    if not right or " " in right:
        raise ValueError(f"tokenizer.ggml.merges must be pairs of tokens, got {text!r}")
    return left, right
