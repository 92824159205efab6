"""The power arm: the same configuration with one fault after the other, which must be rejected."""

import math
from collections.abc import Sequence
from typing import Any, NamedTuple, final

from specfw.diagnostics._evidence import E_VALUE_LIMIT
from specfw.diagnostics.base import Floats, Observer, Setting
from specfw.diagnostics.calibration import Calibration
from specfw.types import Outcome, Round
from specfw.verification.exact import Pair, joint
from specfw.verification.fits import Tested
from specfw.verification.statistics import noncentrality

import mlx.core as mx

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
        would_need: tokens that the first tokens of rounds or the pairs need for 99.9 % power; None if no number does.
        exact: largest total variation of K + 1 tokens, where the pair can be enumerated.
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


class Count(NamedTuple):
    """A chi-square test of a fault.

    Attributes:
        effect: sum (o - p)^2 / p of one observation, the mean over the contexts it is made in.
        degrees: of freedom.
        tokens: that go by for one observation.
    """

    effect: float
    degrees: int
    tokens: float


def would_need(counts: Sequence[Count], alpha: float) -> int | None:
    """Tokens that the best of some chi-square tests of size `alpha` needs."""
    visible = [one for one in counts if one.effect > LEAST_EFFECT and one.degrees]
    needed = [noncentrality(one.degrees, alpha, POWER) / one.effect * one.tokens for one in visible]
    return math.ceil(min(needed)) if needed else None


def exact_effects(emitted: Floats, pair: Pair) -> tuple[float, float]:
    """Sum (o - p)^2 / p of the first token and of the first two, from their exact law."""
    one, two = (_effect(emitted, joint(pair.p[:length])) for length in (1, 2))
    return one, two


def _effect(emitted: Floats, law: Floats) -> float:
    seen, possible = emitted.reshape((*law.shape, -1)).sum(axis=-1), law > 0
    return float((((seen - law) ** 2)[possible] / law[possible]).sum())
