"""What every lossless rule would have accepted on the blocks of this run: expected lengths, without sampling noise.

    length of a rule   sum_{i<=K'} S_i, with its own survival S given the block
    joint ceiling      sum_{i<=K'} min(1, prod_{j<=i} p_j(x_j) / q_j(x_j)), in the mean the sum over i of
                       1 - TV of the laws of the first i tokens (Sun et al. 2403.10444)

averaged over the rounds that drafted. All rules are asked about the same blocks, so their differences are paired.
Exact for the blocks it saw: a run of another rule ends its rounds, and so starts its blocks, elsewhere.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, final

from specfw.acceptance.base import AcceptanceRule, Needs
from specfw.acceptance.sampler_match import SamplerMatch
from specfw.acceptance.sampler_match_no_proposal_distribution import SamplerMatchNoProposalDistribution
from specfw.diagnostics.base import Diagnostic, Floats, Observer, Setting
from specfw.registry import build, names, register
from specfw.types import Outcome, Round

import mlx.core as mx
import numpy as np

CEILING = "joint_ceiling"


@final
@register("diagnostic")
@dataclass(frozen=True, kw_only=True)
class Scoreboard(Diagnostic):
    """Expected accepted tokens a round: the run's rule, every lossless rule its proposals allow, and the ceiling."""

    def open(self, setting: Setting) -> Observer:
        return _Scores(setting.rule)


@final
class _Scores(Observer):
    def __init__(self, rule: AcceptanceRule) -> None:
        self._rule, self._rivals = rule, rivals(rule)
        self._names: tuple[str, ...] = ()
        self._rounds = 0
        self._sums = self._squares = np.zeros(1)

    def trace(self, graph: Round) -> tuple[mx.array, ...]:
        block = graph.block
        # of a greedy target all lossless rules are one
        if self._rule.domain == "greedy_target" or not block.tokens.shape[1]:
            return ()
        able = [rule for rule in self._rivals if block.draft is not None or rule.needs is Needs.NOTHING]
        laws = mx.stack([graph.verdict.survival, *(rule.law(block) for rule in able)])
        self._names = (_listed_as(self._rule), *(rule.id for rule in able))
        if block.draft is None:
            return (laws,)
        self._names += (CEILING,)
        return laws, block.target.head(block.tokens.shape[1]).at(block.tokens), block.draft.at(block.tokens)

    def observe(self, outcome: Outcome, trace: Sequence[Floats]) -> None:
        if not trace:
            return
        laws, *drafted = trace
        survival = np.stack([*laws, *([ceiling(*drafted)] if drafted else [])])
        within = np.arange(survival.shape[-1]) < outcome.proposed[:, None]
        lengths = np.where(within, survival, 0).sum(axis=-1, dtype=np.float64)[:, outcome.proposed > 0]
        self._rounds += lengths.shape[1]
        self._sums = self._sums + lengths.sum(axis=1)
        self._squares = self._squares + np.square(lengths - lengths[0]).sum(axis=1)

    def numbers(self) -> dict[str, Any]:
        if not self._rounds:
            return {}
        means = self._sums / self._rounds
        differences = means - means[0]
        spread = np.maximum(self._squares / self._rounds - differences**2, 0)
        errors = np.sqrt(spread / (self._rounds - 1)) if self._rounds > 1 else np.full(len(means), math.nan)
        columns = zip(self._names, means.tolist(), differences.tolist(), errors.tolist(), strict=True)
        return {
            name: {"mean_accepted_len": mean, "difference": difference, "standard_error": error}
            for name, mean, difference, error in columns
        }


def lossless() -> dict[str, AcceptanceRule]:
    """Every lossless rule for a target that samples, by name, at its default values; not the stand-in."""
    known = {name: rule for name in names("acceptance") if (rule := _at_defaults(name)) is not None}
    return {
        name: rule
        for name, rule in known.items()
        if rule.preserves_target and rule.domain == "any" and not isinstance(rule, SamplerMatchNoProposalDistribution)
    }


def rivals(own: AcceptanceRule) -> list[AcceptanceRule]:
    """Every other lossless rule.

    Shared noise is no condition: survival given the block is a function of its rows and tokens, and its mean over
    blocks drawn from q is the same on whatever noise they were drawn.
    """
    return [rule for rule in lossless().values() if rule.id != _listed_as(own)]


def ceiling(p: Floats, q: Floats) -> Floats:
    """[B, K] min(1, prod_{j<=i} p_j / q_j) of the drafted tokens' probabilities, capped at the end only.

    The logarithms are of double precision: nothing overflows, and what is lost is far below the rows' own rounding.
    """
    with np.errstate(divide="ignore", invalid="ignore"):  # p = 0 is an answer; places beyond a row's own are not read
        steps = np.log(p, dtype=np.float64) - np.log(q, dtype=np.float64)
        return np.asarray(np.exp(np.minimum(np.cumsum(steps, axis=1), 0)))


def _listed_as(rule: AcceptanceRule) -> str:
    """The stand-in that runs where no rows are reported has sampler match's law, and is listed as that."""
    return SamplerMatch.id if isinstance(rule, SamplerMatchNoProposalDistribution) else rule.id


def _at_defaults(name: str) -> AcceptanceRule | None:
    """The rule, None if it has keys that must be given."""
    try:
        rule: AcceptanceRule = build("acceptance", {"name": name})
    except ValueError:
        return None
    return rule
