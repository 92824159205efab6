"""What times come to: paired ratios with intervals, the bound that forward costs set, where the answer flips."""

import math
from collections.abc import Mapping, Sequence
from statistics import fmean, stdev
from typing import NamedTuple, TypeAlias

from specfw.diagnostics._student import quantile

import numpy as np

Rounds: TypeAlias = Mapping[int, int]
"""How many rounds there were of each K; of a constant K one is enough."""
COVERAGE = 0.95
_HALVINGS = 60


class Ratio(NamedTuple):
    """How many times as fast one arm is as another.

    Attributes:
        estimate: geometric mean of the repeats' ratios.
        low: lower end of the 95 % interval; nan of a single repeat.
        high: its upper end.
    """

    estimate: float
    low: float
    high: float

    @property
    def decided(self) -> bool:
        """Whether the interval leaves 1 out."""
        return self.low > 1 or self.high < 1


def paired(speeds: Sequence[float], others: Sequence[float]) -> Ratio:
    """`speeds` over `others`, repeat by repeat: mean and Student interval of the logarithms.

    Args:
        speeds: of one arm, one a repeat, all above 0.
        others: of the other arm, in the same repeats.
    """
    logs = [math.log(one / other) for one, other in zip(speeds, others, strict=True)]
    centre, degrees = fmean(logs), len(logs) - 1
    half = quantile(degrees, COVERAGE) * stdev(logs) / math.sqrt(len(logs)) if degrees else math.nan
    return Ratio(math.exp(centre), math.exp(centre - half), math.exp(centre + half))


class Costs(NamedTuple):
    """Seconds of forward passes on this machine, by the number of rows.

    Attributes:
        target_s: c(rows) of the target.
        drafter_s: the same of the drafter, whose one row is d; empty without a drafter.
    """

    target_s: Mapping[int, float]
    drafter_s: Mapping[int, float]

    def round_s(self, rounds: Rounds) -> float:
        """The mean of c(K + 1) + K d, what a round cannot cost less than; c between measured rows is a line."""
        return _mean({drafted: self._round_s(drafted) for drafted in rounds}, rounds)

    def _round_s(self, drafted: int) -> float:
        target = float(np.interp(drafted + 1, list(self.target_s), list(self.target_s.values())))
        return target + (drafted * self.drafter_s[1] if drafted else 0.0)

    def bound(self, tokens: float, rounds: Rounds) -> float:
        """E(K) c(1) / (c(K + 1) + K d): the speedup of rounds that cost nothing but their passes.

        Args:
            tokens: E(K), mean tokens of a round.
            rounds: how many there were of each K.
        """
        return tokens * self.target_s[1] / self.round_s(rounds)

    def flip(self, rounds: Rounds, share: float = 1.0) -> float | None:
        """The acceptance at which such rounds break even with plain decoding.

        Args:
            rounds: how many there were of each K.
            share: of the bound that is reached; 1 counts the passes alone.

        Returns:
            The a of `acceptance` for E(K) = (c(K + 1) + K d) / (c(1) share); None where no acceptance pays.
        """
        return acceptance(self.round_s(rounds) / (self.target_s[1] * share), rounds)


def tokens_of_round(accepted: float, rounds: Rounds) -> float:
    """(1 - a^(K+1)) / (1 - a): mean tokens of rounds whose draft tokens stand independently with chance a."""
    return _mean({drafted: math.fsum(accepted**place for place in range(drafted + 1)) for drafted in rounds}, rounds)


def acceptance(tokens: float, rounds: Rounds) -> float | None:
    """The a in [0, 1] at which rounds yield `tokens` each; 0 below 1 token, None above K + 1."""
    if tokens > mean_length(rounds) + 1:
        return None
    low, high = 0.0, 1.0
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        low, high = (middle, high) if tokens_of_round(middle, rounds) < tokens else (low, middle)
    return high if high > 2.0**-_HALVINGS else 0.0


def mean_length(rounds: Rounds) -> float:
    """K in the mean."""
    return _mean({drafted: drafted for drafted in rounds}, rounds)


def _mean(values: Mapping[int, float], rounds: Rounds) -> float:
    return math.fsum(values[drafted] * count for drafted, count in rounds.items()) / sum(rounds.values())
