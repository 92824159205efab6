"""What a job of a sweep costs beside its own generation, for docs/sweeps.md.

    python docs/sweep_overhead.py <jobs> [words]

A sweep of so many jobs, an even number, under the basic launcher in this process, after a sweep of two that is not
counted. Generation is decoding, the prompt included; all the rest is overhead: composing, checking, opening models,
the record, the tables, Hydra. Time on the clock is longer where other programs take the processor, so the processor's
own is shown too.
"""
# ruff: noqa: INP001 # a script beside the pages it serves

import os
import sys
import tempfile
import time
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

from specfw.__main__ import main
from specfw.experiment import _Run


class Clock:
    """Seconds on the clock and of the processor, spent in what it goes along with."""

    def __init__(self) -> None:
        """Nothing spent."""
        self.spent = [0.0, 0.0]

    def along(self, function: Any) -> Any:
        """`function`, its time added."""

        def timed(*arguments: Any) -> Any:
            before = time.perf_counter(), time.process_time()
            try:
                return function(*arguments)
            finally:
                after = time.perf_counter(), time.process_time()
                self.spent = [sum(parts) for parts in zip(self.spent, after, map(float.__neg__, before), strict=True)]

        return timed


def sweep(jobs: int, words: list[str]) -> int:
    """Run one, and say nothing of it on stdout."""
    with tempfile.TemporaryDirectory() as outputs, Path(os.devnull).open("w") as nowhere, redirect_stdout(nowhere):
        rules = "acceptance=stochastic,sampler_match"
        return main(["-m", f"hydra.sweep.dir='{outputs}'", rules, f"seed=range({jobs // 2})", *words])


if __name__ == "__main__":
    jobs, words = int(sys.argv[1]), sys.argv[2:]
    whole, generation, decode = Clock(), Clock(), _Run.decode
    status = sweep(2, words)
    _Run.decode = generation.along(decode)  # type: ignore[method-assign] # put back below
    try:
        status = whole.along(sweep)(jobs, words) or status
    finally:
        _Run.decode = decode  # type: ignore[method-assign] # as above
    clock, processor = ((all_ - own) / jobs for all_, own in zip(whole.spent, generation.spent, strict=True))
    sys.stdout.write(f"{clock:.3f} s a job, {processor:.3f} s of the processor, beside generation\n")
    if status:
        sys.exit(status)
