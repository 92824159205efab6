"""Sweeps in processes of their own, and what their records say whatever launched them."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

import specfw

REPOSITORY = Path(specfw.__file__).parents[1]
LIMIT_S = 240
MEASURED = re.compile(r"_s$|_bytes$|_per_s$")
"""What a clock or an allocator says, and no seed fixes."""

TIMED = ("prefill",)
"""Events that a clock brings."""

JOBLIB = ("hydra/launcher=joblib", "hydra.launcher.n_jobs=2")
RAY = ("hydra/launcher=ray_local", "+hydra.launcher.ray.init.num_cpus=2")


WAITING = """
import os
import time
from dataclasses import dataclass
from specfw.registry import register
from specfw.tasks.generate import Generate

@register("task", "waits")
@dataclass(frozen=True, kw_only=True)
class Waits(Generate):
    seconds: float = 100

    def run(self, job):
        (job.folder / "began.txt").write_text(str(os.getpid()))
        time.sleep(self.seconds)
        return super().run(job)
"""
"""A plugin whose jobs take their time."""


class Job(NamedTuple):
    """What is the same, bit for bit, at equal BLAS, threads and processor."""

    tokens: str | None
    numbers: dict | None
    events: list[str] | None
    bound: tuple | None
    error: str | None


def start(folder: Path, *words: str, **variables: str) -> subprocess.Popen:
    """A sweep written to `folder`, in a process group of its own."""
    # a clean slate: what the tests' own process bound is not handed on
    inherited = {name: value for name, value in os.environ.items() if not name.startswith(("SPECFW_", "OPENBLAS_"))}
    paths = os.pathsep.join([str(REPOSITORY), str(folder.parent)])
    more = {"PYTHONPATH": paths, "RAY_AUTH_MODE": "disabled", "SPECFW_OUTPUTS": str(folder.parent / "outputs")}
    command = [sys.executable, "-m", "specfw", "--multirun", f"hydra.sweep.dir='{folder}'", *words]
    pipe = subprocess.PIPE
    return subprocess.Popen(
        command,
        env=inherited | more | variables,
        cwd=folder.parent,
        stdout=pipe,
        stderr=pipe,
        text=True,
        start_new_session=True,
    )


def sweep(folder: Path, *words: str, **variables: str) -> tuple[int, str]:
    """Run a sweep to its end; its exit status, and what it said on stderr."""
    process = start(folder, *words, **variables)
    try:
        _, err = process.communicate(timeout=LIMIT_S)
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
    return process.returncode, err


def jobs(folder: Path) -> dict[str, Job]:
    """Every job of a sweep, by the name of its folder."""
    return {path.name: _job(path) for path in sorted(folder.iterdir()) if path.is_dir() and path.name.isdecimal()}


def _job(folder: Path) -> Job:
    summary = _text(folder / "summary.json")
    events = [json.loads(line) for line in (_text(folder / "events.jsonl") or "").splitlines()]
    bound = next(
        ((one["blas"], one["threads"], one["digest"]) for one in events if one["event"] == "run_started"), None
    )
    return Job(
        tokens=_text(folder / "tokens.jsonl"),
        numbers=summary and unmeasured(json.loads(summary)),
        events=[one["event"] for one in events if one["event"] not in TIMED] or None,
        bound=bound,
        error=_text(folder / "error.txt"),
    )


def unmeasured(node):
    """`node` without what a clock or an allocator says."""
    if isinstance(node, dict):
        return {key: unmeasured(item) for key, item in node.items() if not MEASURED.search(key)}
    return [unmeasured(item) for item in node] if isinstance(node, list) else node


def wait_for(condition, seconds: float) -> None:
    """Until `condition` holds."""
    until = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < until, "not in time"
        time.sleep(0.1)


def _text(path: Path) -> str | None:
    return path.read_text() if path.exists() else None
