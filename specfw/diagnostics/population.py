"""What a run says of prompts like its own: acceptance by prompt, with intervals that know tokens hang together.

Tokens of one sequence, and sequences of one prompt, are no independent draws, so the calibration's z is no error
bar for another set of prompts. The ratio estimator over clusters c with A_c accepted of T_c tested,

    r = sum A_c / sum T_c,    SE = sqrt(C / (C - 1) sum (A_c - r T_c)^2) / sum T_c    (Cochran 1977, chapter 6),

takes a prompt, all its samples together, as one cluster; within one prompt a sample is a cluster.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, final

from specfw.counting import rate, tested
from specfw.diagnostics._student import quantile
from specfw.diagnostics.base import Diagnostic, Floats, Observer, Setting
from specfw.registry import register
from specfw.types import Ints, Outcome

import numpy as np

CONFIDENCE = 0.95


@final
@register("diagnostic")
@dataclass(frozen=True, kw_only=True)
class Population(Diagnostic):
    """Counters and rates of every prompt, intervals over its samples, and intervals over the prompts."""

    def open(self, setting: Setting) -> Observer:
        return _Clusters(setting)


class Counts(NamedTuple):
    """Counters, one entry a cluster.

    Attributes:
        rounds: that proposed something.
        proposed: K' summed.
        positions_tested: draft tokens whose acceptance was decided.
        accepted: n' summed.
        emitted: tokens.
        squares: n' squared, summed over rounds.
    """

    rounds: Ints
    proposed: Ints
    positions_tested: Ints
    accepted: Ints
    emitted: Ints
    squares: Ints


@final
class _Clusters(Observer):
    """Sums of every sequence; a batch, whose rows are its sequences, begins with round 0."""

    def __init__(self, setting: Setting) -> None:
        self._stops = setting.rule.stops_at_rejection
        self._prompts: list[Ints] = [np.zeros(0, dtype=np.int64)]
        self._sums: list[Ints] = [np.zeros((len(Counts._fields), 0), dtype=np.int64)]

    def observe(self, outcome: Outcome, trace: Sequence[Floats]) -> None:
        drafted = outcome.active & (outcome.proposed > 0)
        counts = Counts(
            rounds=drafted.astype(np.int64),
            proposed=outcome.proposed,
            positions_tested=tested(outcome, self._stops),
            accepted=outcome.accepted,
            emitted=outcome.emitted,
            squares=outcome.accepted**2,
        )
        if outcome.round == 0:
            self._prompts.append(outcome.prompt)
            self._sums.append(np.zeros((len(counts), len(outcome.prompt)), dtype=np.int64))
        self._sums[-1] += np.stack(counts)

    def numbers(self) -> dict[str, Any]:
        prompts, sums = np.concatenate(self._prompts), np.concatenate(self._sums, axis=1)
        places, cluster = np.unique(prompts, return_inverse=True)
        whole = np.zeros((len(sums), len(places)), dtype=np.int64)
        np.add.at(whole.T, cluster, sums.T)
        return {
            "intervals": self._intervals(Counts(*whole)),
            "prompts": [self._prompt(int(place), Counts(*sums[:, prompts == place])) for place in places],
        }

    def _prompt(self, place: int, counts: Counts) -> dict[str, Any]:
        total = {name: int(counter.sum()) for name, counter in counts._asdict().items() if name != "squares"}
        accepted = total["accepted"]
        return {
            "prompt": place,
            "samples": len(counts.rounds),
            **total,
            "per_position_acceptance": rate(accepted, total["positions_tested"]) if self._stops else math.nan,
            "mean_accepted_len": rate(accepted, total["rounds"]),
            "intervals": self._intervals(counts),
        }

    def _intervals(self, counts: Counts) -> dict[str, Any]:
        accepted, tested_ = counts.accepted, counts.positions_tested
        return {
            # a tested token counts 0 or 1, so the sum of squares is the sum
            "per_position_acceptance": interval(accepted, tested_, accepted) if self._stops else None,
            "mean_accepted_len": interval(accepted, counts.rounds, counts.squares),
        }


def interval(parts: Ints, wholes: Ints, squares: Ints) -> dict[str, Any] | None:
    """The ratio sum(parts) / sum(wholes) with its cluster-robust interval, Student's t with C - 1 degrees.

    Args:
        parts: [C] A_c, the sum of what each cluster's T_c units are worth.
        wholes: [C] T_c; a cluster without units says nothing and is left out.
        squares: [C] sum of the squares of what units are worth, for the design effect.

    Returns:
        None for less than two clusters; `design_effect` is the variance in that of as many independent units,
        None where units do not vary.
    """
    count, total = int((wholes > 0).sum()), int(wholes.sum())
    if count < 2:  # noqa: PLR2004
        return None
    ratio = int(parts.sum()) / total
    variance = count / (count - 1) * float(np.square(parts - ratio * wholes).sum()) / total**2
    independent = (int(squares.sum()) / total - ratio**2) / (total - 1)
    error = math.sqrt(variance)
    half = quantile(count - 1, CONFIDENCE) * error
    return {
        "estimate": ratio,
        "standard_error": error,
        "low": ratio - half,
        "high": ratio + half,
        "clusters": count,
        "design_effect": variance / independent if independent > 0 else None,
    }
