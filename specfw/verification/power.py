"""The power arm: the same configuration with one fault after the other, which must be rejected."""

import math
from collections.abc import Sequence
from typing import Any, NamedTuple, final

from specfw.diagnostics._evidence import E_VALUE_LIMIT
from specfw.diagnostics.base import Floats, Observer, Setting
from specfw.diagnostics.calibration import Calibration
from specfw.types import Outcome, Round
from specfw.verification.exact import Pair
from specfw.verification.fits import Tested
from specfw.verification.statistics import noncentrality

import mlx.core as mx
import numpy as np

POWER = 0.999
LEAST_EFFECT = 1e-12
"""A smaller one is rounding of the enumeration."""


class Seen(NamedTuple):
    """What the checks made of a fault.

    Attributes:
        fault: its name.
        what: in words.
        by: the checks of the sample that rejected it.
        by_run: tokens after which each part of a run's own verdict passed 10^6, for those that did.
        tokens: of the sample.
        would_need: tokens that the most sensitive check of those tried needs for 99.9 % power; None if none can.
        exact: total variation of K + 1 tokens, where the pair can be enumerated.
    """

    fault: str
    what: str
    by: tuple[str, ...]
    by_run: dict[str, int]
    tokens: int
    would_need: int | None
    exact: float | None

    @property
    def seen(self) -> bool:
        """Whether anything rejected it."""
        return bool(self.by or self.by_run)


@final
class FirstSeen(Observer):
    """A run's calibration, and how many tokens each of its checks took to pass 10^6."""

    def __init__(self, setting: Setting) -> None:
        self._inner = Calibration(sorting=True).open(setting)
        self._tokens = 0
        self.after: dict[str, int] = {}

    def trace(self, graph: Round) -> tuple[mx.array, ...]:
        return self._inner.trace(graph)

    def observe(self, outcome: Outcome, trace: Sequence[Floats]) -> None:
        self._inner.observe(outcome, trace)
        self._tokens += int(outcome.emitted.sum())
        for name, check in self._inner.checks().items():
            if check.log_e_value > math.log(E_VALUE_LIMIT):
                self.after.setdefault(name, self._tokens)

    def numbers(self) -> dict[str, Any]:
        return dict(self.after)


def rejecting(found: Sequence[Tested], alpha: float) -> tuple[str, ...]:
    """The checks whose p-value is below their share of `alpha`."""
    return tuple(one.name for one in found if one.p_value < alpha / len(found))


def would_need(effects: Sequence[tuple[float, int]], tokens_of_one: float, alpha: float) -> int | None:
    """Tokens that the best of some chi-square tests needs.

    Args:
        effects: (sum (o - p)^2 / p of one observation, degrees of freedom) of each.
        tokens_of_one: tokens that go by for one observation.
        alpha: size of the test.
    """
    visible = [(effect, degrees) for effect, degrees in effects if effect > LEAST_EFFECT]
    needed = [noncentrality(degrees, alpha, POWER) / effect * tokens_of_one for effect, degrees in visible]
    return math.ceil(min(needed)) if needed else None


def exact_effects(emitted: Floats, pair: Pair) -> list[tuple[float, int]]:
    """Effect and degrees of freedom of the first token and of the first two, from their exact law."""
    effects = []
    law: Floats = np.ones(())
    for row in pair.p[:2]:
        law = law[..., None] * row
        seen = emitted.reshape((*law.shape, -1)).sum(axis=-1)
        possible = law > 0
        effect = float((((seen - law) ** 2)[possible] / law[possible]).sum())
        effects.append((effect, max(int(possible.sum()) - 1, 1)))
    return effects
