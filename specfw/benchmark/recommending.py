"""One recommendation: what to decode with here, and the acceptance at which that would flip."""

from collections.abc import Sequence
from statistics import median
from typing import NamedTuple

from specfw.benchmark.found import Found
from specfw.benchmark.line_up import PLAIN
from specfw.benchmark.numbers import Costs, Ratio, acceptance, paired


class Recommendation(NamedTuple):
    """What to decode with on this machine.

    Attributes:
        choice: name of the arm: `plain`, or one that drafts.
        best: name of the fastest arm that drafts.
        decided: whether the interval of its ratio to plain decoding leaves 1 out.
        ratio: that ratio.
        expected_tokens_per_s: of the choice, from forward costs alone.
        tokens_per_s: of the choice, median.
        low: of the interval of the choice's tokens per second.
        high: its upper end.
        acceptance: at which the draft tokens of `best`, standing independently, would give its E(K).
        flip: the acceptance at which the answer flips, from forward costs alone; None if none does.
        flip_as_measured: the same with everything else a round of `best` costs.
    """

    choice: str
    best: str
    decided: bool
    ratio: Ratio
    expected_tokens_per_s: float
    tokens_per_s: float
    low: float
    high: float
    acceptance: float | None
    flip: float | None
    flip_as_measured: float | None


def recommend(plain: Found, candidates: Sequence[Found], costs: Costs) -> Recommendation:
    """Hold the fastest arm that drafts against plain decoding.

    Args:
        plain: specfw without a drafter, of the same run.
        candidates: arms that draft, at least one.
        costs: of forward passes.
    """
    best = max(candidates, key=lambda one: one.ratios[PLAIN].estimate)
    ratio = best.ratios[PLAIN]
    choice = best if ratio.estimate > 1 else plain
    tokens = choice.tokens_of_round if choice is best else 1.0
    low, high = _interval(choice.speeds)
    return Recommendation(
        choice=choice.arm.name,
        best=best.arm.name,
        decided=ratio.decided,
        ratio=ratio,
        expected_tokens_per_s=tokens / costs.round_s(choice.rounds),
        tokens_per_s=median(choice.speeds),
        low=low,
        high=high,
        acceptance=acceptance(best.tokens_of_round, best.rounds),
        flip=costs.flip(best.rounds),
        flip_as_measured=costs.flip(best.rounds, best.share(PLAIN)),
    )


def _interval(speeds: Sequence[float]) -> tuple[float, float]:
    """Student's interval of the logarithms, as for a ratio."""
    found = paired(speeds, [1.0] * len(speeds))
    return found.low, found.high
