"""A sweep of the command line: its jobs through Hydra's sweeper and launcher, counted, and gone on with."""

import itertools
import sys
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any, final

from specfw import backend
from specfw.config import resuming, running
from specfw.config.composing import plain
from specfw.config.course import Course
from specfw.config.failures import JobError, JobInterrupt, described, interruptible, status
from specfw.config.holding import LOCK, held
from specfw.config.jobs import Job, Jobs, consecutive
from specfw.config.loading import JobsLoader
from specfw.config.overrides import Words
from specfw.registry import require
from specfw.study.escaping import quoted

from hydra._internal.hydra import Hydra
from hydra.core.plugins import Plugins
from hydra.core.utils import JobReturn, JobStatus
from hydra.plugins.launcher import Launcher
from hydra.types import HydraContext, TaskFunction
from omegaconf import DictConfig

_OF_HYDRA = "multirun.yaml"


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
        new = [one for one in (folder, *folder.parents) if not one.exists()]
        hold.enter_context(held(folder, resuming.KEY if resume else "hydra.sweep.dir"))
        hold.callback(lambda: _unmake(new) if course.folder is None else None)
        course.earlier = sweep.earlier
        jobs = Jobs(words, hydra_context.config_loader, config, folder, sweep)
        return _Overseer(launcher, jobs, course, None if resume is None else resuming.Finished(folder))

    plugins.instantiate_launcher = made
    with ExitStack() as hold:
        hold.callback(vars(plugins).pop, "instantiate_launcher", None)
        yield


def _unmake(folders: Sequence[Path]) -> None:
    """Remove the folders that were made for a sweep of which nothing was begun, the innermost first."""
    with suppress(OSError):
        for folder in folders:
            for name in (LOCK, _OF_HYDRA):
                (folder / name).unlink(missing_ok=True)
            folder.rmdir()


@final
class _Overseer(Launcher):
    """Launches what is left to do, and keeps count.

    Args:
        launcher: Hydra's.
        jobs: how they are composed.
        course: where the count is kept.
        finished: what had finished before, None in a new sweep.
    """

    def __init__(self, launcher: Launcher, jobs: Jobs, course: Course, finished: resuming.Finished | None) -> None:
        self._launcher, self._jobs, self._course, self._finished = launcher, jobs, course, finished

    def setup(self, *, hydra_context: HydraContext, task_function: TaskFunction, config: DictConfig) -> None:
        """Everything is set up already."""

    def launch(self, job_overrides: Sequence[Sequence[str]], initial_job_idx: int) -> Sequence[JobReturn]:
        jobs = [Job(initial_job_idx + place, tuple(lines)) for place, lines in enumerate(job_overrides)]
        waiting = deque([jobs] if self._finished is None else self._left(jobs, self._finished))
        others = self._finished.others if self._finished else 0
        known = len(jobs) + others if self._jobs.at_once else None
        resuming.note_begun(self._jobs.sweep, self._jobs.begun._replace(jobs=known))
        self._course.folder = self._jobs.sweep
        returns: list[JobReturn] = []
        try:
            while waiting:
                returns += self._launched(waiting.popleft(), waiting)
        finally:
            self._course.unrun += sum(map(len, waiting))
        # a failure that Hydra's own sweeper is told of would end the sweep after this batch
        return [one for one in returns if one.status is not JobStatus.FAILED] if self._jobs.basic else returns

    def _launched(self, jobs: Sequence[Job], waiting: deque[list[Job]]) -> Sequence[JobReturn]:
        course = self._course
        try:
            with interruptible():
                returns = self._launcher.launch([job.lines for job in jobs], initial_job_idx=jobs[0].number)
        except BaseException as error:
            left = self._count_folders(jobs, error)
            if not isinstance(error, Exception):
                ended = isinstance(error, JobInterrupt) and error.folder.resolve() in map(Path.resolve, left)
                course.interrupted += ended
                course.unrun += len(left) - ended
                raise
            if self._jobs.in_order and len(jobs) > 1:  # one that cannot be begun is found, and the others run
                waiting.extendleft([job] for job in reversed(list(left.values())))
                return []
            course.failed |= dict.fromkeys(left, _failure(error))
            if self._jobs.basic:
                return []
            raise
        for one in returns:
            if one.status is JobStatus.FAILED:
                folder = Path(str(one.hydra_cfg.hydra.runtime.output_dir))  # type: ignore[union-attr] # set by run_job
                course.failed[folder] = _failure(one._return_value)  # noqa: SLF001 # its property would print and raise
            else:
                course.finished += 1
        return returns

    def _count_folders(self, jobs: Sequence[Job], error: BaseException) -> dict[Path, Job]:
        """What jobs left behind, where an interrupt or a worker that died took the launcher's answer with it.

        Returns:
            The jobs that left nothing, by their folders.
        """
        left = {}
        for job in jobs:
            folder = job.folder or self._jobs.folder(self._jobs.composed(job))
            if resuming.finished(folder) is not None:
                self._course.finished += 1
            elif (said := resuming.failed(folder)) is None:
                left[folder] = job
            elif isinstance(error, KeyboardInterrupt) and said == described(error):  # it reached workers as well
                self._course.interrupted += 1
            else:
                self._course.failed[folder] = JobError(status(error), said)
        return left

    def _left(self, jobs: Sequence[Job], finished: resuming.Finished) -> list[list[Job]]:
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
        # Hydra counts on from the first number of a launch, so only in runs of numbers is each job's its own
        own_numbers = self._jobs.in_order or any("${hydra" in repr(plain(trees[job], self._jobs.words)) for job in jobs)
        return consecutive(left) if own_numbers else [left] if left else []

    def _own_folder(self, tree: DictConfig) -> Path:
        """Where a job writes, which may be emptied before it runs again."""
        folder, sweep = self._jobs.folder(tree).resolve(), self._jobs.sweep.resolve()
        within = folder != sweep and folder.is_relative_to(sweep)
        allowed = f"a folder in the sweep's for {resuming.KEY}"
        require("hydra.sweep.subdir", within, allowed, str(tree.hydra.sweep.subdir))
        return folder

    def _placed(self, job: Job, own: Path, finished: resuming.Finished, taken: set[Path]) -> Job:
        """A job in its folder, emptied of what an earlier try left; beside it where another job's record lies."""
        places = itertools.chain([own], (own.with_name(f"{own.name}-{count}") for count in itertools.count(2)))
        folder = next(place for place in places if not finished.at(place) and place not in taken)
        taken.add(folder)
        with suppress(OSError):  # of a folder that is not there, or of one whose job will say what is wrong with it
            resuming.clear(folder, everything=True)
        # numbers of a launch are consecutive, so the folder is said
        subdir = f"hydra.sweep.subdir={quoted(folder.relative_to(self._jobs.sweep.resolve()))}"
        return Job(job.number, (*job.lines, subdir), folder)


def _failure(error: Any) -> JobError:
    return error if isinstance(error, JobError) else JobError(status(error), described(error))
