"""One vocabulary for two models: an id means the same token to both, or it is never drawn.

Models are padded to round numbers of ids, drafters may have fewer ids or more. The target's ids that stand for
no token get probability 0 in its rows; the drafter's rows are brought to the target's size, with probability 0 on
every id that is no token of both. So all that follows sees two models of one size, and needs to know no more.
"""

import hashlib
import json
from collections.abc import Collection, Mapping
from typing import Any, final

from specfw.models.base import Cache, Footprint, LanguageModel
from specfw.models.tokenizer import Tokenizer

import mlx.core as mx
import numpy as np

_SHOWN = 3


@final
class Fitted(LanguageModel):
    """A model that draws only some of its ids, from rows of another size.

    Args:
        model: what is fitted.
        vocab_size: V of its rows; ids it does not have get probability 0, ids beyond V are cut off.
        drawable: the ids that it may draw.
        notes: sentences for the log, after the model's own.
    """

    def __init__(
        self, model: LanguageModel, vocab_size: int, drawable: Collection[int], notes: tuple[str, ...]
    ) -> None:
        self.vocab_size = vocab_size
        self.eos_ids, self.batched = model.eos_ids, model.batched
        self.name, self.tokenizer = model.name, model.tokenizer
        self.notes = (*model.notes, *notes)
        self._model = model
        allowed = np.zeros(vocab_size, dtype=np.bool_)
        allowed[list(drawable)] = True
        self._allowed = None if allowed.all() else mx.array(allowed)
        end = model.tokenizer.eos_id
        self._unknown = end if end is not None and end < model.vocab_size else 0

    def new_cache(self, batch_size: int) -> Cache:
        return self._model.new_cache(batch_size)

    def forward(self, tokens: mx.array, cache: Cache) -> mx.array:
        known = self._model.vocab_size
        if known < self.vocab_size:
            tokens = mx.where(tokens < known, tokens, self._unknown)
        logits = self._model.forward(tokens, cache)[..., : self.vocab_size]
        if known < self.vocab_size:
            widths = [(0, 0)] * (logits.ndim - 1) + [(0, self.vocab_size - known)]
            logits = mx.pad(logits, widths, constant_values=-np.inf)
        return logits if self._allowed is None else mx.where(self._allowed, logits, -np.inf)

    @property
    def module(self) -> Any:
        return self._model.module if self._model.vocab_size == self.vocab_size else None

    def fingerprint(self) -> dict[str, Any]:
        drawn = self.vocab_size if self._allowed is None else int(self._allowed.sum())
        return {**self._model.fingerprint(), "drawable_ids": drawn}

    def footprint(self, tokens: int, chunk: int) -> Footprint:
        return self._model.footprint(tokens, chunk)

    def read(self) -> None:
        self._model.read()

    @property
    def held_bytes(self) -> int:
        return self._model.held_bytes


def without_padding(model: LanguageModel) -> LanguageModel:
    """`model`, drawing only ids that stand for a token."""
    tokens = model.tokenizer.vocabulary()
    if tokens is None:
        return model
    size = model.vocab_size
    drawable = {token for token in tokens if token < size}
    if len(drawable) == size:
        return model
    note = f"{model.name}: {size - len(drawable)} of {size} ids stand for no token and are never drawn"
    return Fitted(model, size, drawable, (note,))


def fitted(drafter: LanguageModel, target: LanguageModel) -> LanguageModel:
    """`drafter` with rows of the target's size, drawing only ids that are the same token to both.

    Where a model has no words (a toy) there is nothing to compare, and sizes must be equal.

    Raises:
        ValueError: the sizes differ, or an id is another token to each; the sentence names the first of them.
    """
    ours, theirs = target.tokenizer.vocabulary(), drafter.tokenizer.vocabulary()
    if ours is None or theirs is None:
        _require_equal_sizes(target, drafter)
        return drafter
    _require_equal_tokens(ours, theirs, target, drafter)
    size = target.vocab_size
    drawable = {token for token in ours.keys() & theirs.keys() if token < min(size, drafter.vocab_size)}
    wanted = {token for token in ours if token < size}
    notes = _differences(target, drafter, len(drawable), len(wanted))
    if len(drawable) == size == drafter.vocab_size and not notes:
        return drafter
    return Fitted(drafter, size, drawable, notes)


def summary(tokenizer: Tokenizer, eos_ids: frozenset[int]) -> dict[str, Any]:
    """What a record keeps of a tokenizer: how many ids stand for a token, a digest of them, which ones are special."""
    tokens = tokenizer.vocabulary() or {}
    digest = hashlib.sha256(json.dumps(sorted(tokens.items())).encode()).hexdigest()
    special, ends = sorted(tokenizer.special_ids()), sorted(eos_ids)
    return {"tokens": len(tokens), "sha256": digest, "special_ids": special, "eos_ids": ends}


def _require_equal_sizes(target: LanguageModel, drafter: LanguageModel) -> None:
    if target.vocab_size != drafter.vocab_size:
        raise ValueError(
            f"drafter must have the target's number of token ids, {target.vocab_size} ({target.name}), "
            f"got {drafter.vocab_size} ({drafter.name})"
        )


def _require_equal_tokens(
    ours: Mapping[int, str], theirs: Mapping[int, str], target: LanguageModel, drafter: LanguageModel
) -> None:
    common = ours.keys() & theirs.keys()
    differing = sorted(token for token in common if ours[token] != theirs[token])
    if not differing and common:
        return
    shown = [f"id {token} is {ours[token]!r} and {theirs[token]!r}" for token in differing[:_SHOWN]]
    raise ValueError(
        f"drafter must have the target's tokens, but of {len(common)} ids that both have {len(differing)} differ: "
        f"{', '.join(shown) or 'none is common'} in {target.name} and {drafter.name} "
        "(drafting=intersection drafts what both have)"
    )


def _differences(target: LanguageModel, drafter: LanguageModel, drawable: int, wanted: int) -> tuple[str, ...]:
    """What does not keep two models apart, and should be known."""
    ours, theirs = target.tokenizer.special_ids(), drafter.tokenizer.special_ids()
    notes = []
    if drawable < wanted:
        notes.append(f"{drafter.name}: drafts {drawable} of the target's {wanted} tokens")
    if special := sorted(ours ^ theirs):
        notes.append(f"{drafter.name}: ids {special} are special tokens to one of the two models alone")
    if target.eos_ids != drafter.eos_ids:
        notes.append(
            f"{drafter.name}: its end-of-sequence ids {sorted(drafter.eos_ids)} are not the target's "
            f"{sorted(target.eos_ids)}, and the target's end a sequence"
        )
    return tuple(notes)
