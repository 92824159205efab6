"""Sweeps through Slurm, for real: a cluster of this one machine, set up and torn down here."""

import pytest
from slurm_machine import LIMITS, SWEEP, machine
from sweeping import jobs, sweep

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
