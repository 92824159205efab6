"""A toy whose every token has one law, whatever came before."""

from dataclasses import dataclass
from typing import final

from specfw.models._toy import Probability, ToyModel, check_id, checked_rows
from specfw.models.base import ModelSpec
from specfw.registry import register
from specfw.types import Ints

import mlx.core as mx


@final
@register("model")
@dataclass(frozen=True, kw_only=True)
class Iid(ModelSpec):
    """Independent, identically distributed tokens.

    Attributes:
        probs: [V] the law, numbers or fractions "a/b".
        eos_id: end-of-sequence id, in [0, V).
    """

    probs: tuple[Probability, ...]
    eos_id: int | None = None

    def __post_init__(self) -> None:
        checked_rows("probs", [self.probs])
        check_id("eos_id", self.eos_id, len(self.probs))

    def load(self, role: str) -> ToyModel:
        return ToyModel(f"{role} (iid)", checked_rows("probs", [self.probs]), _only, eos_id=self.eos_id)


def _only(tokens: mx.array, before: Ints) -> mx.array:
    return mx.zeros(tokens.shape, dtype=mx.int32)
