"""A toy that counts its own cache: a cache that holds one token too many or too few shows as acceptance.

Two of them with one V and one peak agree fully (sum_min = 1) while their caches count alike. One place apart
they share only sum_min = V (1 - peak) / (V - 1).
"""

from dataclasses import dataclass
from typing import final

from specfw.models._toy import ToyModel, by_position, check_id, check_peak, peaked_rows
from specfw.models.base import ModelSpec
from specfw.registry import register, require


@final
@register("model")
@dataclass(frozen=True, kw_only=True)
class CacheLength(ModelSpec):
    """With L tokens in its cache it puts `peak` on the id L mod V.

    Attributes:
        vocab_size: V, at least 2.
        peak: in [0, 1].
        eos_id: end-of-sequence id, in [0, V).
    """

    vocab_size: int = 4
    peak: float = 0.7
    eos_id: int | None = None

    def __post_init__(self) -> None:
        require("vocab_size", self.vocab_size >= 2, "at least 2", self.vocab_size)  # noqa: PLR2004
        check_peak(self.peak, self.vocab_size)
        check_id("eos_id", self.eos_id, self.vocab_size)

    def load(self, role: str) -> ToyModel:
        rows = peaked_rows(range(self.vocab_size), self.vocab_size, self.peak)
        return ToyModel(f"{role} (cache_length)", rows, by_position(len(rows)), eos_id=self.eos_id)
