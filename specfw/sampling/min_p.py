"""Min-p: Nguyen et al. 2407.01082."""

import math
from dataclasses import dataclass
from typing import ClassVar, final

from specfw.registry import register, require
from specfw.sampling.base import Logits, Scene, Step
from specfw.sampling.selection import top

import mlx.core as mx


@final
@register("filter")
@dataclass(frozen=True, kw_only=True)
class MinP(Step):
    """Keep the ids at least p times as probable as the most probable one: x - max x >= log p.

    Attributes:
        p: in [0, 1]; 0 is off, 1 keeps the maxima alone.
        min_tokens_to_keep: this many of the most probable ids stay whatever p says.
    """

    strength: ClassVar[str] = "p"

    p: float = 0.0
    min_tokens_to_keep: int = 1

    def __post_init__(self) -> None:
        require("p", 0 <= self.p <= 1, "in [0, 1]", self.p)
        require("min_tokens_to_keep", self.min_tokens_to_keep >= 1, "in [1, inf)", self.min_tokens_to_keep)

    @property
    def neutral(self) -> bool:
        return self.p == 0

    def apply(self, logits: Logits, scene: Scene) -> Logits:
        values = logits.values
        kept = values - mx.max(values, axis=-1, keepdims=True) >= math.log(self.p)
        if self.min_tokens_to_keep > 1:
            kept = kept | top(values, self.min_tokens_to_keep)
        return logits.keep(kept)
