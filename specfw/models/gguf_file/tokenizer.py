"""The tokenizer and the chat template that a GGUF file holds."""

from collections.abc import Mapping
from typing import Any, Protocol

from specfw.models.gguf_file import byte_level, sentence_piece
from specfw.models.gguf_file.words import Words, words

import tokenizers
from mlx_lm.tokenizer_utils import TokenizerWrapper
from transformers import PreTrainedTokenizerFast


class _Kind(Protocol):
    def check(self, metadata: Mapping[str, Any]) -> None: ...
    def begins(self, metadata: Mapping[str, Any]) -> bool: ...
    def build(self, words: Words) -> tokenizers.Tokenizer: ...


KINDS: Mapping[str, _Kind] = {"gpt2": byte_level, "llama": sentence_piece}
"""By tokenizer.ggml.model."""

_ENDS = ("eos", "eot", "eom")
_ENDS_OF_TURN = ("<|im_end|>", "<|eot_id|>", "<|eom_id|>", "<|end|>", "<end_of_turn>")
_TEMPLATE = "tokenizer.chat_template"


def check(metadata: Mapping[str, Any]) -> None:
    """Refuse a tokenizer that cannot be built.

    Raises:
        ValueError: its kind or its splits are not known; the sentence lists the known.
    """
    _kind(metadata).check(metadata)


def tokenizer(metadata: Mapping[str, Any]) -> Any:
    """The tokenizer, as mlx-lm wraps one of transformers, with its end-of-sequence ids.

    A sequence ends at the end-of-sequence, end-of-turn and end-of-message ids that the file names, and at tokens
    that its chat template ends a turn with.

    Raises:
        ValueError: the vocabulary is broken.
    """
    kind, known = _kind(metadata), words(metadata)
    built = kind.build(known)
    built.add_tokens(known.added())
    built.post_processor = _framing(known, begins=kind.begins(metadata))
    template = metadata.get(_TEMPLATE)
    roles = {f"{role}_token": token for role, token in known.roles.items()}
    wrapped = PreTrainedTokenizerFast(tokenizer_object=built, chat_template=template, **roles)  # type: ignore[no-untyped-call]
    ends = {place for role in _ENDS if (place := known.role_id(role)) is not None}
    turns = {known.ids[token] for token in _ENDS_OF_TURN if token in known.ids and token in (template or "")}
    return TokenizerWrapper(wrapped, eos_token_ids=ends | turns)


def _framing(known: Words, begins: bool) -> Any:
    """What stands before and after a text."""
    frame = {role: known.value(f"add_{role}_token", default) for role, default in (("bos", begins), ("eos", False))}
    ids = {role: known.role_id(role) for role, wanted in frame.items() if wanted}
    for role, place in ids.items():
        if place is None:
            raise ValueError(f"tokenizer.ggml.{role}_token_id is missing, and add_{role}_token is true")
    template = " ".join([*(["bos"] if "bos" in ids else []), "$A", *(["eos"] if "eos" in ids else [])])
    return tokenizers.processors.TemplateProcessing(single=template, pair=None, special_tokens=list(ids.items()))


def _kind(metadata: Mapping[str, Any]) -> _Kind:
    name = str(metadata.get("tokenizer.ggml.model", "missing"))
    if name not in KINDS:
        raise ValueError(f"tokenizer.ggml.model must be one of {', '.join(KINDS)}, got {name!r}")
    return KINDS[name]
