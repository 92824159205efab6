"""Ends a block after a token that the drafter was not sure of: what follows it would probably be wasted."""

from dataclasses import dataclass
from typing import Any, final

from specfw.drafting.controllers.base import Controller, DraftLength
from specfw.drafting.controllers.constant import MOST
from specfw.registry import register, require
from specfw.types import Ints, Outcome

import numpy as np
import numpy.typing as npt


@final
@register("controller")
@dataclass(frozen=True, kw_only=True)
class Confidence(Controller):
    """Draft on while the drafted tokens have at least this probability; the one that has not is kept.

    Attributes:
        threshold: in [0, 1], of q at the token just drafted.
        most: the largest K.
    """

    threshold: float = 0.4
    most: int = 20

    def __post_init__(self) -> None:
        require("threshold", 0 <= self.threshold <= 1, "in [0, 1]", self.threshold)
        require("most", 1 <= self.most <= MOST, f"in [1, {MOST}]", self.most)

    @property
    def longest(self) -> int:
        return self.most

    def open(self, rows: int) -> DraftLength:
        return _Confidence(self, rows)


@final
class _Confidence(DraftLength):
    stops_inside = True

    def __init__(self, controller: Confidence, rows: int) -> None:
        self._threshold, self._counts = controller.threshold, np.full(rows, controller.most)

    def next(self) -> Ints:
        return self._counts

    def observe(self, outcome: Outcome) -> None:
        pass

    def goes_on(self, q: npt.NDArray[np.floating[Any]]) -> npt.NDArray[np.bool_]:
        return np.asarray(q >= self._threshold)
