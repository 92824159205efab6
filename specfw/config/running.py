"""A checked configuration put to work: by a Python caller, or as one job of the command line."""

import os
import sys
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any, cast

from specfw import backend, registry
from specfw.config import resuming
from specfw.config.checks import Checked, checked
from specfw.config.composing import plain
from specfw.config.failures import JobError, JobInterrupt, described, interruptible, status
from specfw.config.overrides import Words
from specfw.config.workers import Origin, origin, settle
from specfw.errors import FailedCheckError
from specfw.files import ERROR, write_whole
from specfw.provenance import digest_of, in_force
from specfw.resolution import choose
from specfw.shelf import Shelf
from specfw.tasks.base import Job, Outcome, Task

from hydra.core.hydra_config import HydraConfig
from omegaconf import DictConfig

OUTPUTS_VARIABLE = "SPECFW_OUTPUTS"

_shelf = Shelf()
"""Of the sweep that runs in this process. A worker is sent its job anew each time, so a job cannot bring it along."""


def run(config: Mapping[str, Any], acceptance: str | None) -> Outcome:
    """Run what `config` says in a new folder; see `specfw.run`."""
    holds = checked(config)
    require_bound(holds.config["backend"])
    now = datetime.now()  # noqa: DTZ005 # folders bear the user's own time, as those Hydra names do
    folder = Path(os.environ.get(OUTPUTS_VARIABLE) or "outputs", f"{now:%Y-%m-%d}", f"{now:%H-%M-%S-%f}")
    folder.mkdir(parents=True)
    return _start(holds, folder.absolute(), acceptance)


def digest(config: Mapping[str, Any]) -> str:
    """What tells the resolved configuration of a command line's job from others, as its record has it.

    Raises:
        ValueError: the environment says of rules what it must not.
    """
    return digest_of(in_force(config, choose(config["acceptance"], os.environ)))


def forget_models() -> None:
    """Let go what the jobs of this process kept for each other."""
    _shelf.clear()


def require_bound(node: Mapping[str, Any]) -> None:
    """Refuse a `backend` that this process did not begin with and cannot get any more.

    Raises:
        ValueError: it asks for another BLAS, or another number of its threads.
    """
    blas, threads = node["blas"], node["threads"]
    bound = backend.bind()
    if not bound.satisfies(blas, threads):
        raise ValueError(
            f"backend must be what this process began with (blas={bound.blas} threads={bound.threads}), got "
            f"blas={blas} threads={threads}: write it on the command line or set SPECFW_BLAS and "
            "SPECFW_BLAS_THREADS"
        )


@dataclass(frozen=True)
class CommandLineJob:
    """What Hydra calls for every job, in this process or in a launcher's worker.

    Attributes:
        words: of the command line.
        sweep: whether this is one of many jobs.
        began: the process that the command was given to.
    """

    words: Words
    sweep: bool
    began: Origin = field(default_factory=origin)

    def __call__(self, tree: DictConfig) -> float | None:
        """Run one job; a failure leaves its sentence in the job's folder as error.txt.

        Returns:
            What `task.objective` names, for a sweeper that searches; None where it names nothing.

        Raises:
            JobError: a job of a sweep failed; the others go on.
            JobInterrupt: an interrupt ended the job, and the sweep with it.
            SystemExit: the one job of a run failed.
        """
        folder = Path(HydraConfig.get().runtime.output_dir)
        resuming.clear(folder)
        came = self._came_to(tree, folder)
        if not isinstance(came, JobError):
            return came
        # raised outside of any handler: a sweep keeps its errors, and through a traceback they would keep the models
        sys.stderr.write(f"specfw: {came.text}\n")
        if self.sweep:
            raise came
        raise SystemExit(came.status)  # what Hydra would report is said already

    def _came_to(self, tree: DictConfig, folder: Path) -> float | JobError | None:
        try:
            with interruptible():
                return self._run(tree, folder)
        except (Exception, KeyboardInterrupt) as error:
            if isinstance(error, KeyboardInterrupt) and self.began.is_here():
                # ends the sweep; in a worker, whose scheduler may end it, one job
                raise JobInterrupt(folder) from error
            # whatever it is, the folder says it and other jobs run on
            failure = JobError(status(error), described(error))
            with suppress(OSError):  # a folder that is full or gone does not hide what went wrong
                resuming.clear(folder)
                write_whole(folder / ERROR, failure.text + "\n")
            return failure

    def _run(self, tree: DictConfig, folder: Path) -> float | None:
        settle(self.began)
        registry.load_plugins(self.words.plugins)
        holds = checked(plain(tree, self.words))
        require_bound(holds.config["backend"])
        outcome = _start(holds, folder, None, _shelf if self.sweep else None)
        if not outcome.passed:
            raise FailedCheckError(f"a check of the run failed, its record is in {folder}")
        if self.sweep:
            resuming.note_finished(folder, digest(holds.config))
        return _task(holds).objective_of(outcome)


def _start(holds: Checked, folder: Path, acceptance: str | None, shelf: Shelf | None = None) -> Outcome:
    return _task(holds).run(Job(holds.config, holds.unresolved, folder, acceptance, shelf))


def _task(holds: Checked) -> Task:
    return cast("Task", registry.build("task", holds.config["task"], "task"))
