"""What is refused before a sweep goes to a launcher, and what a job is in a worker."""

import os
import pickle
import subprocess
import sys
from pathlib import Path

import specfw
from specfw import registry
from specfw.__main__ import main
from specfw.backend import bind
from specfw.config import launching, workers
from specfw.config.composing import composed, conf_dir, prepare, session
from specfw.config.failures import JobError
from specfw.config.overrides import read
from specfw.config.running import CommandLineJob
from specfw.config.workers import origin, settle
from specfw.tasks.generate import OBJECTIVES

import pytest
from hydra.core.config_store import ConfigStore
from hydra.core.hydra_config import HydraConfig
from hydra.core.plugins import Plugins

TOY = ["pair=iid", "max_tokens=12", "acceptance=stochastic"]
VARIABLE = "SPECFW_STOCHASTIC_ACCEPT"
EXTRAS = [(group, name, extra) for group, names in launching.EXTRAS.items() for name, extra in names.items()]


@pytest.fixture(autouse=True)
def outputs(tmp_path, monkeypatch):
    monkeypatch.setenv("SPECFW_OUTPUTS", str(tmp_path / "outputs"))
    return tmp_path / "outputs"


@pytest.fixture
def bare(monkeypatch):
    """No extra is installed."""
    Plugins.instance()  # finds what is
    hydra = ConfigStore.instance().repo["hydra"]
    for group in ("launcher", "sweeper"):
        monkeypatch.setitem(hydra, group, {"basic.yaml": hydra[group]["basic.yaml"]})


@pytest.fixture
def searching(bare):
    """A sweeper by the name of the one that searches."""
    node = {"_target_": "hydra._internal.core_plugins.basic_sweeper.BasicSweeper", "direction": "minimize"}
    ConfigStore.instance().store(group="hydra/sweeper", name="optuna", node=node)


# --- what is refused --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("group", "name", "extra"), EXTRAS)
def test_an_extra_that_is_missing_is_named_with_the_command_that_brings_it(group, name, extra, bare, outputs, capsys):
    assert main(["-m", *TOY, f"{group}={name}", "seed=0,1"]) == 2
    err = capsys.readouterr().err
    assert err.count("\n") == 1
    assert f"{group} must be one of: basic; got '{name}', which is not installed" in err
    assert f"python -m pip install -e '.[{extra}]'" in err
    assert not outputs.exists()


def test_an_experiment_that_needs_an_extra_names_it(bare, outputs, capsys):
    assert main(["experiment=tune"]) == 2
    assert "python -m pip install 'specfw[optuna]'" in capsys.readouterr().err
    assert not outputs.exists()


def test_a_launcher_nobody_knows_is_no_extra(capsys):
    assert main(["-m", *TOY, "hydra/launcher=nope", "seed=0,1"]) == 2
    err = capsys.readouterr().err
    assert "hydra/launcher must be one of: " in err
    assert "pip" not in err


def test_every_extra_is_in_the_project_and_has_a_preset_or_a_plugin():
    project = (Path(specfw.__file__).parents[1] / "pyproject.toml").read_text()
    for extra in {extra for _, _, extra in EXTRAS}:
        assert f"\n{extra} = [" in project
    presets = {path.stem for path in (conf_dir() / "hydra" / "launcher").glob("*.yaml")}
    assert presets == {"ray_local", "ray_cluster"}
    assert presets <= set(launching.EXTRAS[launching.LAUNCHER])


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["hydra/sweeper=optuna"], "hydra/sweeper must be basic without --multirun, got 'optuna'"),
        (["-m", "hydra/sweeper=optuna"], "task.objective must be one of: tokens_per_s, "),
        (["-m", "hydra/sweeper=optuna", "task=verify"], "task.objective must be one of: tokens_per_s, "),
        (
            ["-m", "hydra/sweeper=optuna", "task.objective=acceptance_rate"],
            "hydra.sweeper.direction must be maximize for acceptance_rate, got 'minimize'",
        ),
    ],
    ids=" ".join,
)
def test_a_search_says_what_for(words, sentence, searching, outputs, capsys):
    assert main([*TOY, *words]) == 2
    err = capsys.readouterr().err
    assert (err.count("\n"), sentence in err) == (1, True)
    assert not outputs.exists()


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["task.objective=speed"], "task.objective must be null or one of: tokens_per_s, "),
        (
            ["task.objective=tokens_per_s", "diagnostics=none"],
            "task.objective=tokens_per_s needs diagnostics.throughput.enabled to be true",
        ),
    ],
)
def test_an_objective_is_a_number_that_the_run_has(words, sentence, capsys):
    assert main([*TOY, *words]) == 2
    assert sentence in capsys.readouterr().err


# --- what a job returns -----------------------------------------------------------------------------------------


def job(lines):
    words = read(lines)
    with session() as hydra:
        return CommandLineJob(words, sweep=True), composed(hydra, prepare(hydra, words), words)


@pytest.mark.parametrize("objective", OBJECTIVES)
def test_a_job_returns_what_was_asked_for(objective, tmp_path):
    work, tree = job([*TOY, f"task.objective={objective}"])
    returned = work._run(tree, tmp_path)
    summary = specfw.run(specfw.compose([*TOY, f"task.objective={objective}"]))
    assert isinstance(returned, float)
    assert returned > 0
    if objective != "tokens_per_s":
        assert returned == summary.numbers[objective]


def test_a_job_without_an_objective_returns_nothing(tmp_path):
    work, tree = job(TOY)
    assert work._run(tree, tmp_path) is None
    assert registry.build("task", {"name": "verify"}).objective_of(None) is None


# --- a job in a worker ------------------------------------------------------------------------------------------


def test_a_job_is_sent_with_what_the_command_began_with(monkeypatch):
    monkeypatch.setenv(VARIABLE, "on")
    work = pickle.loads(pickle.dumps(CommandLineJob(read(TOY), sweep=True)))  # noqa: S301
    bound = bind()
    assert work.began == (bound.blas, bound.threads, "on", os.getpid())


@pytest.mark.parametrize("change", [{"blas": "openblas"}, {"threads": 7}])
def test_a_worker_that_multiplies_otherwise_refuses(change, tmp_path, monkeypatch):
    work, tree = job(TOY)
    other = CommandLineJob(work.words, work.sweep, origin()._replace(**change))
    monkeypatch.setattr(HydraConfig.instance(), "cfg", tree)
    tree.hydra.runtime.output_dir = str(tmp_path)
    with pytest.raises(JobError) as failure:
        other(tree)
    assert failure.value.status == 2
    written = (tmp_path / "error.txt").read_text()
    assert written.startswith("a worker must multiply as the command does (blas=")
    assert "SPECFW_BLAS_THREADS=" in written
    assert not (tmp_path / "summary.json").exists()


@pytest.mark.parametrize(("began", "left"), [(None, "1"), ("1", None), ("off", "1")])
def test_a_workers_variable_is_the_commands(began, left, monkeypatch):
    monkeypatch.setenv(VARIABLE, left or "")
    settle(origin()._replace(stochastic_accept=began))
    assert os.environ.get(VARIABLE) == began


def test_an_interrupt_ends_a_sweep_here_and_one_job_in_a_worker(tmp_path, monkeypatch):
    def interrupted(*_):
        raise KeyboardInterrupt

    work, tree = job(TOY)
    monkeypatch.setattr(CommandLineJob, "_run", interrupted)
    monkeypatch.setattr(HydraConfig.instance(), "cfg", tree)
    tree.hydra.runtime.output_dir = str(tmp_path)
    with pytest.raises(KeyboardInterrupt):
        work(tree)
    assert not (tmp_path / "error.txt").exists()
    with pytest.raises(JobError) as failure:
        CommandLineJob(work.words, work.sweep, work.began._replace(process=-1))(tree)
    assert failure.value.status == 130
    assert (tmp_path / "error.txt").read_text() == "interrupted\n"


def test_a_worker_ends_with_the_process_that_started_it(monkeypatch):
    code = (
        "import os, sys, time\n"
        "from specfw.config.workers import _end_with\n"
        "if os.fork():\n    time.sleep(1)\n    os._exit(0)\n"
        "_end_with(os.getppid())\nprint('child', flush=True)\ntime.sleep(60)\n"
    )
    paths = str(Path(specfw.__file__).parents[1])
    # the pipe closes when the last process that holds it has ended
    done = subprocess.run(
        [sys.executable, "-c", code],
        env=os.environ | {"PYTHONPATH": paths},
        capture_output=True,
        text=True,
        timeout=30,
        check=True,
    )
    assert done.stdout == "child\n"


def test_a_process_that_was_not_started_by_the_command_is_left_alone(monkeypatch):
    followed = []
    monkeypatch.setattr(workers, "_end_with", followed.append)
    settle(origin())
    settle(origin()._replace(process=-1))
    assert followed == []
    settle(origin()._replace(process=os.getppid()))
    assert followed == [os.getppid()]
