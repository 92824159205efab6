"""How a sweep went: its jobs counted, and those that failed named."""

import shlex
import sys
from dataclasses import dataclass, field
from pathlib import Path

from specfw.config.failures import JobError
from specfw.config.resuming import KEY
from specfw.study.escaping import one_line, word


@dataclass
class Course:
    """How a sweep went.

    Attributes:
        folder: of the sweep, None before anything of it was begun.
        finished: jobs that finished.
        before: jobs that had finished before.
        interrupted: jobs that an interrupt ended.
        unrun: jobs that it left.
        earlier: words of the sweep that others have replaced.
        failed: what went wrong, by the folders of the jobs it went wrong in.
    """

    folder: Path | None = None
    finished: int = 0
    before: int = 0
    interrupted: int = 0
    unrun: int = 0
    earlier: tuple[tuple[str, ...], ...] = ()
    failed: dict[Path, JobError] = field(default_factory=dict)

    def tell(self) -> None:
        """Say on stderr what became of the jobs, and how to go on."""
        if self.folder is None:
            return
        counts = {"finished": self.finished, "failed": len(self.failed)}
        more = {"finished before": self.before, "interrupted": self.interrupted, "not run": self.unrun}
        counts |= {word: count for word, count in more.items() if count}
        said = ", ".join(f"{count} {word}" for word, count in counts.items())
        lines = [f"sweep: {said}: {self.folder}"]
        lines += [f"failed: {folder}: {error.text.splitlines()[-1]}" for folder, error in self.failed.items()]
        if self.failed or self.interrupted or self.unrun:
            lines.append(f"to go on: {_command(self.folder)}")
        lines += [
            f"replaced words, whose other jobs are not counted: {_command(self.folder, *words)}"
            for words in self.earlier
        ]
        sys.stderr.write("".join(f"specfw: {one_line(line)}\n" for line in lines))


def _command(folder: Path, *words: str) -> str:
    """What goes on with a sweep, to be pasted into a shell."""
    return shlex.join(["python", "-m", "specfw", *words, f"{KEY}={word(folder)}"])
