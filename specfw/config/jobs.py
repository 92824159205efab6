"""The jobs of a sweep, as far as they are known before they run: how they are composed, where they write."""

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from specfw.config import resuming, running
from specfw.config.checks import checked
from specfw.config.composing import current, plain
from specfw.config.overrides import Words

from hydra._internal.core_plugins.basic_launcher import BasicLauncher
from hydra._internal.core_plugins.basic_sweeper import BasicSweeper
from omegaconf import DictConfig, OmegaConf, open_dict


class Job(NamedTuple):
    """A job of a sweep: its number, its overrides, and where it writes if that is known."""

    number: int
    lines: tuple[str, ...]
    folder: Path | None = None


@dataclass(frozen=True)
class Jobs:
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

    @property
    def in_order(self) -> bool:
        """Whether they run one after the other in this process, and no result is needed."""
        return self.basic and str(self.config.hydra.launcher._target_).endswith(f".{BasicLauncher.__name__}")

    @property
    def at_once(self) -> bool:
        """Whether all of them are launched together."""
        return self.basic and OmegaConf.select(self.config, "hydra.sweeper.max_batch_size") is None

    def composed(self, job: Job) -> DictConfig:
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
        """Of a job's configuration; None where it does not hold or breaks, which the job itself will say."""
        try:
            with current(tree):
                return running.digest(checked(plain(tree, self.words)).config)
        except Exception:  # noqa: BLE001 # of a component, whose job fails alone
            return None


def consecutive(jobs: Sequence[Job]) -> list[list[Job]]:
    """Runs of jobs whose numbers follow one another."""
    numbered = enumerate(jobs)
    return [[job for _, job in run] for _, run in itertools.groupby(numbered, lambda one: one[1].number - one[0])]
