"""A sweep of 60 jobs, killed without warning at a random moment and gone on with: the table is that of a quiet one."""

import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import specfw

import pytest

REPOSITORY = Path(specfw.__file__).parents[1]
JOBS = 60
WORDS = [
    "-m",
    "pair=iid",
    "max_tokens=8",
    "acceptance=stochastic,sampler_match",
    "sampler.temperature.value=0.7,1.0,1.5",
    f"seed=range({JOBS // 6})",
]
ROUNDS = 5
ONE_JOB_S = 0.2

pytestmark = pytest.mark.slow


def start(outputs, *words):
    with said(outputs).open("w") as err:  # a pipe that nobody reads would stop the sweep once it is full
        return subprocess.Popen(
            [sys.executable, "-m", "specfw", *words],
            env=os.environ | {"PYTHONPATH": str(REPOSITORY), "SPECFW_OUTPUTS": str(outputs)},
            stdout=subprocess.DEVNULL,
            stderr=err,
            start_new_session=True,
        )


def said(outputs):
    return outputs / "stderr.txt"


def sweep(outputs):
    return next(outputs.glob("multirun/2*/*"), None)


def table(folder):
    """All numbers of every job but seconds and what depends on them, its digest and its tokens."""
    rows = {}
    for path in folder.rglob("summary.json"):
        numbers = json.loads(path.read_text())
        del numbers["prefill_s"], numbers["diagnostics"]["throughput"]
        job = json.loads((path.parent / "job.json").read_text())
        assert job["digest"] == numbers["digest"]
        rows[str(path.parent.relative_to(folder))] = numbers, (path.parent / "tokens.jsonl").read_bytes()
    return rows


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    outputs = tmp_path_factory.mktemp("undisturbed")
    assert start(outputs, *WORDS).wait(timeout=300) == 0, said(outputs).read_text()
    rows = table(sweep(outputs))
    assert len(rows) == JOBS
    assert len({numbers["digest"] for numbers, _ in rows.values()}) == JOBS
    return rows


@pytest.mark.parametrize("number", range(ROUNDS))
def test_a_killed_sweep_comes_to_the_same_table(number, undisturbed, tmp_path):
    moments = random.Random(number)
    job = moments.randrange(JOBS * number // ROUNDS, JOBS * (number + 1) // ROUNDS)
    child = start(tmp_path, *WORDS)
    given_up = time.monotonic() + 300
    while (folder := sweep(tmp_path)) is None or not (folder / str(job)).exists():
        assert child.poll() is None
        assert time.monotonic() < given_up
        time.sleep(0.002)
    time.sleep(moments.uniform(0, ONE_JOB_S))  # anywhere in that job, or in the next
    os.killpg(child.pid, signal.SIGKILL)
    assert child.wait(timeout=60) == -signal.SIGKILL
    finished = {path.parent.name: path.stat().st_mtime_ns for path in folder.rglob("job.json")}
    assert job <= len(finished) < JOBS

    assert start(tmp_path, f"task.resume='{folder}'").wait(timeout=300) == 0, said(tmp_path).read_text()
    assert f"specfw: task.resume: {len(finished)} of {JOBS} jobs have finished before\n" in said(tmp_path).read_text()
    assert table(folder) == undisturbed
    assert not list(folder.rglob(".*.part"))
    again = {path.parent.name: path.stat().st_mtime_ns for path in folder.rglob("job.json")}
    assert {name: again[name] for name in finished} == finished
