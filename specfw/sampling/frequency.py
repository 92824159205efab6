"""Frequency penalty: the OpenAI option of that name."""

from dataclasses import dataclass
from typing import ClassVar, final

from specfw.registry import register, require
from specfw.sampling.base import LIMIT, Logits, Scene
from specfw.sampling.history import Penalty


@final
@register("filter")
@dataclass(frozen=True, kw_only=True)
class Frequency(Penalty):
    """x - penalty * (how often the id was seen).

    Attributes:
        penalty: in [-1e30, 1e30]; 0 is off, negative values make repetition likelier.
    """

    strength: ClassVar[str] = "penalty"

    penalty: float = 0.0

    def __post_init__(self) -> None:
        super().__post_init__()
        require("penalty", -LIMIT <= self.penalty <= LIMIT, "in [-1e30, 1e30]", self.penalty)

    @property
    def neutral(self) -> bool:
        return self.penalty == 0

    def apply(self, logits: Logits, scene: Scene) -> Logits:
        counts = self.past(logits, scene).counts(logits)
        return logits._replace(values=logits.values - self.penalty * counts)
