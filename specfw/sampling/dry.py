"""DRY ("don't repeat yourself"): against copying a stretch of the text (p-e-w, text-generation-webui 5677).

Let x_1 .. x_m be what a position sees. An earlier place i < m matches over length L(i), the largest L with
x_(i-L+1) .. x_i = x_(m-L+1) .. x_m and no breaker among them (overlapping is allowed). The token x_(i+1) would
extend that repeat. For an id that no breaker is, with l = max L(i) over the places it follows,

    x(id) - multiplier * base^(l - allowed_length)    if l >= allowed_length.

Matches longer than 50 tokens count as 50. Work and memory grow as positions * seen tokens * 50: a long text
wants a window.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, final

from specfw.registry import register, require
from specfw.sampling.base import LIMIT, Logits, Scene, require_ids
from specfw.sampling.history import Past, Penalty
from specfw.types import Ints

import mlx.core as mx
import numpy as np

MATCH_LIMIT = 50


@final
@register("filter")
@dataclass(frozen=True, kw_only=True)
class Dry(Penalty):
    """x - multiplier * base^(l - allowed_length) for an id that would extend a repeat of l >= allowed_length tokens.

    Attributes:
        multiplier: in [0, 1e30]; 0 is off.
        base: in [1, 1e30]; a penalty beyond float32 bans the id.
        allowed_length: the shortest match that is penalised, in [1, 50].
        breakers: token ids that end a match and are never penalised (newline, quotes, role names).
    """

    strength: ClassVar[str] = "multiplier"

    multiplier: float = 0.0
    base: float = 1.75
    allowed_length: int = 2
    breakers: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        super().__post_init__()
        require("multiplier", 0 <= self.multiplier <= LIMIT, "in [0, 1e30]", self.multiplier)
        require("base", 1 <= self.base <= LIMIT, "in [1, 1e30]", self.base)
        allowed = self.allowed_length
        require("allowed_length", 1 <= allowed <= MATCH_LIMIT, f"in [1, {MATCH_LIMIT}]", allowed)
        require_ids("breakers", self.breakers)

    @property
    def neutral(self) -> bool:
        return self.multiplier == 0

    def named_ids(self) -> Mapping[str, tuple[int, ...]]:
        return {"breakers": self.breakers}

    def apply(self, logits: Logits, scene: Scene) -> Logits:
        past = self.past(logits, scene)
        length = past.longest(repeats(past, self.breakers), logits)
        penalty = self.multiplier * mx.power(self.base, length - self.allowed_length)
        return logits._replace(values=logits.values - mx.where(length >= self.allowed_length, penalty, 0))


def repeats(past: Past, breakers: tuple[int, ...]) -> mx.array:
    """[B, T, N] the length of the repeat that the token in each column, written at each position, extends.

    Args:
        past: what the positions see.
        breakers: token ids that end a match; they extend nothing.
    """
    tokens, (_, positions, width) = past.tokens, past.seen.shape
    breaking = (tokens[..., None] == mx.array(breakers or (-1,), dtype=mx.int32)).any(axis=-1)
    before = _backwards(mx.where(breaking, -1, tokens), np.arange(-1, width - 1))
    suffix = _backwards(mx.where(breaking, -2, tokens), np.arange(width - positions, width))
    same = before[:, None] == suffix[:, :, None]
    run = mx.argmin(mx.pad(same, [(0, 0)] * 3 + [(0, 1)]), axis=-1)
    seen = past.seen.astype(mx.int32)
    inside = mx.cumsum(seen, axis=-1) - seen
    return mx.where(breaking[:, None], 0, mx.minimum(run, inside))


def _backwards(tokens: mx.array, columns: Ints) -> mx.array:
    """[B, C, 50] the tokens at each of `columns` [C] and before it, nearest first; -1 before the beginning."""
    padded = mx.pad(tokens, [(0, 0), (MATCH_LIMIT, 0)], constant_values=-1)
    return padded[:, mx.array(columns[:, None] + MATCH_LIMIT - np.arange(MATCH_LIMIT))]
