"""Sweeps through joblib, Ray and Optuna, for real: what launched a job makes no difference to its record."""

import json
import os
import re
import shlex
import signal
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from sweeping import JOBLIB, LIMIT_S, RAY, REPOSITORY, WAITING, jobs, start, sweep, wait_for

pytestmark = pytest.mark.launchers

LAUNCHERS = pytest.mark.parametrize("launcher", [JOBLIB, RAY], ids=["joblib", "ray"])
TOY = ("pair=iid", "max_tokens=24", "seed=0,1", "acceptance=stochastic,sampler_match,argmax_against_argmax")
"""Six jobs; two are refused when they begin, as the rule changes the distribution."""
SHIPPED = ("pair=shipped", "max_tokens=24", "acceptance=stochastic,gumbel", "seed=0,1", "backend.threads=2")
"""Four jobs on another number of threads than a sweep or a launcher would choose."""

MEDDLING = """
import os
from dataclasses import dataclass
import mlx.core as mx
import structlog
from specfw.errors import FailedCheckError
from specfw.registry import register
from specfw.tasks.generate import Generate

@register("task", "meddles")
@dataclass(frozen=True, kw_only=True)
class Meddles(Generate):
    def run(self, job):
        (job.folder / "process.txt").write_text(str(os.getpid()))
        outcome = super().run(job)
        os.environ["SPECFW_STOCHASTIC_ACCEPT"] = "1"
        structlog.contextvars.bind_contextvars(seed="another")
        structlog.configure(cache_logger_on_first_use=True)
        mx.random.seed(job.config["seed"])
        if job.config["seed"] == 1:
            raise FailedCheckError("this one fails, after everything")
        return outcome
"""


@pytest.fixture(scope="module")
def here(tmp_path_factory):
    """What the basic launcher makes of a sweep, once for all who compare."""
    known = {}

    def of(words):
        if words not in known:
            folder = tmp_path_factory.mktemp("basic") / "sweep"
            status, _ = sweep(folder, *words)
            known[words] = status, jobs(folder)
        return known[words]

    return of


@LAUNCHERS
def test_a_sweep_of_a_toy_pair_is_the_same(launcher, here, tmp_path):
    status, err = sweep(tmp_path / "sweep", *TOY, *launcher)
    found = jobs(tmp_path / "sweep")
    assert (status, found) == here(TOY), err
    assert status == 2
    assert [name for name, job in found.items() if job.error] == ["2", "5"]
    assert all(job.numbers["emitted"] == 24 for job in found.values() if not job.error)
    assert {job.bound[:2] for job in found.values() if not job.error} <= {("openblas", 1), ("reference", 1)}


@LAUNCHERS
def test_a_sweep_of_the_shipped_pair_is_the_same(launcher, here, tmp_path):
    status, err = sweep(tmp_path / "sweep", *SHIPPED, *launcher)
    found = jobs(tmp_path / "sweep")
    assert (status, found) == here(SHIPPED), err
    assert status == 0
    assert {job.bound[:2] for job in found.values()} <= {("openblas", 2), ("reference", 1)}


@LAUNCHERS
def test_a_worker_is_used_again_as_if_it_were_new(launcher, tmp_path):
    (tmp_path / "meddling.py").write_text(MEDDLING)
    words = ("pair=markov", "max_tokens=12", "plugins=[meddling]", "task=meddles", "seed=range(6)")
    status, err = sweep(tmp_path / "sweep", *words, *launcher)
    assert status == 1, err
    workers = [path.read_text() for path in (tmp_path / "sweep").glob("*/process.txt")]
    assert (len(workers), len(set(workers))) in ((6, 1), (6, 2))
    found = jobs(tmp_path / "sweep")
    assert [name for name, job in found.items() if job.error] == ["1"]
    assert {job.numbers["rule"] for job in found.values()} == {"sampler-match"}
    assert [job.numbers["seed"] for job in found.values()] == list(range(6))

    words = ("pair=markov", "max_tokens=12", "plugins=[meddling]", "seed=range(6)")
    sweep(tmp_path / "new", *words)
    new = jobs(tmp_path / "new")
    assert [job.tokens for job in found.values()] == [job.tokens for job in new.values()]
    assert [job.events for job in found.values()] == [job.events for job in new.values()]


@pytest.mark.parametrize(
    ("launcher", "number", "whole_group", "statuses"),
    [
        (JOBLIB, signal.SIGINT, True, (130,)),
        (JOBLIB, signal.SIGTERM, False, (130,)),
        (JOBLIB, signal.SIGKILL, False, (-signal.SIGKILL,)),
        (RAY, signal.SIGINT, True, (130,)),
        # Ray puts a handler of its own in place, which takes down what the process still uses
        (RAY, signal.SIGTERM, False, (1, 130, -signal.SIGABRT)),
    ],
    ids=["joblib-ctrl-c", "joblib-term", "joblib-kill", "ray-ctrl-c", "ray-term"],
)
def test_no_worker_outlives_a_sweep_that_was_ended(launcher, number, whole_group, statuses, tmp_path):
    (tmp_path / "waiting.py").write_text(WAITING)
    folder = tmp_path / "sweep"
    process = start(folder, "pair=iid", "plugins=[waiting]", "task=waits", "seed=range(6)", *launcher)
    wait_for(lambda: len(list(folder.glob("*/began.txt"))) == 2, 60)
    assert len(survivors(tmp_path)) >= 3
    if whole_group:  # as a terminal does
        os.killpg(process.pid, number)
    else:
        process.send_signal(number)
    process.communicate(timeout=30)
    assert process.returncode in statuses
    wait_for(lambda: not survivors(tmp_path), 30)
    assert len(list(folder.glob("*/began.txt"))) == 2


def test_a_worker_that_is_killed_is_one_sentence(tmp_path):
    (tmp_path / "waiting.py").write_text(WAITING)
    folder = tmp_path / "sweep"
    process = start(folder, "pair=iid", "plugins=[waiting]", "task=waits", "seed=range(3)", *JOBLIB)
    wait_for(lambda: sum(bool(path.read_text()) for path in folder.glob("*/began.txt")) == 2, 60)
    os.kill(int((folder / "0" / "began.txt").read_text()), signal.SIGKILL)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 75
    assert "a worker ended before its job did, finished jobs have their records: " in err
    assert "Traceback" not in err
    wait_for(lambda: not survivors(tmp_path), 30)


def survivors(place):
    """Processes that were started for the test which writes to `place`."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if f"SPECFW_OUTPUTS={place}".encode() in (process / "environ").read_bytes():
                found.append(process.name)
        except OSError:
            continue
    return found


def test_a_worker_that_is_ended_ends_its_job_alone(tmp_path):
    (tmp_path / "waiting.py").write_text(WAITING)
    folder = tmp_path / "sweep"
    words = ("pair=iid", "max_tokens=5", "plugins=[waiting]", "task=waits", "task.seconds=2", "seed=range(3)")
    process = start(folder, *words, *JOBLIB)
    wait_for(lambda: sum(bool(path.read_text()) for path in folder.glob("*/began.txt")) == 2, 60)
    os.kill(int((folder / "0" / "began.txt").read_text()), signal.SIGTERM)
    process.communicate(timeout=60)
    assert process.returncode == 130
    found = jobs(folder)
    assert found["0"].error == "interrupted\n"
    assert [found[name].numbers["emitted"] for name in ("1", "2")] == [5, 5]


# --- what the page says -----------------------------------------------------------------------------------------

ELSEWHERE = (
    "'seed=range(12)'",  # minutes
    "python -m pip install",
    "hydra/launcher=submitit_slurm",  # test_slurm does
    "tests/slurm_machine.py",  # test_slurm does
    "hydra/launcher=ray_cluster",  # needs a cluster that runs
)
SHORTER = {"python -m specfw experiment=tune": "max_tokens=20 num_samples=1 hydra.sweeper.n_trials=2"}
COMMANDS = [
    line
    for block in re.findall(r"```bash\n(.*?)```", (REPOSITORY / "docs" / "launchers.md").read_text(), re.DOTALL)
    for line in block.splitlines()
    if not any(words in line for words in ELSEWHERE)
]


def test_what_the_page_says_can_be_done(tmp_path):
    assert len(COMMANDS) == 6
    for line in COMMANDS:
        command = f"{line} {SHORTER.get(line, '')}".replace("python", shlex.quote(sys.executable), 1)
        environment = {name: value for name, value in os.environ.items() if not name.startswith("SPECFW_")}
        environment["PYTHONPATH"] = str(REPOSITORY)
        done = subprocess.run(
            ["bash", "-c", command],
            env=environment,
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=LIMIT_S,
            check=False,
        )
        assert done.returncode == 0, f"{line}\n{done.stderr}"
    assert len(list((tmp_path / "outputs" / "multirun").glob("*/*"))) == len(COMMANDS)


# --- Optuna -----------------------------------------------------------------------------------------------------

SEARCH = ("pair=iid", "max_tokens=24", "experiment=tune", "num_samples=1", "hydra.sweeper.n_trials=3")

DOUBTFUL = """
from dataclasses import dataclass, replace
from specfw.registry import register
from specfw.tasks.generate import Generate

@register("task", "doubtful")
@dataclass(frozen=True, kw_only=True)
class Doubtful(Generate):
    def run(self, job):
        outcome = super().run(job)
        return replace(outcome, verdict="failed") if job.config["controller"]["num_draft_tokens"] == 6 else outcome
"""


def trials(database):
    with sqlite3.connect(database) as connection:
        asked = "SELECT state, value FROM trials LEFT JOIN trial_values USING (trial_id) ORDER BY number"
        return connection.execute(asked).fetchall()


def objectives(folder, *path):
    found = []
    for summary in sorted(folder.glob("*/summary.json"), key=lambda summary: int(summary.parent.name)):
        number = json.loads(summary.read_text())
        for key in path:
            number = number[key]
        found.append(number)
    return found


def test_a_study_goes_on_in_another_process(tmp_path):
    database = tmp_path / "study.db"
    for name, seed in (("first", 0), ("second", 1)):
        words = (f"hydra.sweeper.storage='sqlite:///{database}'", f"hydra.sweeper.sampler.seed={seed}")
        status, err = sweep(tmp_path / name, *SEARCH, *words)
        assert status == 0, err
    returned = [
        speed
        for name in ("first", "second")
        for speed in objectives(tmp_path / name, "diagnostics", "throughput", "tokens_per_s")
    ]
    assert trials(database) == [("COMPLETE", pytest.approx(speed)) for speed in returned]
    assert len(returned) == 6
    best = yaml.safe_load((tmp_path / "second" / "optimization_results.yaml").read_text())
    assert best["best_value"] == pytest.approx(max(returned))
    assert set(best["best_params"]) == {"acceptance", "controller", "controller.num_draft_tokens"}


def test_a_trial_whose_check_fails_cannot_win(tmp_path):
    (tmp_path / "doubting.py").write_text(DOUBTFUL)
    database = tmp_path / "study.db"
    words = (
        "pair=iid",
        "max_tokens=60",
        "plugins=[doubting]",
        "task=doubtful",
        "acceptance=stochastic",
        "task.objective=acceptance_rate",
        "controller.num_draft_tokens=4,6",
        "hydra/sweeper=optuna",
        "hydra/sweeper/sampler=random",
        "hydra.sweeper.sampler.seed=0",
        "hydra.sweeper.n_trials=5",
        "hydra.sweeper.direction=maximize",
        "hydra.sweeper.n_jobs=1",
        f"hydra.sweeper.storage='sqlite:///{database}'",
    )
    status, err = sweep(tmp_path / "tolerant", *words, "hydra.sweeper.max_failure_rate=1")
    assert status == 1, err
    states = [state for state, _ in trials(database)]
    assert sorted(set(states)) == ["COMPLETE", "FAIL"]
    failed = list((tmp_path / "tolerant").glob("*/error.txt"))
    assert len(failed) == states.count("FAIL")
    assert all("a check of the run failed" in path.read_text() for path in failed)
    best = yaml.safe_load((tmp_path / "tolerant" / "optimization_results.yaml").read_text())
    assert best["best_params"]["controller.num_draft_tokens"] == 4
    status, err = sweep(tmp_path / "strict", *(word for word in words if "storage" not in word))
    assert status == 1, err


def test_the_search_that_ships_runs_through_joblib(tmp_path):
    status, err = sweep(tmp_path / "sweep", *SEARCH, "hydra.sweeper.n_jobs=2", *JOBLIB)
    assert status == 0, err
    speeds = objectives(tmp_path / "sweep", "diagnostics", "throughput", "tokens_per_s")
    assert len(speeds) == 3
    best = yaml.safe_load((tmp_path / "sweep" / "optimization_results.yaml").read_text())
    assert best["best_value"] == pytest.approx(max(speeds))
