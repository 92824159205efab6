"""A checked configuration put to work: by a Python caller, or as one job of the command line."""

import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, cast

from specfw import backend, registry
from specfw.config import resuming
from specfw.config.checks import Checked, checked
from specfw.config.composing import plain
from specfw.config.failures import JobError, described, interruptible, status
from specfw.config.overrides import Words
from specfw.errors import FailedCheckError
from specfw.files import write_whole
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
    """

    words: Words
    sweep: bool

    def __call__(self, tree: DictConfig) -> None:
        """Run one job; a failure leaves its sentence in the job's folder as error.txt.

        Raises:
            JobError: a job of a sweep failed; the others go on.
            SystemExit: the one job of a run failed.
        """
        folder = Path(HydraConfig.get().runtime.output_dir)
        resuming.clear(folder)
        failure = self._failure(tree, folder)
        if failure is None:
            return
        # raised outside of any handler: a sweep keeps its errors, and through a traceback they would keep the models
        sys.stderr.write(f"specfw: {failure.text}\n")
        if self.sweep:
            raise failure
        raise SystemExit(failure.status)  # what Hydra would report is said already

    def _failure(self, tree: DictConfig, folder: Path) -> JobError | None:
        try:
            with interruptible():
                self._run(tree, folder)
        except Exception as error:  # noqa: BLE001 # whatever it is, the folder says it and other jobs run on
            failure = JobError(status(error), described(error))
            resuming.clear(folder)
            write_whole(folder / resuming.ERROR, failure.text + "\n")
            return failure
        return None

    def _run(self, tree: DictConfig, folder: Path) -> None:
        registry.load_plugins(self.words.plugins)
        holds = checked(plain(tree, self.words))
        require_bound(holds.config["backend"])
        if not _start(holds, folder, None, _shelf if self.sweep else None).passed:
            raise FailedCheckError(f"a check of the run failed, its record is in {folder}")
        if self.sweep:
            resuming.note_finished(folder, digest(holds.config))


def _start(holds: Checked, folder: Path, acceptance: str | None, shelf: Shelf | None = None) -> Outcome:
    task = cast("Task", registry.build("task", holds.config["task"], "task"))
    return task.run(Job(holds.config, holds.unresolved, folder, acceptance, shelf))
