"""Seconds of the parts of a round."""

import time

import mlx.core as mx
import numpy as np


class Phases:
    """Seconds of draft, verify and decide, each ended by an evaluation of its own when asked for."""

    def __init__(self, split: bool) -> None:
        self._marks = [time.perf_counter()] if split else []
        self.syncs = 0

    def mark(self, *arrays: mx.array) -> None:
        if self._marks:
            mx.eval(arrays)
            self.syncs += bool(arrays)
            self._marks.append(time.perf_counter())

    def seconds(self) -> tuple[float, float, float] | None:
        """The three phases, or None when they were not timed apart."""
        if not self._marks:
            return None
        draft, verify, decide = np.diff(self._marks).tolist()
        return draft, verify, decide
