"""What a position may look back at: the last tokens before it, drafted ones included.

With D drafted tokens and T positions asked for, position t stands after the committed tokens and the first
D - T + 1 + t drafted ones. The mask of what it sees is made on the host from lengths alone; the tokens
themselves may be not computed yet.
"""

from dataclasses import dataclass
from typing import ClassVar, NamedTuple

from specfw.registry import require
from specfw.sampling.base import Logits, Scene, Step
from specfw.types import History

import mlx.core as mx
import numpy as np


class Past(NamedTuple):
    """Tokens before T positions.

    Attributes:
        tokens: [B, N] int32, N >= T: the tail of the committed tokens, padded in front, then the drafted ones;
            position t stands right after column N - T + t.
        seen: [B, T, N] bool, what lies inside each position's window.
    """

    tokens: mx.array
    seen: mx.array

    def counts(self, logits: Logits) -> mx.array:
        """[B, T, S] how often each id of `logits` was seen."""
        target, where = self._slots(logits)
        return logits.gather(target.at[where].add(self._held(logits)))

    def longest(self, lengths: mx.array, logits: Logits) -> mx.array:
        """[B, T, S] the largest of `lengths` [B, T, N] over the seen columns that hold an id, 0 if none does."""
        target, where = self._slots(logits)
        return logits.gather(target.at[where].maximum(lengths * self._held(logits)))

    def _held(self, logits: Logits) -> mx.array:
        # a model with fewer ids than the one that wrote the history cannot draw the ids beyond
        return (self.seen & (self.tokens < logits.vocab_size)[:, None]).astype(logits.values.dtype)

    def _slots(self, logits: Logits) -> tuple[mx.array, tuple[mx.array, mx.array, mx.array]]:
        batch, positions, _ = self.seen.shape
        zeros = mx.zeros((batch, positions, logits.vocab_size), dtype=logits.values.dtype)
        ids = mx.minimum(self.tokens, logits.vocab_size - 1)[:, None]
        return zeros, (mx.arange(batch)[:, None, None], mx.arange(positions)[:, None], ids)


@dataclass(frozen=True, kw_only=True)
class Penalty(Step):
    """A step that looks back.

    Attributes:
        window: how many tokens before a position count; 0 is all.
        include_prompt: whether the prompt's tokens count.
    """

    reorders: ClassVar[bool] = True
    remembers: ClassVar[bool] = True

    window: int = 0
    include_prompt: bool = True

    def __post_init__(self) -> None:
        require("window", self.window >= 0, "in [0, inf)", self.window)
        require("include_prompt", isinstance(self.include_prompt, bool), "true or false", self.include_prompt)

    def past(self, logits: Logits, scene: Scene) -> Past:
        """What the positions of `logits` see under this window."""
        assert scene.history is not None, "a chain that needs_history was not given one"
        return look_back(scene.history, logits.values.shape[1], self.window, self.include_prompt)


def look_back(history: History, positions: int, window: int, include_prompt: bool) -> Past:
    """The tokens that `positions` T positions see.

    Args:
        history: committed and drafted tokens.
        positions: T; the last one stands after all drafted tokens.
        window: how many tokens before a position count; 0 is all.
        include_prompt: whether the prompt's tokens count.
    """
    batch, drafted = history.drafted.shape
    lengths = np.array([len(row) for row in history.committed])[:, None]
    longest = int(lengths.max())
    # a window of everything there is, whether 0 or larger than that
    window = min(window or longest + drafted, longest + drafted)
    width = max(1, min(window, longest))
    tail = np.zeros((batch, width), dtype=np.int32)
    for row, tokens in enumerate(history.committed):
        kept = tokens[max(0, len(tokens) - width) :]
        tail[row, width - len(kept) :] = kept
    end = lengths + drafted - positions + 1 + np.arange(positions)
    start = np.maximum(end - window, 0)
    if not include_prompt:
        start = np.maximum(start, np.reshape(history.prompt_lengths, (batch, 1)))
    place = lengths - width + np.arange(width + drafted)
    seen = (start[..., None] <= place[:, None]) & (place[:, None] < end[..., None])
    return Past(mx.concatenate([mx.array(tail), history.drafted.astype(mx.int32)], axis=1), mx.array(seen))
