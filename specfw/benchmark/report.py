"""What a benchmark found: each arm's medians and paired ratios, the costs, the bound, one recommendation."""

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain
from statistics import median
from typing import NamedTuple

from specfw.benchmark.arms import Arm, Counts, Timed
from specfw.benchmark.found import Found
from specfw.benchmark.line_up import MLX_LM_PLAIN, MLX_LM_SPECULATIVE, NO_SPEEDUP, PLAIN, LineUp
from specfw.benchmark.measuring import Measured
from specfw.benchmark.numbers import Costs, Ratio, paired
from specfw.benchmark.recommending import Recommendation, recommend
from specfw.counting import rate

_PHASES = ("draft_s", "verify_s", "decide_s")


class Ran(NamedTuple):
    """What all arms ran on.

    Attributes:
        models: their names, in which the role stands, by role.
        prompt_tokens: of each prompt.
        chain: the steps of the target's sampler chain that act.
    """

    models: dict[str, str]
    prompt_tokens: tuple[int, ...]
    chain: tuple[str, ...]


class Report(NamedTuple):
    """A finished benchmark.

    Attributes:
        found: by arm, in order.
        costs: medians over the repeats.
        recommendation: None where there is nothing to choose between.
        why_none: why there is no recommendation.
        line_up: the arms and what was left out.
        measured: every repeat.
        ran: what they ran on.
    """

    found: dict[str, Found]
    costs: Costs
    recommendation: Recommendation | None
    why_none: str | None
    line_up: LineUp
    measured: Measured
    ran: Ran

    @property
    def passed(self) -> bool:
        """Whether nothing failed; a benchmark that ends has passed."""
        return True

    @property
    def diagnostics(self) -> Ratio | None:
        """How many times as long decoding takes with diagnostics; None where that was not asked."""
        if self.line_up.diagnosed is None:
            return None
        with_them, without = (self.found[name] for name in self.line_up.diagnosed)
        return paired(without.speeds, with_them.speeds)

    def speedup(self, name: str) -> Ratio:
        """An arm over the plain arm of the same run.

        Raises:
            ValueError: that did not run.
        """
        if PLAIN not in self.found:
            raise ValueError(NO_SPEEDUP)
        return self.found[name].ratios[PLAIN]


def report(line_up: LineUp, measured: Measured, ran: Ran, *, speedup: bool | None) -> Report:
    """Put the numbers together.

    Args:
        line_up: the arms.
        measured: their times.
        ran: what they ran on.
        speedup: False leaves out every ratio to plain decoding.
    """
    costs = typical(measured.costs)
    times = {arm.name: [one.timed for one in measured.taken if one.arm == arm.name] for arm in line_up.arms}
    speeds = {name: [one.tokens / one.seconds for one in timed] for name, timed in times.items()}
    found = {}
    for arm in line_up.arms:
        others = [name for name in _compared(arm) if name in speeds and (name != PLAIN or speedup is not False)]
        found[arm.name] = _found(arm, times[arm.name], measured, costs)._replace(
            ratios={name: paired(speeds[arm.name], speeds[name]) for name in others}
        )
    candidates = [one for one in found.values() if one.arm.engine == "specfw" and _is_candidate(one, line_up)]
    why = _why_none(found, candidates, speedup=speedup)
    recommendation = None if why else recommend(found[PLAIN], candidates, costs)
    return Report(found, costs, recommendation, why, line_up, measured, ran)


def typical(costs: Sequence[Costs]) -> Costs:
    """Medians over the repeats."""
    return Costs(_medians([one.target_s for one in costs]), _medians([one.drafter_s for one in costs]))


def _medians(curves: Sequence[Mapping[int, float]]) -> dict[int, float]:
    return {rows: median(curve[rows] for curve in curves) for rows in curves[0]}


def _compared(arm: Arm) -> list[str]:
    """The arms that this one is held against, if they ran."""
    if arm.name == PLAIN:
        return [MLX_LM_PLAIN]
    others = [PLAIN] if arm.name == MLX_LM_PLAIN else [PLAIN, MLX_LM_PLAIN]
    drafts_here = arm.engine == "specfw" and arm.num_draft_tokens and arm.controller is None
    return [*others, f"{MLX_LM_SPECULATIVE} K={arm.num_draft_tokens}"] if drafts_here else others


def _found(arm: Arm, times: Sequence[Timed], measured: Measured, costs: Costs) -> Found:
    counts = Counts()
    for one in times:
        counts = counts.plus(one.counts)
    rounds = Counter({arm.num_draft_tokens: 1}) if arm.controller is None else Counter(_lengths(times))
    found = Found(
        arm=arm,
        seconds=tuple(one.seconds for one in times),
        tokens=tuple(one.tokens for one in times),
        counts=counts,
        ratios={},
        phases=_phases(measured.split.get(arm.name)),
        peak_bytes=max(one.peak_bytes for one in measured.taken if one.arm == arm.name),
        rounds=rounds,
        bound=math.nan,
    )
    return found._replace(bound=costs.bound(found.tokens_of_round, rounds)) if arm.num_draft_tokens else found


def _lengths(times: Sequence[Timed]) -> Iterator[int]:
    return chain.from_iterable(one.lengths for one in times)


def _phases(timed: Timed | None) -> dict[str, float] | None:
    if timed is None or timed.phases is None:
        return None
    return {name: rate(seconds, timed.rounds) for name, seconds in zip(_PHASES, timed.phases, strict=True)}


def _is_candidate(found: Found, line_up: LineUp) -> bool:
    return bool(found.arm.num_draft_tokens) and found.arm.name not in (line_up.diagnosed or ())[:1]


def _why_none(found: Mapping[str, Found], candidates: Sequence[Found], *, speedup: bool | None) -> str | None:
    if PLAIN not in found or speedup is False:
        return NO_SPEEDUP
    return None if candidates else "no arm drafts"
