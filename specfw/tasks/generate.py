"""Generate: decode the prompts, stream the text, keep the record. The main job, and the default."""

import os
import sys
from dataclasses import dataclass
from typing import Any, final

from specfw.experiment import run
from specfw.live import display
from specfw.registry import register, require
from specfw.summary import Summary
from specfw.tasks.base import Job, Task
from specfw.terminal import show

OBJECTIVES = {
    "tokens_per_s": ("diagnostics", "throughput", "tokens_per_s"),
    "mean_accepted_len": ("mean_accepted_len",),
    "mean_tokens_per_round": ("mean_tokens_per_round",),
    "per_position_acceptance": ("per_position_acceptance",),
    "acceptance_rate": ("acceptance_rate",),
}
"""What a search may make large, and where it stands in summary.json."""


@final
@register("task")
@dataclass(frozen=True, kw_only=True)
class Generate(Task):
    """One run: text and the summary line on stdout, words and numbers on stderr, everything in the folder.

    Attributes:
        objective: the number that the run returns to a sweeper that searches, in `OBJECTIVES`; None returns nothing.
    """

    objective: str | None = None

    def __post_init__(self) -> None:
        allowed = f"null or one of: {', '.join(OBJECTIVES)}"
        require("objective", self.objective is None or self.objective in OBJECTIVES, allowed, self.objective)

    def run(self, job: Job) -> Summary:
        timed = job.config["diagnostics"]["throughput"]["enabled"]
        if self.objective == "tokens_per_s" and not timed:
            raise ValueError("task.objective=tokens_per_s needs diagnostics.throughput.enabled to be true, got False")
        with display(_say) as shown:
            try:
                summary = run(
                    job.config,
                    unresolved=job.unresolved,
                    folder=job.folder,
                    acceptance=job.acceptance,
                    shelf=job.shelf,
                    write=shown.say if shown else _say,
                    progress=shown.prompt if shown else None,
                    watcher=shown,
                )
            except KeyboardInterrupt:
                sys.stderr.write(f"record: {job.folder}\n")
                raise
        show(summary)
        return summary

    def objective_of(self, outcome: Summary) -> float | None:
        if self.objective is None:
            return None
        number: Any = outcome.numbers
        for key in OBJECTIVES[self.objective]:
            number = number[key]
        return float(number)


def _say(text: str) -> None:
    try:
        sys.stdout.write(text)
        sys.stdout.flush()
    except BrokenPipeError:
        # the reader has left: an interrupt, whose record is complete, and nothing more to say
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise KeyboardInterrupt from None
