"""Acceptance by place in the block: tested, proposed and accepted draft tokens at each, and how long the blocks stood.

Beside the counts of n' = 0, 1, 2, .. stand what the rule's law says of them given the blocks, and how far off they may
be: sums over the rounds that drafted of P(n' = n) = S_n - S_(n+1) and of P (1 - P), with S_0 = 1 and S = 0 beyond K'.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, final

from specfw.counting import rate, tested
from specfw.diagnostics.base import Diagnostic, Floats, Observer, Setting
from specfw.registry import register
from specfw.types import Ints, Outcome, Round

import mlx.core as mx
import numpy as np


@final
@register("diagnostic")
@dataclass(frozen=True, kw_only=True)
class Acceptance(Diagnostic):
    """Counts of the host, and the survival that was decided with; nothing is added to the graph."""

    def open(self, setting: Setting) -> Observer:
        return _ByPlace(setting)


@final
class _ByPlace(Observer):
    def __init__(self, setting: Setting) -> None:
        self._stops = setting.rule.stops_at_rejection
        self._counts = np.zeros((3, 0), dtype=np.int64)
        self._lengths = np.zeros(0, dtype=np.int64)
        self._law = np.zeros((2, 0))

    def trace(self, graph: Round) -> tuple[mx.array, ...]:
        return (graph.verdict.survival,)

    def observe(self, outcome: Outcome, trace: Sequence[Floats]) -> None:
        width = outcome.drafts.shape[1]
        if width >= len(self._lengths):
            more = width + 1 - len(self._lengths)
            self._counts = np.pad(self._counts, [(0, 0), (0, more)])
            self._lengths = np.pad(self._lengths, (0, more))
            self._law = np.pad(self._law, [(0, 0), (0, more)])
        limits = (outcome.proposed, tested(outcome, self._stops), outcome.accepted)
        for counts, limit in zip(self._counts, limits, strict=True):
            counts[:width] += (np.arange(width) < limit[:, None]).sum(axis=0)
        drafted = outcome.active & (outcome.proposed > 0)
        self._lengths += np.bincount(outcome.accepted[drafted], minlength=len(self._lengths))
        chances = _of_lengths(trace[0][drafted], outcome.proposed[drafted])
        self._law[:, : width + 1] += chances.sum(axis=0), (chances * (1 - chances)).sum(axis=0)

    def numbers(self) -> dict[str, Any]:
        used = int(np.count_nonzero(self._counts[0]))
        proposed, tested_, accepted = self._counts[:, :used].tolist()
        return {
            "by_position": {
                "proposed": proposed,
                "tested": tested_,
                "accepted": accepted,
                "acceptance": [rate(a, t) for a, t in zip(accepted, tested_, strict=True)] if self._stops else None,
            },
            "accepted_length_counts": _trimmed(self._lengths),
            "accepted_length_law": {
                name: row[: used + bool(used)].tolist()
                for name, row in zip(("expected", "variance"), self._law, strict=True)
            },
        }


def _of_lengths(survival: Floats, proposed: Ints) -> Floats:
    """[B, K+1] probability that n' is 0, .., K, of each row's own K'."""
    within = np.arange(survival.shape[1]) < proposed[:, None]
    reached = np.pad(np.where(within, survival, 0).astype(np.float64), [(0, 0), (1, 1)])
    reached[:, 0] = 1
    return np.asarray(reached[:, :-1] - reached[:, 1:])


def _trimmed(counts: Ints) -> list[int]:
    return [int(count) for count in np.trim_zeros(counts, "b")]
