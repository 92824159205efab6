"""Repetition penalty: Keskar et al. 1909.05858 (CTRL), in its sign-aware form."""

from dataclasses import dataclass
from typing import ClassVar, final

from specfw.registry import register, require
from specfw.sampling.base import LIMIT, Logits, Scene
from specfw.sampling.history import Penalty

import mlx.core as mx


@final
@register("filter")
@dataclass(frozen=True, kw_only=True)
class Repetition(Penalty):
    """Logits of seen ids: x / penalty if x >= 0, x * penalty if x < 0.

    It depends on where 0 is, so after a temperature, which moves the maximum to 0, it means something else.

    Attributes:
        penalty: in [1e-30, 1e30]; 1 is off, above 1 repetition gets less likely.
    """

    strength: ClassVar[str] = "penalty"

    penalty: float = 1.0

    def __post_init__(self) -> None:
        super().__post_init__()
        require("penalty", 1 / LIMIT <= self.penalty <= LIMIT, "in [1e-30, 1e30]", self.penalty)

    @property
    def neutral(self) -> bool:
        return self.penalty == 1

    def apply(self, logits: Logits, scene: Scene) -> Logits:
        values, counts = logits.values, self.past(logits, scene).counts(logits)
        penalised = mx.where(values < 0, values * self.penalty, values / self.penalty)
        return logits._replace(values=mx.where(counts > 0, penalised, values))
