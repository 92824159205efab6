"""A toy that walks a fixed table of successors: at temperature 0 its text is known in advance."""

from dataclasses import dataclass
from typing import final

from specfw.models._toy import ToyModel, by_token, check_id, check_peak, peaked_rows
from specfw.models.base import ModelSpec
from specfw.registry import register, require


@final
@register("model")
@dataclass(frozen=True, kw_only=True)
class Cycle(ModelSpec):
    """After id t comes successors[t].

    Attributes:
        successors: [V] ids in [0, V); (1, 2, 3, 4, 5, 0) is the six-cycle.
        peak: probability of the successor, in [0, 1]; the rest is shared alike by the other ids.
        eos_id: end-of-sequence id, in [0, V).
    """

    successors: tuple[int, ...]
    peak: float = 1.0
    eos_id: int | None = None

    def __post_init__(self) -> None:
        size = len(self.successors)
        require("successors", size > 0, "at least one id", self.successors)
        for successor in self.successors:
            check_id("successors", successor, size)
        check_peak(self.peak, size)
        check_id("eos_id", self.eos_id, size)

    def load(self, role: str) -> ToyModel:
        rows = peaked_rows(self.successors, len(self.successors), self.peak)
        return ToyModel(f"{role} (cycle)", rows, by_token, eos_id=self.eos_id)
