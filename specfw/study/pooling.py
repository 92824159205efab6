"""Runs that differ in the seed alone as one: sums over their draft tokens, closed forms weighted by them."""

import json
import math
from collections.abc import Mapping, Sequence
from itertools import groupby
from typing import NamedTuple

from specfw.diagnostics.population import interval
from specfw.study.columns import compared
from specfw.study.gathered import Interval, Leaf, Run
from specfw.study.intervals import wilson

import numpy as np

SEEDS = 3
"""Fewer say nothing of how much seeds differ."""


class Pool(NamedTuple):
    """Runs of one configuration, of the same models and prompts, whatever their seeds.

    Attributes:
        rule: id of the rule that ran.
        settings: of the configuration, with the seed of the first.
        runs: at least one, none of them broken off and no two of one seed.
    """

    rule: str
    settings: Mapping[str, Leaf]
    runs: tuple[Run, ...]

    def total(self, name: str) -> int:
        """A counter of the rows, summed."""
        return sum(getattr(run.row, name) for run in self.runs)

    def mean(self, name: str, *, by: str = "tested") -> float | None:
        """A mean of the rows, weighted by one of their counters; None where a run that counted some lacks it."""
        parts = [(getattr(run.row, by), getattr(run.row, name)) for run in self.runs if getattr(run.row, by)]
        if not parts or any(value is None for _, value in parts):
            return None
        return math.fsum(count * value for count, value in parts) / self.total(by)

    def rate(self, name: str, of: str) -> float | None:
        """One sum over another, None where a run lacks one or there is nothing to divide by."""
        parts, wholes = ([getattr(run.row, one) for run in self.runs] for one in (name, of))
        if None in parts or None in wholes or not math.fsum(wholes):
            return None
        return math.fsum(parts) / math.fsum(wholes)

    @property
    def tested(self) -> int:
        """Draft tokens whose acceptance is measured."""
        return self.total("tested")

    @property
    def accepted(self) -> int:
        """Those that stand."""
        return self.total("accepted")

    @property
    def measured(self) -> float | None:
        """Accepted of tested."""
        return self.accepted / self.tested if self.tested else None

    @property
    def interval(self) -> Interval | None:
        """Of `measured`: over seeds, each a cluster, if there are three or more; of a single run its own."""
        if len(self.runs) == 1:
            return self.runs[0].row.interval
        if len(self.runs) < SEEDS:
            return wilson(self.accepted, self.tested)
        accepted, tested = (np.array([getattr(run.row, name) for run in self.runs]) for name in ("accepted", "tested"))
        found = interval(accepted, tested, accepted)
        return wilson(self.accepted, self.tested) if found is None else Interval(found["low"], found["high"], "seeds")

    @property
    def z(self) -> float | None:
        """(observed - expected) / sqrt(variance) of the closed form, sums over the runs; it decides nothing."""
        terms = [(run.row.excess, run.row.variance) for run in self.runs if run.row.tested]
        excess = math.fsum(one for one, _ in terms if one is not None)
        variance = math.fsum(one for _, one in terms if one is not None)
        known = all(one is not None and other is not None for one, other in terms)
        return excess / math.sqrt(variance) if known and variance > 0 else None

    @property
    def log10_e_value(self) -> float | None:
        """The largest of the runs'."""
        return max((run.row.log10_e_value for run in self.runs if run.row.log10_e_value is not None), default=None)

    @property
    def distortion_lower_bound(self) -> float | None:
        """Acceptance of first draft tokens beyond `sum_min`, weighted by rounds; None for lossless rules."""
        rows = [run.row for run in self.runs if run.row.rounds and not run.row.preserves_target]
        excess = [
            row.rounds * (row.first_measured - row.first_sum_min)
            for row in rows
            if row.first_measured is not None and row.first_sum_min is not None
        ]
        if not rows or len(excess) < len(rows):
            return None
        return max(0.0, math.fsum(excess) / sum(row.rounds for row in rows))

    @property
    def verdict(self) -> str:
        """The verdicts of the runs, counted."""
        verdicts = sorted(run.row.verdict for run in self.runs)
        return ", ".join(f"{len(list(group))} {verdict}" for verdict, group in groupby(verdicts))


def pools(runs: Sequence[Run]) -> list[Pool]:
    """The runs by everything but the seed, in order of their first; those broken off and repeated are in none."""
    found: dict[str, dict[int, Run]] = {}
    for run in runs:
        if is_whole(run):
            found.setdefault(what_ran(run), {}).setdefault(run.row.seed, run)
    return [_pool(tuple(group.values())) for group in found.values()]


def is_whole(run: Run) -> bool:
    """Whether it came to its end."""
    return not run.row.interrupted and run.row.error is None


def what_ran(run: Run) -> str:
    """The rule, the configuration without what says nothing of the run, the models and the prompts; not the seed."""
    return json.dumps([run.row.rule, compared(run), run.inputs], sort_keys=True)


def _pool(runs: tuple[Run, ...]) -> Pool:
    return Pool(runs[0].row.rule, runs[0].settings, runs)
