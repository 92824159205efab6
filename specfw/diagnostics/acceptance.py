"""Acceptance by place in the block: tested, proposed and accepted draft tokens at each."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, final

from specfw.counting import rate, tested
from specfw.diagnostics.base import Diagnostic, Floats, Observer, Setting
from specfw.registry import register
from specfw.types import Ints, Outcome

import numpy as np


@final
@register("diagnostic")
@dataclass(frozen=True, kw_only=True)
class Acceptance(Diagnostic):
    """Counts that only the host needs; nothing enters the graph."""

    def open(self, setting: Setting) -> Observer:
        return _ByPlace(setting)


@final
class _ByPlace(Observer):
    def __init__(self, setting: Setting) -> None:
        self._stops = setting.rule.stops_at_rejection
        self._counts = np.zeros((3, 0), dtype=np.int64)
        self._lengths = np.zeros(0, dtype=np.int64)

    def observe(self, outcome: Outcome, trace: Sequence[Floats]) -> None:
        width = outcome.drafts.shape[1]
        if width >= len(self._lengths):
            more = width + 1 - len(self._lengths)
            self._counts = np.pad(self._counts, [(0, 0), (0, more)])
            self._lengths = np.pad(self._lengths, (0, more))
        limits = (outcome.proposed, tested(outcome, self._stops), outcome.accepted)
        for counts, limit in zip(self._counts, limits, strict=True):
            counts[:width] += (np.arange(width) < limit[:, None]).sum(axis=0)
        drafted = outcome.active & (outcome.proposed > 0)
        self._lengths += np.bincount(outcome.accepted[drafted], minlength=len(self._lengths))

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
        }


def _trimmed(counts: Ints) -> list[int]:
    return [int(count) for count in np.trim_zeros(counts, "b")]
