"""Generate: decode the prompts, stream the text, keep the record. The main job, and the default."""

import os
import sys
from dataclasses import dataclass
from typing import final

from specfw.experiment import run
from specfw.live import display
from specfw.registry import register
from specfw.summary import Summary
from specfw.tasks.base import Job, Task
from specfw.terminal import show


@final
@register("task")
@dataclass(frozen=True, kw_only=True)
class Generate(Task):
    """One run: text and the summary line on stdout, words and numbers on stderr, everything in the folder."""

    def run(self, job: Job) -> Summary:
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


def _say(text: str) -> None:
    try:
        sys.stdout.write(text)
        sys.stdout.flush()
    except BrokenPipeError:
        # the reader has left: an interrupt, whose record is complete, and nothing more to say
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise KeyboardInterrupt from None
