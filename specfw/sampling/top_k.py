"""Top-k: Fan, Lewis, Dauphin 1805.04833."""

from dataclasses import dataclass
from typing import ClassVar, Literal, final

from specfw.registry import register, require
from specfw.sampling.base import Logits, Scene, Step
from specfw.sampling.selection import at_least_top, largest, top

SPARSE = 8
"""Survivors carry their ids where k <= V / 8; above that, rows stay dense."""


@final
@register("filter")
@dataclass(frozen=True, kw_only=True)
class TopK(Step):
    """Keep the k largest logits.

    Attributes:
        k: how many stay; 0 is off, and k >= V changes nothing for that model.
        ties: `drop` keeps exactly k, the lowest ids first among equals; `keep` also keeps every id that equals
            the k-th (as HF does), and then k = 1 is not greedy: equal maxima are drawn from.
    """

    strength: ClassVar[str] = "k"

    k: int = 0
    ties: Literal["drop", "keep"] = "drop"

    def __post_init__(self) -> None:
        require("k", self.k >= 0, "in [0, inf)", self.k)

    @property
    def neutral(self) -> bool:
        return self.k == 0

    def greedy(self, after_random: bool) -> bool:
        return self.k == 1 and self.ties == "drop" and not after_random

    def apply(self, logits: Logits, scene: Scene) -> Logits:
        if self.k >= logits.values.shape[-1]:
            return logits
        if self.ties == "keep":
            return logits.keep(at_least_top(logits.values, self.k))
        if self.k * SPARSE <= logits.vocab_size:
            return logits.select(largest(logits.values, self.k))
        return logits.keep(top(logits.values, self.k))
