"""Temperature: logits divided by T."""

import math
from dataclasses import dataclass
from typing import ClassVar, final

from specfw.registry import register, require
from specfw.sampling.base import LIMIT, Logits, Scene, Step

import mlx.core as mx


@final
@register("filter")
@dataclass(frozen=True, kw_only=True)
class Temperature(Step):
    """(x - max x) / T. The maximum goes first, so that no T > 0 can overflow.

    Attributes:
        value: T >= 0; 0 makes the chain greedy, below 1e-30 it acts as 1e-30, above 1e30 as 1e30.
    """

    strength: ClassVar[str] = "value"
    removes: ClassVar[bool] = False

    value: float = 1.0

    def __post_init__(self) -> None:
        require("value", 0 <= self.value < math.inf, "in [0, inf)", self.value)

    @property
    def neutral(self) -> bool:
        return self.value == 1

    def greedy(self, after_random: bool) -> bool:
        return self.value == 0

    def apply(self, logits: Logits, scene: Scene) -> Logits:
        if self.value == 0:
            return logits
        shifted = logits.values - mx.max(logits.values, axis=-1, keepdims=True)
        return logits._replace(values=shifted / min(max(self.value, 1 / LIMIT), LIMIT))
