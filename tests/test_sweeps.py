"""Sweeps: every job runs whatever becomes of another, and what was interrupted goes on where it stopped."""

import fcntl
import gc
import json
import os
import re
import shlex
import signal
import sys
import weakref
from pathlib import Path

import specfw
from specfw import experiment, registry
from specfw.__main__ import main
from specfw.config import composing, overrides, resuming, running
from specfw.config.course import Course
from specfw.config.holding import held
from specfw.config.jobs import Jobs
from specfw.config.loading import JobsLoader
from specfw.models.checkpoint import Checkpoint
from specfw.models.pretrained import folder as checkpoint_folder
from specfw.study.escaping import quoted

import checkpoints
import pytest
from hydra._internal.config_loader_impl import ConfigLoaderImpl
from hydra.core.plugins import Plugins
from hydra.plugins.launcher import Launcher
from hydra.types import RunMode
from omegaconf import OmegaConf

TOY = ["pair=iid", "max_tokens=6"]
SEEDS = ["-m", *TOY, "seed=0,1,2"]

TASKS = """
import os
import shutil
import signal
from dataclasses import dataclass
from types import SimpleNamespace
from specfw.registry import register
from specfw.tasks.base import Task

@register("task", "does")
@dataclass(frozen=True, kw_only=True)
class Does(Task):
    bad: tuple[int, ...] = ()
    kind: str = "refuse"

    def __post_init__(self):
        if self.kind == "break":
            raise KeyError("a defect")

    def run(self, job):
        seed = job.config["seed"]
        (job.folder / "job.txt").write_text(f"seed {seed}")
        if seed in self.bad and not os.environ.get("MENDED"):
            (job.folder / ".job.txt.part").write_text("half")
            match self.kind:
                case "refuse":
                    raise ValueError(f"seed must be another, got {seed}")
                case "interrupt":
                    raise KeyboardInterrupt
                case "nothing to say":
                    raise ValueError
                case "no text":
                    raise ValueError("path must be text, got \\udcff")
                case "its folder is gone":
                    shutil.rmtree(job.folder)
                    raise ValueError("the true cause")
                case "signal":
                    try:
                        signal.raise_signal(signal.SIGTERM)
                    finally:
                        raise ValueError("a library's clean-up failed over it")
            return SimpleNamespace(passed=False)
        return SimpleNamespace(passed=True)
"""


@pytest.fixture(autouse=True)
def outputs(tmp_path, monkeypatch):
    folder = tmp_path / "outputs of a test"
    monkeypatch.setenv("SPECFW_OUTPUTS", str(folder))
    monkeypatch.delenv("MENDED", raising=False)
    return folder


@pytest.fixture
def does(tmp_path, monkeypatch):
    """Words of a sweep whose jobs fail, are interrupted, or do not pass at some seeds."""
    monkeypatch.setattr(registry, "_components", {group: dict(known) for group, known in registry._components.items()})
    (tmp_path / "jobs_of_a_test.py").write_text(TASKS)
    monkeypatch.syspath_prepend(tmp_path)
    yield lambda *words: ["-m", *TOY, "plugins=[jobs_of_a_test]", "task=does", *words]
    sys.modules.pop("jobs_of_a_test", None)


@pytest.fixture
def sweep(outputs):
    """The one sweep's folder."""

    def found() -> Path:
        (folder,) = (outputs / "multirun").glob("2*/*")
        return folder

    return found


def state(folder):
    """Every file below a folder, as it is: what it holds and when it was written."""
    files = [path for path in sorted(folder.rglob("*")) if path.is_file()]
    return {str(path.relative_to(folder)): (path.read_bytes(), path.stat().st_mtime_ns) for path in files}


def table(folder):
    """Numbers and tokens of every job, without what a clock or a machine says."""
    rows = {}
    for path in sorted(folder.rglob("summary.json")):
        numbers = json.loads(path.read_text())
        del numbers["prefill_s"], numbers["diagnostics"]["throughput"]
        rows[str(path.parent.relative_to(folder))] = numbers, (path.parent / "tokens.jsonl").read_bytes()
    return rows


# --- composing --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "jobs",
    [
        [["seed=1"], ["seed=2"]],
        [["pair=toy_a", "seed=1"], ["pair=markov", "seed=1"], ["pair=toy_a", "seed=2"]],
        [["acceptance=stochastic", "acceptance.strict=true"], ["acceptance=block"]],
        [["sampler@draft_sampler=hf", "draft_sampler.temperature.value=0.5"]],
        [["experiment=smoke", "seed=3"], ["experiment=smoke", "seed=4", "max_tokens=3"]],
        [["+sampler.bias.values={3: 1.5}", "stop=[a,b]"], ["++seed=4", "stop=[]"]],
        [["hydra.sweep.subdir='a b'", "seed=1"], ["hydra.sweep.subdir=c", "seed=1"]],
        [["hydra.sweep.subdir=${hydra.job.override_dirname}", "seed=1"], ["seed=2"]],
        [["prompts=ids", "prompts.ids=[1,2]"], ["prompts=toy"]],
    ],
    ids=str,
)
def test_jobs_are_composed_as_hydra_composes_them(jobs):
    words = overrides.read(["pair=iid"])
    with composing.session() as hydra:
        primary = composing.prepare(hydra, words)
        master = hydra.compose_config(primary, ["pair=iid", "hydra.mode=MULTIRUN"], RunMode.MULTIRUN)
        path = hydra.config_loader.get_search_path()
        plain, ours = ConfigLoaderImpl(path), JobsLoader(path)
        for lines in [["pair=iid", *job] for job in jobs]:
            expected = plain.load_sweep_config(master, lines)
            found = ours.load_sweep_config(master, lines)
            assert OmegaConf.to_container(found) == OmegaConf.to_container(expected)
            assert OmegaConf.is_struct(found)
            found.seed = 99  # what a job does to its tree is its own
        carried = ours.__getstate__()
        assert not {"_made", "_is_group"} & set(carried)  # a worker is sent no trees
        sent = JobsLoader.__new__(JobsLoader)
        sent.__setstate__(carried)
        assert OmegaConf.to_container(sent.load_sweep_config(master, jobs[0])) == OmegaConf.to_container(
            plain.load_sweep_config(master, jobs[0])
        )


def test_a_job_that_cannot_be_composed_is_told_as_before(capsys, outputs):
    assert main(["-m", *TOY, "seed=0,1", "sampler.nope=1"]) == 2
    err = capsys.readouterr().err
    assert "sampler.nope" in err
    assert err.count("\n") == 1
    assert not outputs.exists()


def test_a_refusal_before_any_job_leaves_alone_what_was_there(outputs, capsys):
    assert main(["-m", *TOY, "acceptance=stochastic"]) == 0
    before = state(outputs)
    folder = outputs / "mine"
    for words in (["acceptance=nope,stochastic"], ["acceptance=stochastic,nope", f"hydra.sweep.dir='{folder}/a/b'"]):
        capsys.readouterr()
        assert main(["-m", *TOY, *words]) == 2
        err = capsys.readouterr().err
        assert err.startswith("specfw: acceptance must be one of: ")
        assert err.count("\n") == 1
        assert not folder.exists()
        assert state(outputs) == before
    folder.mkdir()
    (folder / "notes.txt").write_text("mine")
    assert main(["-m", *TOY, "acceptance=nope,stochastic", f"hydra.sweep.dir='{folder}'"]) == 2
    assert (folder / "notes.txt").read_text() == "mine"


def test_what_ran_before_a_refusal_is_counted(sweep, capsys):
    assert main(["-m", *TOY, "acceptance=stochastic,nope", "hydra.sweeper.max_batch_size=1"]) == 2
    assert f"specfw: sweep: 1 finished, 0 failed: {sweep()}\n" in capsys.readouterr().err


# --- models -----------------------------------------------------------------------------------------------------


def test_a_sweep_opens_and_hashes_each_model_once(tmp_path, monkeypatch, sweep, capsys):
    path = checkpoints.write(tmp_path / "model", checkpoints.LLAMA, dtype_note=1)
    opened, hashed = [], []
    load, digests = Checkpoint.load, checkpoint_folder.digests
    monkeypatch.setattr(Checkpoint, "load", lambda self, role: opened.append(role) or load(self, role))
    monkeypatch.setattr(
        "specfw.models.pretrained.model.digests", lambda folder: hashed.append(folder) or digests(folder)
    )
    words = [f"target.path={path}", f"drafter.path={path}", "target.dtype=float16", "max_tokens=3"]
    assert main(["-m", *words, "acceptance=stochastic,sampler_match", "seed=0,1"]) == 0
    assert (opened, len(hashed)) == (["target", "drafter"], 2)
    out = capsys.readouterr().out
    alone = [specfw.run(specfw.compose([*words, "acceptance=sampler_match", "seed=1"])).folder, sweep() / "3"]
    assert len(opened) == 4  # a Python caller's models are opened for each run, and go with it
    assert out.endswith(capsys.readouterr().out)
    events = [[json.loads(line) for line in (one / "events.jsonl").read_text().splitlines()] for one in alone]
    for name in ("run_started", "model_note", "rule_active"):
        first, second = ([one for one in run if one["event"] == name] for run in events)
        assert len(first) == len(second) > 0
        for one, other in zip(first, second, strict=True):
            assert {**one, "timestamp": 0} == {**other, "timestamp": 0}
    assert running._shelf._opened == {}


def test_a_checkpoint_that_changes_during_a_sweep_is_not_served_stale(tmp_path, monkeypatch, sweep):
    path = checkpoints.write(tmp_path / "model", checkpoints.LLAMA)
    clear = resuming.clear

    def changing(folder, **options):
        if folder.name == "1":
            os.utime(f"{path}/config.json")
            checkpoints.edit(path, "config.json", rms_norm_eps=0.5)
        clear(folder, **options)

    monkeypatch.setattr(resuming, "clear", changing)
    words = [f"target.path={path}", f"drafter.path={path}", "max_tokens=3", "acceptance=sampler_match"]
    assert main(["-m", *words, "seed=0,0,0"]) == 0
    first, second, third = (
        json.loads((sweep() / name / "events.jsonl").read_text().splitlines()[0])["models"]["target"]["sha256"]
        for name in "012"
    )
    assert first["config.json"] != second["config.json"] == third["config.json"]


# --- failures ---------------------------------------------------------------------------------------------------


def test_the_last_lines_count_the_jobs_and_name_those_that_failed(does, sweep, capsys):
    assert main(does("task.bad=[1,3]", "seed=0,1,2,3")) == 2
    err = capsys.readouterr().err
    folder = sweep()
    hint = shlex.quote(f"task.resume='{folder}'")
    assert err.splitlines()[-4:] == [
        f"specfw: sweep: 2 finished, 2 failed: {folder}",
        f"specfw: failed: {folder}/1: seed must be another, got 1",
        f"specfw: failed: {folder}/3: seed must be another, got 3",
        f"specfw: to go on: python -m specfw {hint}",
    ]
    assert (folder / "1" / "error.txt").read_text() == "seed must be another, got 1\n"
    assert not list(folder.rglob(".*.part"))
    assert [path.parent.name for path in sorted(folder.rglob("job.json"))] == ["0", "2"]


def test_a_failure_does_not_lose_later_batches(does, sweep):
    assert main(does("task.bad=[0]", "seed=0,1,2,3", "hydra.sweeper.max_batch_size=2")) == 2
    assert [path.parent.name for path in sorted(sweep().rglob("job.json"))] == ["1", "2", "3"]


@pytest.mark.parametrize(
    ("kind", "said", "text"),
    [
        ("nothing to say", "ValueError", "ValueError\n"),
        ("no text", "path must be text, got \\udcff", "path must be text, got \\udcff\n"),
        ("its folder is gone", "the true cause", None),
    ],
)
def test_what_went_wrong_is_told_whatever_it_is(kind, said, text, does, sweep, capsys):
    sys.stderr.reconfigure(errors="backslashreplace")  # as a command of its own does
    assert main(does("task.bad=[0]", f"task.kind='{kind}'", "seed=0,1")) == 2
    err = capsys.readouterr().err
    assert f"failed: {sweep()}/0: {said}\n" in err
    assert err.count(said) == 2  # when it happens, and at the end
    error = sweep() / "0" / "error.txt"
    assert (error.read_text() if error.exists() else None) == text


def test_a_check_that_failed_is_a_failed_job(does, sweep, capsys):
    assert main(does("task.bad=[0]", "task.kind=fail", "seed=0,1")) == 1
    assert f"failed: {sweep()}/0: a check of the run failed" in capsys.readouterr().err


def test_an_interrupt_counts_what_ran(does, sweep, capsys):
    assert main(does("task.bad=[2]", "task.kind=interrupt", "seed=0,1,2,3")) == 130
    err = capsys.readouterr().err
    assert f"specfw: sweep: 2 finished, 0 failed, 1 interrupted, 1 not run: {sweep()}\n" in err
    assert err.endswith("specfw: interrupted\n")


def test_a_job_that_was_interrupted_is_counted_by_itself_and_runs_again(sweep, monkeypatch, capsys):
    def interrupted(self, *arguments):
        decode(self, *arguments)
        signal.raise_signal(signal.SIGINT)

    decode = experiment._Run.decode
    words = ["-m", *TOY, "seed=0,1,2", "acceptance=stochastic"]
    with monkeypatch.context() as patched:
        patched.setattr(experiment._Run, "decode", interrupted)
        assert main(words) == 130
    err = capsys.readouterr().err
    assert json.loads((sweep() / "0" / "summary.json").read_text())["interrupted"] is True
    assert f"specfw: sweep: 0 finished, 0 failed, 1 interrupted, 2 not run: {sweep()}\n" in err
    assert "specfw: to go on: " in err
    assert main([f"task.resume='{sweep()}'"]) == 0
    assert f"specfw: sweep: 3 finished, 0 failed: {sweep()}\n" in capsys.readouterr().err
    assert [numbers["interrupted"] for numbers, _ in table(sweep()).values()] == [False] * 3


def test_the_last_job_that_an_interrupt_ends_leaves_something_to_go_on_with(does, sweep, capsys):
    assert main(does("task.bad=[1]", "task.kind=interrupt", "seed=0,1")) == 130
    err = capsys.readouterr().err
    assert f"specfw: sweep: 1 finished, 0 failed, 1 interrupted: {sweep()}\n" in err
    assert "specfw: to go on: " in err


def test_a_job_that_finished_before_an_interrupt_reached_it_is_finished(does, sweep, monkeypatch, capsys):
    def noted(folder, digest):
        note(folder, digest)
        signal.raise_signal(signal.SIGINT)

    note = resuming.note_finished
    monkeypatch.setattr(resuming, "note_finished", noted)
    assert main(does("seed=0,1")) == 130
    assert f"specfw: sweep: 1 finished, 0 failed, 1 not run: {sweep()}\n" in capsys.readouterr().err


def test_a_signal_is_counted_once_whatever_becomes_of_it(does, sweep, monkeypatch, capsys):
    def finished(folder):
        signal.raise_signal(signal.SIGTERM)  # the second one, while jobs are counted
        return known(folder)

    known = resuming.finished
    monkeypatch.setattr(resuming, "finished", finished)
    before = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)]
    assert main(does("task.bad=[2]", "task.kind=signal", "seed=0,1,2,3")) == 130
    err = capsys.readouterr().err
    assert f"specfw: sweep: 2 finished, 0 failed, 1 interrupted, 1 not run: {sweep()}\n" in err
    assert err.endswith("specfw: interrupted\n")
    assert [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)] == before


def test_a_launcher_that_dies_loses_no_count(does, sweep, capsys, monkeypatch):
    # not the class that an import finds: Hydra reads the modules of its plugins anew
    (basic,) = (one for one in Plugins.instance().discover(Launcher) if one.__name__ == "BasicLauncher")
    launch = basic.launch

    def dying(self, jobs, initial_job_idx):
        launch(self, jobs[:2], initial_job_idx)
        raise RuntimeError("a worker was killed")

    monkeypatch.setattr(basic, "launch", dying)
    monkeypatch.setattr(Jobs, "in_order", False)
    assert main(does("task.bad=[1]", "seed=0,1,2")) == 70
    err = capsys.readouterr().err
    assert f"sweep: 1 finished, 2 failed: {sweep()}\n" in err
    assert f"failed: {sweep()}/1: seed must be another, got 1\n" in err
    assert f"failed: {sweep()}/2: RuntimeError: a worker was killed\n" in err


def test_jobs_that_an_interrupt_ended_in_workers_are_counted_as_such(does, sweep, capsys, monkeypatch):
    (basic,) = (one for one in Plugins.instance().discover(Launcher) if one.__name__ == "BasicLauncher")
    launch = basic.launch

    def interrupted(self, jobs, initial_job_idx):
        launch(self, jobs[:2], initial_job_idx)
        for name in "23":
            (sweep() / name).mkdir()
            (sweep() / name / "error.txt").write_text("interrupted\n")
        raise KeyboardInterrupt

    monkeypatch.setattr(basic, "launch", interrupted)
    monkeypatch.setattr(Jobs, "in_order", False)
    assert main(does("task.bad=[1]", "seed=range(5)")) == 130
    err = capsys.readouterr().err
    assert f"sweep: 1 finished, 1 failed, 2 interrupted, 1 not run: {sweep()}\n" in err
    assert err.count("failed: ") == 1


def test_a_job_that_cannot_be_begun_does_not_lose_the_others(does, sweep, monkeypatch, capsys):
    long = "9" * 256
    words = does("task.bad=[0]", f"seed=0,{long},1,2", "hydra.sweep.subdir='of ${seed}'")
    assert main(words) == 2
    err = capsys.readouterr().err
    assert f"sweep: 2 finished, 2 failed: {sweep()}\n" in err
    assert f"failed: {sweep()}/of 0: seed must be another, got 0\n" in err
    assert f"failed: {sweep()}/of {long}: [Errno 36] File name too long: " in err
    assert [path.parent.name for path in sorted(sweep().rglob("job.txt"))] == ["of 0", "of 1", "of 2"]
    monkeypatch.setenv("MENDED", "1")
    assert main([f"task.resume='{sweep()}'"]) == 2
    assert "sweep: 1 finished, 1 failed, 2 finished before" in capsys.readouterr().err


def test_a_failure_keeps_nothing_of_its_job_alive(does, monkeypatch):
    heavy, alive = [], []

    class Heavy:
        pass

    def run(self, tree, folder):
        gc.collect()
        alive.append([one() is not None for one in heavy])
        model = Heavy()
        heavy.append(weakref.ref(model))
        raise ValueError("refused")

    monkeypatch.setattr(running.CommandLineJob, "_run", run)
    assert main(does("seed=0,1,2")) == 2
    assert alive == [[], [False], [False, False]]


# --- going on ---------------------------------------------------------------------------------------------------


def test_what_has_finished_is_skipped_and_untouched(sweep, capsys):
    assert main([*SEEDS, "acceptance=stochastic"]) == 0
    folder, undisturbed = sweep(), table(sweep())
    (folder / "1" / "summary.json").unlink()
    (folder / "1" / ".tokens.jsonl.part").write_text("half")
    (folder / "1" / ".hydra" / "config.yaml").write_text("ha")
    (folder / "multirun.yaml").write_text("ha")
    before = {name: state(folder / name) for name in ("0", "2")}
    capsys.readouterr()
    assert main([f"task.resume='{folder}'"]) == 0
    out, err = capsys.readouterr()
    assert err.count("\t#") == 1
    assert "\t#1 : " in err
    assert "specfw: task.resume: 2 of 3 jobs have finished before\n" in err
    assert err.endswith(f"specfw: sweep: 1 finished, 0 failed, 2 finished before: {folder}\n")
    assert out.count("[Speculative acceptance]") == 1
    assert {name: state(folder / name) for name in before} == before
    assert table(folder) == undisturbed
    assert not list(folder.rglob(".*.part"))
    assert sorted(path.name for path in folder.iterdir() if path.is_dir()) == ["0", "1", "2"]
    kept = [path for path in (folder / "1").rglob("*") if path.is_file() and path.name != "hydra.yaml"]  # has the help
    assert "resume" not in "".join(path.read_text() for path in kept)
    assert main([f"task.resume='{folder}'"]) == 0  # and when nothing is left
    assert "sweep: 0 finished, 0 failed, 3 finished before" in capsys.readouterr().err
    assert table(folder) == undisturbed


def test_jobs_that_are_left_keep_their_numbers(does, sweep, capsys):
    assert main(does("seed=range(8)")) == 0
    for name in "126":
        (sweep() / name / "job.json").unlink()
    capsys.readouterr()
    assert main([f"task.resume='{sweep()}'"]) == 0
    err = capsys.readouterr().err
    logged = dict(re.findall(r"\t#(\d+) : .*seed=(\d+)", err))
    assert logged == {"1": "1", "2": "2", "6": "6"}
    assert err.count("Launching") == 2  # 1 and 2 together


def test_a_launcher_of_many_workers_is_given_all_that_is_left_at_once(does, sweep, monkeypatch, capsys):
    assert main(does("seed=range(4)")) == 0
    for name in "02":
        (sweep() / name / "job.json").unlink()
    monkeypatch.setattr(Jobs, "in_order", False)
    capsys.readouterr()
    assert main([f"task.resume='{sweep()}'"]) == 0
    assert capsys.readouterr().err.count("Launching 2 jobs") == 1
    assert [path.parent.name for path in sorted(sweep().rglob("job.json"))] == ["0", "1", "2", "3"]


def test_the_same_words_go_on_as_well(sweep, capsys):
    assert main(SEEDS) == 0
    (sweep() / "0" / "job.json").unlink()
    assert main([*SEEDS, f"task.resume='{sweep()}'"]) == 0
    assert "2 of 3 jobs have finished before" in capsys.readouterr().err
    assert resuming.begun(sweep()).words == tuple(SEEDS)


@pytest.mark.parametrize("kind", ["refuse", "fail", "interrupt"])
def test_what_failed_runs_again(kind, does, sweep, monkeypatch, capsys):
    assert main(does("task.bad=[1]", f"task.kind={kind}", "seed=0,1,2")) != 0
    before = state(sweep() / "0")
    monkeypatch.setenv("MENDED", "1")
    assert main([f"task.resume='{sweep()}'"]) == 0
    assert f"{1 if kind == 'interrupt' else 2} of 3 jobs have finished before" in capsys.readouterr().err
    assert state(sweep() / "0") == before
    assert sorted(path.name for path in (sweep() / "1").iterdir()) == [".hydra", "job.json", "job.txt"]


def test_a_folder_that_cannot_be_emptied_fails_its_own_job(does, sweep, capsys):
    assert main(does("seed=0,1,2")) == 0
    for name in "01":
        (sweep() / name / "job.json").unlink()
    (sweep() / "0" / "job.json").mkdir()
    assert main([f"task.resume='{sweep()}'"]) == 2
    err = capsys.readouterr().err
    assert f"sweep: 1 finished, 1 failed, 1 finished before: {sweep()}\n" in err
    assert f"failed: {sweep()}/0: [Errno " in err


def test_a_component_that_breaks_fails_its_own_job_again(does, sweep, capsys):
    assert main(does("task.kind=break,refuse,refuse", "seed=0")) == 70
    (sweep() / "1" / "job.json").unlink()
    assert main([f"task.resume='{sweep()}'"]) == 70
    assert "sweep: 1 finished, 1 failed, 1 finished before" in capsys.readouterr().err


def test_a_record_that_lost_a_part_is_made_again(sweep, capsys):
    assert main(SEEDS) == 0
    undisturbed = table(sweep())
    with (sweep() / "2" / "tokens.jsonl").open("a") as file:
        file.write("{")
    assert main([f"task.resume='{sweep()}'"]) == 0
    assert "2 of 3 jobs" in capsys.readouterr().err
    assert table(sweep()) == undisturbed


def test_more_words_add_jobs_and_move_none(sweep, capsys):
    words = ["-m", *TOY, "acceptance=stochastic,sampler_match"]
    assert main([*words, "seed=0,1"]) == 0
    folder, before = sweep(), state(sweep())
    assert main([*words, "seed=0,1,2", f"task.resume='{folder}'"]) == 0
    assert "4 of 6 jobs have finished before" in capsys.readouterr().err
    assert len(table(folder)) == 6
    left = {name: held for name, held in state(folder).items() if name in before and name.count("/")}
    assert left == {name: held for name, held in before.items() if name.count("/")}
    assert main([f"task.resume='{folder}'"]) == 0
    assert "6 of 6 jobs have finished before" in capsys.readouterr().err


def test_another_configuration_goes_beside_what_has_finished(sweep, monkeypatch, capsys):
    assert main(SEEDS) == 0
    before = {name: state(sweep() / name) for name in "012"}
    monkeypatch.setenv("SPECFW_STOCHASTIC_ACCEPT", "1")
    assert main([f"task.resume='{sweep()}'"]) == 0
    assert "0 of 3 jobs have finished before" in capsys.readouterr().err
    assert {name: state(sweep() / name) for name in "012"} == before
    rules = {name: numbers["rule"] for name, (numbers, _) in table(sweep()).items()}
    assert rules == {**dict.fromkeys("012", "sampler-match"), **dict.fromkeys(("0-2", "1-2", "2-2"), "stochastic")}


def noted(folder):
    return json.loads((folder / "sweep.json").read_text())["jobs"]


def test_a_sweep_notes_how_many_records_it_will_have(does, sweep, monkeypatch, capsys):
    words = [*does("task.bad=[1]", "task.kind=interrupt"), "seed=range(4)"]
    assert main(words) == 130
    assert noted(sweep()) == 4
    assert main([f"task.resume='{sweep()}'"]) == 130
    assert noted(sweep()) == 4
    monkeypatch.setenv("MENDED", "1")
    assert main([*words[:-1], "seed=range(5)", f"task.resume='{sweep()}'"]) == 0
    assert noted(sweep()) == 5
    assert main([*words[:-1], "seed=4,5", f"task.resume='{sweep()}'"]) == 0
    assert noted(sweep()) == len(list(sweep().rglob("job.json"))) == 6  # with those that the words no longer name


def test_a_sweep_in_batches_does_not_know_how_many_jobs_it_has(does, sweep):
    assert main(does("seed=0,1,2", "hydra.sweeper.max_batch_size=2")) == 0
    assert noted(sweep()) is None


def test_a_report_tells_of_a_sweep_that_was_killed(sweep, monkeypatch, capsys):
    class Killed(BaseException):
        pass

    def run(self, tree, folder):
        if folder.name == "2":
            raise Killed
        return known(self, tree, folder)

    known = running.CommandLineJob._run
    with monkeypatch.context() as patched:
        patched.setattr(running.CommandLineJob, "_run", run)
        assert main(["-m", *TOY, "seed=range(5)"]) == 70
    folder = sweep()
    capsys.readouterr()
    assert main(["task=report", f"task.source=['{folder}']"]) == 0
    out, err = capsys.readouterr()
    assert " problems=1\n" in out
    assert f"sweep: 2 of 5 jobs have finished; to go on: {shlex.quote(f'task.resume={quoted(folder)}')}\n" in err
    assert main([f"task.resume='{folder}'"]) == 0
    capsys.readouterr()
    assert main(["task=report", f"task.source=['{folder}']"]) == 0
    assert " problems=0\n" in capsys.readouterr().out


def test_equal_jobs_are_as_many_as_they_were(sweep, capsys):
    assert main(["-m", *TOY, "seed=0,0,1"]) == 0
    undisturbed = table(sweep())
    (sweep() / "1" / "job.json").unlink()
    assert main([f"task.resume='{sweep()}'"]) == 0
    assert "2 of 3 jobs" in capsys.readouterr().err
    assert table(sweep()) == undisturbed


def test_a_configuration_that_reads_its_jobs_number_keeps_it(sweep, tmp_path, monkeypatch, capsys):
    (tmp_path / "experiment").mkdir()
    (tmp_path / "experiment" / "own.yaml").write_text("# @package _global_\nseed: ${hydra:job.num}\n")
    words = ["-m", *TOY, f"--config-dir={tmp_path}", "experiment=own", "max_tokens=4,5,6,7"]
    assert main(words) == 0
    undisturbed = table(sweep())
    assert [numbers["seed"] for numbers, _ in undisturbed.values()] == [0, 1, 2, 3]
    for name in "13":
        (sweep() / name / "job.json").unlink()
    with monkeypatch.context() as patched:
        patched.setattr(running.CommandLineJob, "_run", lambda *_: signal.raise_signal(signal.SIGINT))
        assert main([f"task.resume='{sweep()}'"]) == 130
    assert "sweep: 0 finished, 0 failed, 2 finished before, 1 interrupted, 1 not run" in capsys.readouterr().err
    assert main([f"task.resume='{sweep()}'"]) == 0
    assert "2 of 4 jobs" in capsys.readouterr().err
    assert table(sweep()) == undisturbed


def test_a_sweep_of_a_file_goes_on_too(sweep, tmp_path, capsys):
    (tmp_path / "experiment").mkdir()
    params = "hydra:\n  mode: MULTIRUN\n  sweeper:\n    params:\n      seed: 4,5\n"
    (tmp_path / "experiment" / "own.yaml").write_text(f"# @package _global_\n{params}")
    assert main([*TOY, f"--config-dir={tmp_path}", "experiment=own"]) == 0
    (sweep() / "1" / "job.json").unlink()
    assert main([f"task.resume='{sweep()}'"]) == 0
    assert "1 of 2 jobs have finished before" in capsys.readouterr().err


def test_the_hint_goes_on_with_a_folder_of_any_name(does, outputs, monkeypatch, capsys):
    for name in ("plain", "it's a\\b c:\\'d\\\\' $HOME `x`, {c}=é\\\\"):
        folder = outputs / name
        where = f"hydra.sweep.dir={quoted(folder)}"
        assert main(does("task.bad=[1]", "seed=0,1", where)) == 2
        hint = capsys.readouterr().err.splitlines()[-1].partition("to go on: ")[2]
        monkeypatch.setenv("MENDED", "1")
        assert main(shlex.split(hint)[3:]) == 0
        monkeypatch.delenv("MENDED")
        assert f"1 finished, 0 failed, 1 finished before: {folder}\n" in capsys.readouterr().err
        assert (folder / "1" / "job.txt").is_file()


def test_a_folder_does_not_write_on_the_terminal(tmp_path, capsys):
    Course(folder=tmp_path / "\x1b[2J\n").tell()
    assert capsys.readouterr().err.endswith("\\x1b[2J\\n\n")


def test_jobs_named_by_their_overrides_run_and_go_on(does, sweep, capsys):
    assert main(does("seed=0,1", "hydra.sweep.subdir=${hydra.job.override_dirname}")) == 0
    assert len(list(sweep().rglob("job.json"))) == 2
    assert main([f"task.resume='{sweep()}'"]) == 0
    assert "2 of 2 jobs have finished before" in capsys.readouterr().err


def test_words_that_were_replaced_are_not_forgotten(does, sweep, monkeypatch, capsys):
    first, second = does("task.bad=[1]", "seed=0,1"), does("task.bad=[1]", "seed=2")
    assert main(first) == 2
    monkeypatch.setenv("MENDED", "1")
    assert main([*second, f"task.resume='{sweep()}'"]) == 0
    begun = resuming.begun(sweep())
    assert (begun.words, begun.earlier) == (tuple(second), (tuple(first),))
    line = capsys.readouterr().err.splitlines()[-1]
    assert line.startswith("specfw: replaced words, whose other jobs are not counted: python -m specfw -m ")
    assert main(shlex.split(line)[-len(first) - 1 :]) == 0
    assert "1 finished, 0 failed, 1 finished before" in capsys.readouterr().err
    begun = resuming.begun(sweep())
    assert (begun.words, begun.earlier) == (tuple(first), (tuple(second),))


@pytest.mark.parametrize("what", ["no files", "another digest", "too deep"])
def test_a_note_that_does_not_fit_its_record_is_no_finished_job(what, sweep, capsys):
    assert main(["-m", *TOY, "seed=0,1"]) == 0
    note = sweep() / "1" / "job.json"
    said = json.loads(note.read_text())
    if what == "no files":
        said["files"] = {}
    else:
        summary = note.with_name("summary.json")
        summary.write_text(summary.read_text().replace(said["digest"], "0" * len(said["digest"])))
    note.write_text("[" * 100_000 if what == "too deep" else json.dumps(said))
    assert resuming.finished(note.parent) is None
    assert resuming.finished(sweep() / "0") == json.loads((sweep() / "0" / "job.json").read_text())["digest"]


# --- what is refused --------------------------------------------------------------------------------------------


def test_what_is_no_sweep_is_refused(outputs, tmp_path, capsys):
    (tmp_path / "empty").mkdir()
    (tmp_path / "half").mkdir()
    (tmp_path / "half" / "sweep.json").write_text('{"words": [')
    (tmp_path / "deep").mkdir()
    (tmp_path / "deep" / "sweep.json").write_text("[" * 100_000)
    assert main(TOY) == 0
    (run,) = outputs.glob("2*/*")
    capsys.readouterr()
    for folder in (tmp_path / "empty", tmp_path / "half", tmp_path / "deep", tmp_path / "none", run):
        for words in ([], SEEDS):
            assert main([*words, f"task.resume='{folder}'"]) == 2
            err = capsys.readouterr().err
            assert err == (
                "specfw: task.resume must be the folder of a sweep, with the sweep.json that it was begun with, "
                f"got {str(folder)!r}\n"
            )


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ([*TOY, "seed=1"], "task.resume must be of a sweep: add --multirun, or leave out all other words"),
        ([*SEEDS, "hydra.sweep.subdir=."], "hydra.sweep.subdir must be a folder in the sweep's"),
        (
            [*SEEDS, "hydra.sweep.subdir=../elsewhere"],
            "hydra.sweep.subdir must be a folder in the sweep's",
        ),
    ],
    ids=str,
)
def test_what_cannot_go_on_is_refused(words, sentence, sweep, capsys):
    assert main(SEEDS) == 0
    before = table(sweep())
    capsys.readouterr()
    assert main([*words, f"task.resume='{sweep()}'"]) == 2
    assert sentence in capsys.readouterr().err
    assert table(sweep()) == before
    assert resuming.begun(sweep()).words == tuple(SEEDS)


def test_a_sweep_goes_on_under_the_blas_it_began_with(sweep, capsys):
    assert main(SEEDS) == 0
    note = sweep() / "sweep.json"
    note.write_text(json.dumps({**json.loads(note.read_text()), "threads": 7}))
    assert main([f"task.resume='{sweep()}'"]) == 2
    sentence = "task.resume must be gone on with under the BLAS it began with (blas=reference threads=7)"
    assert sentence in capsys.readouterr().err


def test_one_process_writes_into_a_sweep(sweep, capsys):
    assert main(SEEDS) == 0
    (sweep() / "1" / "job.json").unlink()
    before = state(sweep())
    with (sweep() / ".sweep.lock").open("a") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        capsys.readouterr()
        for words, key in (([], "task.resume"), (SEEDS, "hydra.sweep.dir")):
            assert main([*words, f"{key}='{sweep()}'"]) == 2
            sentence = f"a folder that no sweep runs in (wait until it has ended), got {str(sweep())!r}"
            assert capsys.readouterr().err == f"specfw: {key} must be {sentence}\n"
            assert state(sweep()) == before
    assert main([f"task.resume='{sweep()}'"]) == 0


def test_a_sweep_holds_its_folder_while_it_runs(does, sweep, monkeypatch):
    tried = []

    def run(self, tree, folder):
        with (
            pytest.raises(ValueError, match="that no sweep runs in"),
            held(sweep(), "task.resume"),
        ):
            pass
        tried.append(folder.name)

    monkeypatch.setattr(running.CommandLineJob, "_run", run)
    assert main(does("seed=0,1")) == 0
    assert tried == ["0", "1"]
    with held(sweep(), "task.resume"):  # let go again
        pass


def test_an_interpolation_is_no_folder(capsys):
    assert main(["task.resume='a/${b}'"]) == 2
    err = capsys.readouterr().err
    assert err == "specfw: task.resume must be a folder without ${ in its path, got 'a/${b}'\n"


@pytest.mark.parametrize("line", ["task.resume=a,b", "task.resume=[a]", "~task.resume", "task.resume={a: b}"])
def test_one_sweep_is_gone_on_with(line, capsys):
    assert main(["-m", line]) == 2
    assert capsys.readouterr().err.startswith("specfw: task.resume must be the folder of one sweep, got ")


def test_python_has_no_sweeps():
    with pytest.raises(ValueError, match=r"task\.resume"):
        specfw.compose([*TOY, "task.resume=somewhere"])
