"""A sweep of the command line: its jobs through Hydra's sweeper and launcher, counted, and gone on with."""

import itertools
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, final

from specfw import backend
from specfw.config import resuming, running
from specfw.config.checks import checked
from specfw.config.composing import current, plain
from specfw.config.course import Course
from specfw.config.failures import JobError, described, status
from specfw.config.holding import held
from specfw.config.loading import JobsLoader
from specfw.config.overrides import Words
from specfw.config.sentences import REFUSALS
from specfw.registry import require
from specfw.study.escaping import quoted

from hydra._internal.core_plugins.basic_sweeper import BasicSweeper
from hydra._internal.hydra import Hydra
from hydra.core.plugins import Plugins
from hydra.core.utils import JobReturn, JobStatus
from hydra.plugins.launcher import Launcher
from hydra.types import HydraContext, TaskFunction
from omegaconf import DictConfig, OmegaConf, open_dict


class _Job(NamedTuple):
    """A job of a sweep: its number, its overrides, and where it writes if that is known."""

    number: int
    lines: tuple[str, ...]
    folder: Path | None = None


def sweep(hydra: Hydra, primary: str, words: Words, given: Sequence[str], resume: Path | None) -> int:
    """Run a sweep; whatever becomes of a job, the others run.

    Args:
        hydra: from `composing.session`.
        primary: name of the primary configuration.
        words: of the command line.
        given: the command line itself, kept in the sweep's folder.
        resume: folder of the sweep to go on with.

    Returns:
        The exit status: that of the first job that failed.

    Raises:
        ValueError: the sweep cannot be gone on with.
        KeyboardInterrupt: interrupted.
    """
    bound = backend.bind()
    sweep = resuming.Begun(tuple(given), bound.blas, bound.threads)
    lines = [*words.lines, "hydra.mode=MULTIRUN"]
    if resume is not None:
        sweep = resuming.begun(resume).gone_on_with(sweep)
        lines.append(f"hydra.sweep.dir={quoted(resume)}")
    hydra.config_loader = JobsLoader(hydra.config_loader.get_search_path())
    course = Course()
    try:
        with _overseen(words, sweep, resume, course):
            hydra.multirun(primary, running.CommandLineJob(words, sweep=True), lines)
    finally:
        running.forget_models()
        course.tell()
    return next((error.status for error in course.failed.values()), 0)


@contextmanager
def _overseen(words: Words, sweep: resuming.Begun, resume: Path | None, course: Course) -> Iterator[None]:
    """Put an overseer in front of the launcher that Hydra is about to make."""
    plugins: Any = Plugins.instance()

    def made(hydra_context: HydraContext, task_function: TaskFunction, config: DictConfig) -> Launcher:
        # put back at once: launchers send Hydra's singletons to their workers
        del plugins.instantiate_launcher
        launcher = plugins.instantiate_launcher(hydra_context=hydra_context, task_function=task_function, config=config)
        folder = Path(str(config.hydra.sweep.dir)).absolute()
        hold.enter_context(held(folder, resuming.KEY if resume else "hydra.sweep.dir"))
        course.folder, course.earlier = folder, sweep.earlier
        jobs = _Jobs(words, hydra_context.config_loader, config, folder, sweep)
        return _Overseer(launcher, jobs, course, None if resume is None else resuming.Finished(folder))

    plugins.instantiate_launcher = made
    with ExitStack() as hold:
        hold.callback(vars(plugins).pop, "instantiate_launcher", None)
        yield


@dataclass(frozen=True)
class _Jobs:
    """What is known of jobs before they run.

    Attributes:
        words: of the command line.
        loader: composes them.
        config: what they have in common.
        sweep: folder of the sweep.
        begun: how it is begun.
    """

    words: Words
    loader: Any
    config: DictConfig
    sweep: Path
    begun: resuming.Begun

    @property
    def basic(self) -> bool:
        """Whether Hydra's own sweeper made them, for which no result is needed."""
        return str(self.config.hydra.sweeper._target_).endswith(f".{BasicSweeper.__name__}")

    def composed(self, job: _Job) -> DictConfig:
        """The configuration of a job, as its launcher will compose it."""
        tree: DictConfig = self.loader.load_sweep_config(self.config, list(job.lines))
        with open_dict(tree):
            tree.hydra.job.id = tree.hydra.job.num = job.number
        return tree

    def folder(self, tree: DictConfig) -> Path:
        """Where a job writes."""
        with current(tree):
            return self.sweep / str(OmegaConf.select(tree, "hydra.sweep.subdir"))

    def digest(self, tree: DictConfig) -> str | None:
        """Of a job's configuration; None where it does not hold, which the job itself will say."""
        try:
            with current(tree):
                return running.digest(checked(plain(tree, self.words)).config)
        except REFUSALS:
            return None


@final
class _Overseer(Launcher):
    """Launches what is left to do, and keeps count.

    Args:
        launcher: Hydra's.
        jobs: how they are composed.
        course: where the count is kept.
        finished: what had finished before, None in a new sweep.
    """

    def __init__(self, launcher: Launcher, jobs: _Jobs, course: Course, finished: resuming.Finished | None) -> None:
        self._launcher, self._jobs, self._course, self._finished = launcher, jobs, course, finished

    def setup(self, *, hydra_context: HydraContext, task_function: TaskFunction, config: DictConfig) -> None:
        """Everything is set up already."""

    def launch(self, job_overrides: Sequence[Sequence[str]], initial_job_idx: int) -> Sequence[JobReturn]:
        jobs = [_Job(initial_job_idx + place, tuple(lines)) for place, lines in enumerate(job_overrides)]
        batches = [jobs] if self._finished is None else self._left(jobs, self._finished)
        resuming.note_begun(self._jobs.sweep, self._jobs.begun)
        returns = [one for batch in batches for one in self._launched(batch)]
        # a failure that Hydra's own sweeper is told of would end the sweep after this batch
        return [one for one in returns if one.status is not JobStatus.FAILED] if self._jobs.basic else returns

    def _launched(self, jobs: Sequence[_Job]) -> Sequence[JobReturn]:
        course = self._course
        try:
            returns = self._launcher.launch([job.lines for job in jobs], initial_job_idx=jobs[0].number)
        except BaseException as error:
            self._count_folders(jobs, error)
            if isinstance(error, Exception) and self._jobs.basic:
                return []
            raise
        for one in returns:
            if one.status is JobStatus.FAILED:
                folder = Path(str(one.hydra_cfg.hydra.runtime.output_dir))  # type: ignore[union-attr] # set by run_job
                course.failed[folder] = _failure(one._return_value)  # noqa: SLF001 # its property would print and raise
            else:
                course.finished += 1
        return returns

    def _count_folders(self, jobs: Sequence[_Job], error: BaseException) -> None:
        """What jobs left behind, where an interrupt or a worker that died took the launcher's answer with it."""
        for job in jobs:
            folder = job.folder or self._jobs.folder(self._jobs.composed(job))
            said = folder / resuming.ERROR
            if resuming.finished(folder) is not None:
                self._course.finished += 1
            elif said.is_file():
                self._course.failed[folder] = JobError(status(error), said.read_text(encoding="utf-8").rstrip())
            elif isinstance(error, Exception):
                self._course.failed[folder] = _failure(error)
            else:
                self._course.unrun += 1

    def _left(self, jobs: Sequence[_Job], finished: resuming.Finished) -> list[list[_Job]]:
        """The jobs that have not finished, as they can be launched together."""
        require(resuming.KEY, self._jobs.basic, "left out with a sweeper that searches", self._jobs.sweep.name)
        trees = {job: self._jobs.composed(job) for job in jobs}
        own = {job: self._own_folder(tree) for job, tree in trees.items()}
        digests = {job: self._jobs.digest(tree) for job, tree in trees.items()}
        done = {job for job in jobs if finished.take(digests[job], own[job])}
        done |= {job for job in jobs if job not in done and finished.take(digests[job])}
        self._course.before += len(done)
        sys.stderr.write(f"specfw: {resuming.KEY}: {len(done)} of {len(jobs)} jobs have finished before\n")
        taken: set[Path] = set()
        left = [self._placed(job, own[job], finished, taken) for job in jobs if job not in done]
        numbered = any("${hydra" in repr(plain(trees[job], self._jobs.words)) for job in jobs)
        return _consecutive(left) if numbered else [left] if left else []

    def _own_folder(self, tree: DictConfig) -> Path:
        """Where a job writes, which may be emptied before it runs again."""
        folder, sweep = self._jobs.folder(tree).resolve(), self._jobs.sweep.resolve()
        within = folder != sweep and folder.is_relative_to(sweep)
        allowed = f"a folder in the sweep's for {resuming.KEY}"
        require("hydra.sweep.subdir", within, allowed, str(tree.hydra.sweep.subdir))
        return folder

    def _placed(self, job: _Job, own: Path, finished: resuming.Finished, taken: set[Path]) -> _Job:
        """A job in its folder, emptied of what an earlier try left; beside it where another job's record lies."""
        places = itertools.chain([own], (own.with_name(f"{own.name}-{count}") for count in itertools.count(2)))
        folder = next(place for place in places if not finished.at(place) and place not in taken)
        taken.add(folder)
        if folder.is_dir():
            resuming.clear(folder, everything=True)
        # numbers of a launch are consecutive, so the folder is said
        subdir = f"hydra.sweep.subdir={quoted(folder.relative_to(self._jobs.sweep.resolve()))}"
        return _Job(job.number, (*job.lines, subdir), folder)


def _failure(error: Any) -> JobError:
    return error if isinstance(error, JobError) else JobError(status(error), described(error))


def _consecutive(jobs: Sequence[_Job]) -> list[list[_Job]]:
    """Runs of jobs whose numbers follow one another."""
    numbered = enumerate(jobs)
    return [[job for _, job in run] for _, run in itertools.groupby(numbered, lambda one: one[1].number - one[0])]
