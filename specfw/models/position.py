"""A toy whose law depends on the position alone: rows taken one place too early or late show at once."""

from dataclasses import dataclass
from typing import final

from specfw.models._toy import Probability, ToyModel, by_position, check_id, checked_rows
from specfw.models.base import ModelSpec
from specfw.registry import register


@final
@register("model")
@dataclass(frozen=True, kw_only=True)
class Position(ModelSpec):
    """The token at position i (from 0, in prompt + output) has the law rows[i mod R].

    Attributes:
        rows: [R, V] the laws, numbers or fractions "a/b".
        eos_id: end-of-sequence id, in [0, V).
    """

    rows: tuple[tuple[Probability, ...], ...]
    eos_id: int | None = None

    def __post_init__(self) -> None:
        check_id("eos_id", self.eos_id, checked_rows("rows", self.rows).shape[1])

    def load(self, role: str) -> ToyModel:
        rows = checked_rows("rows", self.rows)
        return ToyModel(f"{role} (position)", rows, by_position(len(rows)), eos_id=self.eos_id)
