"""What theory says of acceptance at the tested positions: sum of min(p, q), sum of p q, q at the target's argmax."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, final

from specfw.acceptance.gumbel import Gumbel
from specfw.counting import rate, tested
from specfw.diagnostics.base import Diagnostic, Floats, Observer, Setting
from specfw.registry import register
from specfw.types import Outcome, Round

import mlx.core as mx
import numpy as np

NAMES = ("sum_min", "sum_prod", "q_at_target_argmax", "expected_acceptance", "gumbel", "distortion")


@final
@register("diagnostic")
@dataclass(frozen=True, kw_only=True)
class ClosedForms(Diagnostic):
    """Means over the tested positions of a run, and over the first position of its rounds.

    Attributes:
        sorting: also those that sort every row: what shared noise would accept, and the rule's own where it sorts;
            nan without.
    """

    sorting: bool = False

    def open(self, setting: Setting) -> Observer:
        return _Means(setting, sorting=self.sorting)


@final
class _Means(Observer):
    def __init__(self, setting: Setting, *, sorting: bool) -> None:
        self._setting, self._sorting = setting, sorting
        self._sums = np.zeros((2, len(NAMES)))
        self._counts = np.zeros(2, dtype=np.int64)
        self._accepted_first = 0

    def trace(self, graph: Round) -> tuple[mx.array, ...]:
        block = graph.block
        if block.draft is None or not block.tokens.shape[1]:
            return ()
        p, q = block.target.head(block.tokens.shape[1]), block.draft
        rule, unknown = self._setting.rule, mx.full(block.tokens.shape, mx.nan)
        gumbel = Gumbel().expected_acceptance(p, q) if self._sorting else unknown
        asks = self._sorting or not rule.closed_form_sorts
        expected = rule.expected_acceptance(p, q) if asks else unknown
        followed = None if rule.preserves_target else rule.surrogate(p, q)
        distortion = unknown if followed is None else mx.maximum(1 - followed.overlap(p), 0)
        return p.overlap(q), p.product(q), q.at(p.argmax()), expected, gumbel, distortion

    def observe(self, outcome: Outcome, trace: Sequence[Floats]) -> None:
        if not trace:
            return
        width = outcome.drafts.shape[1]
        everywhere = np.arange(width) < tested(outcome, self._setting.rule.stops_at_rejection)[:, None]
        first = everywhere & (np.arange(width) == 0)
        for scope, counted in enumerate((everywhere, first)):
            self._counts[scope] += int(counted.sum())
            self._sums[scope] += [float(np.sum(form, where=counted, dtype=np.float64)) for form in trace]
        self._accepted_first += int((outcome.accepted > 0).sum())

    def numbers(self) -> dict[str, Any]:
        scopes = zip(self._sums.tolist(), self._counts.tolist(), strict=True)
        means = [[rate(total, count) for total in sums] for sums, count in scopes]
        every, first = (dict(zip(NAMES, values, strict=True)) for values in means)
        first["acceptance"] = rate(self._accepted_first, int(self._counts[1]))
        return {
            **every,
            "ratio": every["sum_min"] / every["sum_prod"] if every["sum_prod"] else math.nan,
            "first_position": first,
            "distortion_lower_bound": self._lower_bound(first),
        }

    def _lower_bound(self, first: dict[str, float]) -> float | None:
        """Acceptance of first draft tokens beyond sum_min, which no lossless rule can exceed there."""
        if self._setting.rule.preserves_target:
            return None
        return max(0.0, first["acceptance"] - first["sum_min"])
