import json
import os
import re
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import specfw
from specfw import __main__ as command
from specfw import backend, registry
from specfw.__main__ import main
from specfw.backend import Backend
from specfw.config.failures import interruptible
from specfw.recording import Record

import pytest
import yaml

TOY = ["pair=iid", "max_tokens=6"]
REPOSITORY = Path(specfw.__file__).parents[1]
ON_LINUX = pytest.mark.skipif(sys.platform != "linux", reason="there is nothing to bind elsewhere")
ASK = "from specfw.backend import bound; print(bound().blas, bound().reason)"

TASKS = """
import time
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from specfw.errors import FailedCheckError
from specfw.registry import register
from specfw.tasks.base import Task

@register("task", "does")
@dataclass(frozen=True, kw_only=True)
class Does(Task):
    what: str

    def run(self, job):
        (job.folder / "job.txt").write_text(repr(job))
        match self.what:
            case "fail":
                return SimpleNamespace(passed=False)
            case "fail on the way":
                raise FailedCheckError("row 3 is no distribution")
            case "refuse":
                raise ValueError("target.path must be a folder, got 'x'")
            case "break":
                raise RuntimeError("a defect")
            case "interrupt":
                raise KeyboardInterrupt
            case "wait":
                try:
                    print("waiting", flush=True)
                    time.sleep(60)
                finally:
                    (job.folder / "recorded.txt").write_text("whole")
        print(job.config["seed"])
        return SimpleNamespace(passed=True)
"""


@pytest.fixture(autouse=True)
def outputs(tmp_path, monkeypatch):
    folder = tmp_path / "outputs of a test"
    monkeypatch.setenv("SPECFW_OUTPUTS", str(folder))
    return folder


@pytest.fixture
def does(tmp_path, monkeypatch):
    """Overrides that run a task which does one thing."""
    monkeypatch.setattr(registry, "_components", {group: dict(known) for group, known in registry._components.items()})
    (tmp_path / "tasks_of_a_test.py").write_text(TASKS)
    monkeypatch.syspath_prepend(tmp_path)
    yield lambda what: [*TOY, "plugins=[tasks_of_a_test]", "task=does", f"task.what='{what}'"]
    sys.modules.pop("tasks_of_a_test", None)


@pytest.fixture
def process(tmp_path):
    """Starts the command in a process of its own, away from the checkout."""

    def start(*words, **variables):
        paths = os.pathsep.join([str(REPOSITORY), str(tmp_path)])
        environment = os.environ | {"PYTHONPATH": paths} | variables
        arguments = [sys.executable, "-m", "specfw", *words]
        pipe = subprocess.PIPE
        return subprocess.Popen(arguments, env=environment, cwd=tmp_path, stdout=pipe, stderr=pipe, text=True)

    return start


def only(folder):
    (run,) = folder.glob("2*/*")
    return run


# --- a run ------------------------------------------------------------------------------------------------------


def test_a_run_leaves_its_record_in_a_folder_of_its_own(outputs, capsys):
    assert main([*TOY, "seed=3"]) == 0
    out = capsys.readouterr().out
    run = only(outputs)
    assert {"config.yaml", "events.jsonl", "summary.json", ".hydra"} <= {path.name for path in run.iterdir()}
    assert yaml.safe_load((run / "config.yaml").read_text())["seed"] == 3
    assert re.fullmatch(r"\d\d-\d\d-\d\d-\d{6}", run.name)
    assert not list(run.glob("*.log"))
    assert json.loads((run / "summary.json").read_text())["line"] in out


def test_a_folder_holds_one_run(outputs):
    words = [*TOY, f"hydra.run.dir='{outputs}'"]
    assert main(words) == 0
    assert main([*words, "diagnostics=none"]) == 0
    assert not (outputs / "tokens.jsonl").exists()
    record = Record(outputs, quiet=True)
    assert not (outputs / "events.jsonl").exists()
    assert not (outputs / "summary.json").exists()
    record.close({})


def test_python_does_what_the_command_does(outputs, capsys):
    assert main([*TOY, "acceptance=stochastic", "seed=3"]) == 0
    out = capsys.readouterr().out
    summary = specfw.run(specfw.compose([*TOY, "acceptance=stochastic", "seed=3"]))
    assert summary.passed
    assert summary.outputs[0].text == out.splitlines()[0]
    assert summary.line == out.splitlines()[1]
    first, second = sorted(outputs.glob("2*/*"))
    assert (first / "config.yaml").read_text() == (second / "config.yaml").read_text()
    assert summary.folder == second


def test_a_callers_rule_beats_the_configuration():
    summary = specfw.run(specfw.compose([*TOY, "acceptance=stochastic"]), acceptance="sampler_match")
    assert (summary.rule, summary.decided_by) == ("sampler-match", "argument")


def test_a_replay_says_the_same_in_a_new_folder(outputs, capsys):
    assert main([*TOY, "acceptance=stochastic", "seed=4"]) == 0
    first, said = only(outputs), capsys.readouterr().out
    assert main([f"replay='{first}'"]) == 0
    assert capsys.readouterr().out == said
    (second,) = set(outputs.glob("2*/*")) - {first}
    assert (first / "config.yaml").read_text() == (second / "config.yaml").read_text()


# --- exit statuses ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("what", "status", "sentence"),
    [
        ("pass", 0, None),
        ("fail", 1, "a check of the run failed, its record is"),
        ("fail on the way", 1, "row 3 is no distribution"),
        ("refuse", 2, "target.path must be a folder, got 'x'"),
        ("break", 70, "Traceback"),
        ("interrupt", 130, "interrupted"),
    ],
)
def test_the_exit_status_says_how_it_went(what, status, sentence, does, outputs, capsys):
    assert main(does(what)) == status
    err = capsys.readouterr().err
    if sentence is None:
        assert err == ""
    else:
        assert err.startswith(f"specfw: {sentence}")
        assert what == "break" or err.count("\n") == 1
    left = list(outputs.rglob("error.txt"))
    assert len(left) == (what not in ("pass", "interrupt"))
    assert all(f"specfw: {path.read_text()}" == err for path in left)


@pytest.mark.parametrize(
    "words",
    [
        ["samplr.temperature.value=1"],
        ["seed=abc"],
        ["acceptance=nope"],
        ["max_tokens=-1"],
        ["sampler.top_p.p=1.5"],
        ["draft_sampler=seed"],
        ["plugins=[nope]"],
        ["replay=/nonexistent"],
        ["prompts.nope=1"],
        ["sampler.order=[temperature,temperature]"],
        ["backend.threads=0"],
        ["--no-such-flag"],
        ["--config-dir=/nonexistent"],
        ["--config-path=/tmp"],
        ["--experimental-rerun=x"],
        ["--config-name=nope"],
        ["seed=1,2"],
        ["-m", "backend.blas=openblas,reference"],
        ["--cfg=job", "seed=abc"],
        ["--help", "seed=abc"],
    ],
    ids=" ".join,
)
def test_bad_input_is_one_sentence_and_leaves_no_folder(words, outputs, capsys):
    assert main([*TOY, *words]) == 2
    out, err = capsys.readouterr()
    assert (out, err.count("\n")) == ("", 1)
    assert err.startswith("specfw: ")
    assert not outputs.exists()


def test_a_place_that_cannot_be_written_is_named(tmp_path, monkeypatch, capsys):
    (tmp_path / "a file").write_text("")
    monkeypatch.setenv("SPECFW_OUTPUTS", str(tmp_path / "a file"))
    assert main(TOY) == 2
    err = capsys.readouterr().err
    assert (err.count("\n"), "a file" in err) == (1, True)


def test_what_hydra_is_told_is_put_back(does, monkeypatch):
    monkeypatch.delenv("HYDRA_FULL_ERROR", raising=False)
    before = list(sys.argv), signal.getsignal(signal.SIGTERM)
    main(does("refuse"))
    assert (sys.argv, signal.getsignal(signal.SIGTERM)) == before
    assert "HYDRA_FULL_ERROR" not in os.environ


def test_a_task_is_given_the_resolved_configuration_and_what_follows(does, outputs):
    assert main([*does("pass"), "sampler.temperature.value=0.5"]) == 0
    told = (only(outputs) / "job.txt").read_text()
    assert told.count("'temperature': {'value': 0.5}") == 3
    assert "'temperature': {'value': '${sampler.temperature.value}'}" in told
    assert "acceptance=None" in told
    assert "plugins" not in told


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_lets_the_record_be_written(number, does, process, outputs):
    child = process(*does("wait"))
    assert child.stdout.readline() == "waiting\n"
    child.send_signal(number)
    _, err = child.communicate(timeout=20)
    assert (child.returncode, err) == (130, "specfw: interrupted\n")
    assert (only(outputs) / "recorded.txt").read_text() == "whole"


def test_a_reader_of_stderr_who_leaves_takes_nothing_along(process, outputs):
    child = process("-m", *TOY, "seed=0,1")
    child.stderr.close()
    out, _ = child.communicate(timeout=20)
    assert (child.returncode, out.count("[Speculative acceptance]")) == (0, 2)
    assert len(list(outputs.rglob("job.json"))) == 2


def test_a_signal_that_was_swallowed_is_an_interrupt():
    with pytest.raises(KeyboardInterrupt), interruptible(), suppress(KeyboardInterrupt):
        signal.raise_signal(signal.SIGTERM)


# --- what only informs ------------------------------------------------------------------------------------------


def test_help_is_short_and_quick(process, capsys):
    started = time.monotonic()
    out, err = process("--help").communicate(timeout=20)
    assert time.monotonic() - started < 5  # about a second on a quiet machine
    assert err == ""
    for word in ("acceptance", "stochastic", "as_target", "seed", "replay=<run folder>", "python -m specfw"):
        assert word in out
    assert len(out.splitlines()) < 50
    assert "schema" not in out


def test_the_composed_configuration_is_printed(capsys, outputs):
    assert main([*TOY, "seed=3", "--cfg", "job"]) == 0
    assert yaml.safe_load(capsys.readouterr().out)["seed"] == 3
    assert not outputs.exists()


def test_flags_may_stand_anywhere(capsys):
    assert main(["pair=iid", "--cfg", "job", "seed=3", "-p", "sampler", "max_tokens=6"]) == 0
    assert capsys.readouterr().out.startswith("# @package sampler")


@pytest.mark.parametrize("words", [["--hydra-help"], ["--info", "searchpath"], ["--info", "defaults"]])
def test_hydras_own_information_is_there(words, capsys):
    assert main(words) == 0
    assert capsys.readouterr().out


def test_the_version_is_ours(monkeypatch, capsys):
    monkeypatch.setattr(command, "version", lambda name: f"of {name}")
    assert main(["--version"]) == 0
    assert capsys.readouterr().out == "specfw of specfw\n"


def test_a_folder_of_options_is_added(tmp_path, capsys):
    folder = tmp_path / "mine" / "experiment"
    folder.mkdir(parents=True)
    (folder / "own.yaml").write_text("# @package _global_\nseed: 9\n")
    assert main([*TOY, "--config-dir", str(tmp_path / "mine"), "experiment=own", "--cfg", "job"]) == 0
    assert yaml.safe_load(capsys.readouterr().out)["seed"] == 9


def test_a_primary_configuration_of_ones_own(tmp_path, capsys):
    (tmp_path / "mine.yaml").write_text("defaults:\n  - config\n  - override pair: toy_a\n  - _self_\nseed: 9\n")
    assert main(["--config-dir", str(tmp_path), "--config-name", "mine", "max_tokens=5"]) == 0
    assert main(["--config-dir", str(tmp_path), "--config-name", "mine", "--cfg", "job"]) == 0
    assert "seed: 9\n" in capsys.readouterr().out
    assert main(["--config-dir", str(tmp_path), "--config-name", "mine", "replay=x"]) == 2


# --- sweeps -----------------------------------------------------------------------------------------------------


def test_a_sweep_runs_every_job_and_says_what_failed(does, outputs, capsys):
    words = [word.replace("task.what=''", "task.what=pass,refuse,break") for word in does("")]
    assert main(["--multirun", *words, "seed=1,2"]) == 2
    out, err = capsys.readouterr()
    assert out == "1\n2\n"
    assert "specfw: target.path must be a folder, got 'x'\n" in err
    (sweep,) = (outputs / "multirun").glob("2*/*")
    jobs = {path.name: path for path in sweep.iterdir() if path.is_dir()}
    assert sorted(jobs) == ["0", "1", "2", "3", "4", "5"]
    said = {name: (path / "error.txt").read_text() for name, path in jobs.items() if (path / "error.txt").exists()}
    assert sorted(said) == ["2", "3", "4", "5"]
    assert said["2"] == said["3"] == "target.path must be a folder, got 'x'\n"
    assert "RuntimeError: a defect" in said["4"]


def test_the_status_of_a_sweep_is_that_of_its_first_failure(does):
    words = [word.replace("task.what=''", "task.what=pass,fail,refuse") for word in does("")]
    assert main([*words, "-m"]) == 1


def test_a_sweep_over_rules(outputs, capsys):
    assert main(["-m", *TOY, "acceptance=sampler_match,stochastic"]) == 0
    assert re.findall(r"rule=(\S+)", capsys.readouterr().out) == ["sampler-match", "stochastic"]
    assert len(list((outputs / "multirun").rglob("summary.json"))) == 2


def test_a_sweep_over_pairs_and_experiments(does, capsys):
    words = [word for word in does("pass") if word not in TOY]
    assert main(["-m", *words, "pair=toy_a,markov", "experiment=smoke,[smoke]", "seed=0"]) == 0
    assert capsys.readouterr().out == "0\n" * 4


def test_a_job_of_a_bad_choice_stops_the_sweep_before_it_begins(outputs, capsys):
    assert main(["-m", *TOY, "acceptance=sampler_match,nope"]) == 2
    assert "acceptance must be one of: " in capsys.readouterr().err
    assert not list(outputs.rglob("summary.json"))


def test_a_file_cannot_sweep_what_is_fixed_before(does, tmp_path, capsys):
    folder = tmp_path / "experiment"
    folder.mkdir()
    params = "hydra:\n  mode: MULTIRUN\n  sweeper:\n    params:\n      "
    for key, sentence in [
        ("plugins: '[os]'", "plugins must be given on the command line alone"),
        ("backend.blas: openblas", "backend must be what this process began with"),
    ]:
        (folder / "bad.yaml").write_text(f"# @package _global_\n{params}{key}\n")
        assert main([*TOY, f"--config-dir={tmp_path}", "experiment=bad"]) == 2
        assert sentence in capsys.readouterr().err


# --- the backend ------------------------------------------------------------------------------------------------


@pytest.fixture
def openblas(monkeypatch):
    """A process that began with OpenBLAS on two threads, and a list of what it was begun again with."""
    bound = Backend("openblas", "system", 2, "a processor", "found by system")
    calls, starts = [], []

    def bind(blas=None, threads=None, *, self_test=True):
        calls.append((blas, threads, self_test))
        return bound

    def restart(blas, threads):
        starts.append((blas, threads))
        raise SystemExit(0)

    monkeypatch.setattr(backend, "bind", bind)
    monkeypatch.setattr(backend, "restart_with", restart)
    monkeypatch.delenv("SPECFW_BLAS_THREADS")
    return calls, starts


@pytest.mark.parametrize(
    ("words", "call"),
    [
        ([], (None, None, True)),
        (["backend.blas=openblas", "backend.threads=2"], ("openblas", "2", True)),
        (["--help"], (None, None, False)),
        (["--cfg", "job"], (None, None, False)),
        (["-m", "seed=1,2"], (None, "1", True)),
        (["-m", "seed=1,2", "backend.threads=2"], (None, "2", True)),
    ],
    ids=str,
)
def test_the_blas_is_bound_as_the_command_line_says(words, call, openblas, monkeypatch):
    calls, _ = openblas
    monkeypatch.setattr(command, "_bind_as_composed", lambda *_, **__: None)
    main([*TOY, "diagnostics=none", *words])
    assert calls[0] == call


@pytest.mark.parametrize(
    ("words", "starts"),
    [
        ([], []),
        (["backend=reference"], [("reference", None)]),
        (["backend.threads=3"], [("auto", 3)]),
        (["hydra.mode=MULTIRUN"], [("auto", 1)]),
        (["--cfg=job", "backend=reference"], []),
    ],
    ids=str,
)
def test_a_command_begins_again_where_the_composed_backend_differs(words, starts, openblas, monkeypatch):
    monkeypatch.setattr(sys, "argv", ["specfw", *TOY, *words])
    assert main() == 0
    assert openblas[1] == starts


def test_a_python_caller_is_never_started_again(openblas, capsys):
    assert main([*TOY, "backend=reference"]) == 2
    assert "backend must be what this process began with (blas=openblas threads=2)" in capsys.readouterr().err
    with pytest.raises(ValueError, match="backend must be what this process began with"):
        specfw.run(specfw.compose([*TOY, "backend=reference"]))
    assert openblas[1] == []


@ON_LINUX
@pytest.mark.parametrize(
    "code",
    [
        "specfw.compose(['pair=iid', 'backend.blas=reference'])",
        "specfw.run({'backend': {'blas': 'reference', 'threads': None}})",
    ],
)
def test_a_callers_own_words_bind_before_mlx_is_imported(code):
    child = subprocess.run(
        [sys.executable, "-c", f"import specfw\ntry: {code}\nexcept ValueError: pass\n{ASK}"],
        env=os.environ | {"SPECFW_BLAS": "auto", "PYTHONPATH": str(REPOSITORY)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert child.stdout == "reference asked for\n"


@ON_LINUX
def test_a_file_gets_the_blas_it_asks_for(process, outputs):
    child = process(*TOY, "backend=reference", SPECFW_BLAS="auto")
    _, err = child.communicate(timeout=60)
    assert child.returncode == 0, err
    event = json.loads((only(outputs) / "events.jsonl").read_text().splitlines()[0])
    assert event["blas"] == "reference"
