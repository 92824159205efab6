"""The draft length that promises most tokens a second, from counts so far and the cost of forward passes.

With a_i the chance that draft token i stands once those before it do, E(K) = 1 + sum_{i<=K} a_1 .. a_i, c(r) the
cost of a target pass over r rows and d that of a drafter pass, it takes the K that maximises E(K) / (c(K+1) + K d).
K = 0, plain decoding, is among them. No clock is read between rounds: seed and curve give the text.
"""

import dataclasses
import itertools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Self, final

from specfw.drafting.controllers.base import Controller, Costs, DraftLength
from specfw.drafting.controllers.constant import MOST
from specfw.registry import register, require
from specfw.types import Ints, Outcome

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]


@final
@register("controller")
@dataclass(frozen=True, kw_only=True)
class Cost(Controller):
    """Argmax of expected tokens over expected seconds, row by row.

    Attributes:
        curve: pairs of rows and seconds of a target pass, rows rising from 1, straight lines between them and
            beyond; empty to measure it before the first round.
        draft_step_s: seconds of a drafter pass over one row; null to measure it.
        most: the largest K.
        prior: acceptance that is assumed before anything was tested, in (0, 1).
        weight: tested draft tokens that the assumption counts as, more than 0.
        probe_every: rounds after which a row that does not speculate tries one draft token again, at least 1.
    """

    curve: tuple[tuple[float, ...], ...] = ()
    draft_step_s: float | None = None
    most: int = 16
    prior: float = 0.7
    weight: float = 4.0
    probe_every: int = 32

    def __post_init__(self) -> None:
        require("most", 1 <= self.most <= MOST, f"in [1, {MOST}]", self.most)
        require("prior", 0 < self.prior < 1, "in (0, 1)", self.prior)
        require("weight", self.weight > 0, "above 0", self.weight)
        require("probe_every", self.probe_every >= 1, "at least 1", self.probe_every)
        given = self.draft_step_s is not None
        require("draft_step_s", given == bool(self.curve), "given together with curve, or neither", self.draft_step_s)
        require("draft_step_s", self.draft_step_s is None or self.draft_step_s >= 0, "0 or more", self.draft_step_s)
        rows = [pair[0] for pair in self.curve]
        pairs = all(len(pair) == 2 and pair[1] > 0 for pair in self.curve)  # noqa: PLR2004
        rising = not rows or (rows[0] == 1 and all(one < two for one, two in itertools.pairwise(rows)))
        require("curve", pairs and rising, "pairs [rows, seconds], rows rising from 1, seconds above 0", self.curve)

    @property
    def longest(self) -> int:
        return self.most

    def costed(self, measure: Callable[[int], Costs]) -> Self:
        if self.curve:
            return self
        costs = measure(self.most + 1)
        curve = tuple((float(rows), seconds) for rows, seconds in sorted(costs.target_s.items()))
        return dataclasses.replace(self, curve=curve, draft_step_s=costs.draft_step_s)

    def open(self, rows: int) -> DraftLength:
        require("curve", bool(self.curve), "measured or given before the first round", self.curve)
        return _Cost(self, rows)

    def seconds(self) -> Floats:
        """[most + 1] expected seconds of a round at K = 0 .. most."""
        rows, cost = np.array(self.curve, dtype=np.float64).T
        wanted = np.arange(1, self.most + 2)
        slope = (cost[-1] - cost[-2]) / (rows[-1] - rows[-2]) if len(rows) > 1 else cost[0]
        beyond = cost[-1] + np.maximum(wanted - rows[-1], 0) * max(slope, 0)
        target = np.where(wanted > rows[-1], beyond, np.interp(wanted, rows, cost))
        return np.asarray(target + np.arange(self.most + 1) * (self.draft_step_s or 0.0))


@final
class _Cost(DraftLength):
    def __init__(self, controller: Cost, rows: int) -> None:
        self._controller, self._seconds = controller, controller.seconds()
        self._tested = np.zeros((rows, controller.most))
        self._accepted = np.zeros((rows, controller.most))
        self._idle = np.zeros(rows, dtype=np.int64)

    def next(self) -> Ints:
        best = (self._tokens() / self._seconds).argmax(axis=1)
        probing = (best == 0) & (self._idle >= self._controller.probe_every)
        return np.where(probing, 1, best)

    def observe(self, outcome: Outcome) -> None:
        places = np.arange(self._tested.shape[1])
        reached = (places < outcome.proposed[:, None]) & (places <= outcome.accepted[:, None])
        self._tested += reached
        self._accepted += places < outcome.accepted[:, None]
        self._idle = np.where(outcome.proposed > 0, 0, self._idle + outcome.active)

    def _tokens(self) -> Floats:
        """[B, most + 1] E(K): each place's own rate, drawn towards the row's rate over all places."""
        c = self._controller
        tested, accepted = self._tested, self._accepted
        overall = (accepted.sum(axis=1) + c.prior * c.weight) / (tested.sum(axis=1) + c.weight)
        chance = (accepted + overall[:, None] * c.weight) / (tested + c.weight)
        stands = np.cumprod(chance, axis=1)
        return np.concatenate([np.ones((len(stands), 1)), 1 + np.cumsum(stands, axis=1)], axis=1)
