"""What the frequency and the presence penalty share: an amount taken off the logit of what was seen."""

from abc import abstractmethod
from dataclasses import dataclass
from typing import ClassVar

from specfw.registry import require
from specfw.sampling.base import LIMIT, Logits, Scene
from specfw.sampling.history import Penalty

import mlx.core as mx


@dataclass(frozen=True, kw_only=True)
class AdditivePenalty(Penalty):
    """x - penalty * weight(how often the id was seen).

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

    @abstractmethod
    def weight(self, counts: mx.array) -> mx.array:
        """[B, T, S] what `counts` [B, T, S] weigh."""

    def apply(self, logits: Logits, scene: Scene) -> Logits:
        counts = self.past(logits, scene).counts(logits)
        return logits._replace(values=logits.values - self.penalty * self.weight(counts))
