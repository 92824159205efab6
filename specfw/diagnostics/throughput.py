"""Tokens per second of the rounds, and the memory they peaked at."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, final

from specfw.counting import rate
from specfw.diagnostics.base import Diagnostic, Floats, Observer, Setting
from specfw.registry import register
from specfw.types import Outcome

import mlx.core as mx
import numpy as np


@final
@register("diagnostic")
@dataclass(frozen=True, kw_only=True)
class Throughput(Diagnostic):
    """Seconds of whole rounds.

    Attributes:
        split: time draft, verify and decide apart; costs two more evaluations a round and is counted.
    """

    split: bool = False

    def open(self, setting: Setting) -> Observer:
        mx.reset_peak_memory()
        return _Clock()


@final
class _Clock(Observer):
    def __init__(self) -> None:
        self._seconds = 0.0
        self._emitted = 0
        self._phases = np.zeros(3)
        self._split_rounds = 0

    def observe(self, outcome: Outcome, trace: Sequence[Floats]) -> None:
        self._seconds += outcome.seconds
        self._emitted += int(outcome.emitted.sum())
        if outcome.phases:
            self._phases += outcome.phases
            self._split_rounds += 1

    def numbers(self) -> dict[str, Any]:
        phases = dict(zip(("draft_s", "verify_s", "decide_s"), self._phases.tolist(), strict=True))
        return {
            "decode_s": self._seconds,
            "tokens_per_s": rate(self._emitted, self._seconds),
            "peak_memory_bytes": mx.get_peak_memory(),
            "phases": phases if self._split_rounds else None,
        }
