"""Sweeps through Slurm, for real: a cluster of this one machine, set up and torn down here."""

import os
import subprocess

import pytest
from slurm_machine import LIMITS, SWEEP, machine
from sweeping import WAITING, jobs, start, sweep, wait_for

pytestmark = pytest.mark.slurm


@pytest.fixture(scope="module")
def cluster():
    with machine() as variables:
        yield variables


@pytest.mark.parametrize(
    ("words", "status", "failed"),
    [
        (("pair=iid", "max_tokens=24", "acceptance=stochastic,argmax_against_argmax", "seed=0,1"), 2, ["2", "3"]),
        (("pair=shipped", "max_tokens=24", "acceptance=stochastic", "seed=0,1"), 0, []),
    ],
    ids=["toy", "shipped"],
)
def test_a_sweep_is_the_same(words, status, failed, cluster, tmp_path):
    there, err = sweep(tmp_path / "there", *words, *SWEEP, *LIMITS, **cluster)
    here, _ = sweep(tmp_path / "here", *words)
    assert (there, jobs(tmp_path / "there")) == (here, jobs(tmp_path / "here")), err
    assert there == status
    assert [name for name, job in jobs(tmp_path / "there").items() if job.error] == failed
    assert len(jobs(tmp_path / "there")) == len(failed) + 2
    assert all(job.numbers["emitted"] == 24 for job in jobs(tmp_path / "there").values() if not job.error)


def test_a_job_that_is_cancelled_says_so_and_the_others_finish(cluster, tmp_path):
    (tmp_path / "waiting.py").write_text(WAITING)
    folder = tmp_path / "sweep"
    words = ("pair=iid", "max_tokens=5", "plugins=[waiting]", "task=waits", "task.seconds=4", "seed=0,1")
    process = start(folder, *words, *SWEEP, *LIMITS, **cluster)
    wait_for((folder / "0" / "began.txt").exists, 60)
    asked = ["squeue", "--noheader", "--states=all", "--format=%F"]
    number = subprocess.run(asked, env=os.environ | cluster, capture_output=True, text=True, check=True).stdout.split()
    subprocess.run(["scancel", f"{max(map(int, number))}_0"], env=os.environ | cluster, check=True)
    _, err = process.communicate(timeout=120)
    assert process.returncode == 130, err
    found = jobs(folder)
    assert found["0"].error == "interrupted\n"
    assert (found["1"].error, found["1"].numbers["emitted"]) == (None, 5)
