"""Longer after a round that was accepted whole, shorter after any other, as transformers' assisted decoding does."""

from dataclasses import dataclass
from typing import final

from specfw.drafting.controllers.base import Controller, DraftLength
from specfw.drafting.controllers.constant import MOST
from specfw.registry import register, require
from specfw.types import Ints, Outcome

import numpy as np


@final
@register("controller")
@dataclass(frozen=True, kw_only=True)
class Heuristic(Controller):
    """+ `up` after full acceptance, - `down` otherwise, within [`least`, `most`].

    Attributes:
        num_draft_tokens: K of the first round.
        up: added when every draft token was accepted.
        down: taken off when one was not.
        least: the smallest K, at least 1.
        most: the largest K.
    """

    num_draft_tokens: int = 4
    up: int = 2
    down: int = 1
    least: int = 1
    most: int = 16

    def __post_init__(self) -> None:
        require("up", self.up >= 0, "0 or more", self.up)
        require("down", self.down >= 0, "0 or more", self.down)
        require("most", 1 <= self.most <= MOST, f"in [1, {MOST}]", self.most)
        require("least", 1 <= self.least <= self.most, f"in [1, most = {self.most}]", self.least)
        inside = self.least <= self.num_draft_tokens <= self.most
        require("num_draft_tokens", inside, f"in [{self.least}, {self.most}]", self.num_draft_tokens)

    @property
    def longest(self) -> int:
        return self.most

    def open(self, rows: int) -> DraftLength:
        return _Heuristic(self, rows)


@final
class _Heuristic(DraftLength):
    def __init__(self, controller: Heuristic, rows: int) -> None:
        self._controller = controller
        self._counts = np.full(rows, controller.num_draft_tokens)

    def next(self) -> Ints:
        return self._counts

    def observe(self, outcome: Outcome) -> None:
        c, drafted = self._controller, outcome.active & (outcome.proposed > 0)
        change = np.where(outcome.accepted == outcome.proposed, c.up, -c.down)
        self._counts = np.clip(self._counts + np.where(drafted, change, 0), c.least, c.most)
