"""How a sweep went: its jobs counted, and those that failed named."""

import sys
from dataclasses import dataclass, field
from pathlib import Path

from specfw.config.failures import JobError
from specfw.config.resuming import KEY


@dataclass
class Course:
    """How a sweep went.

    Attributes:
        folder: of the sweep, None before it has one.
        finished: jobs that finished.
        before: jobs that had finished before.
        unrun: jobs that an interrupt left.
        failed: what went wrong, by the folders of the jobs it went wrong in.
    """

    folder: Path | None = None
    finished: int = 0
    before: int = 0
    unrun: int = 0
    failed: dict[Path, JobError] = field(default_factory=dict)

    def tell(self) -> None:
        """Say on stderr what became of the jobs, and how to go on."""
        if self.folder is None:
            return
        counts = {"finished": self.finished, "failed": len(self.failed)}
        counts |= {word: n for word, n in (("finished before", self.before), ("not run", self.unrun)) if n}
        said = ", ".join(f"{count} {word}" for word, count in counts.items())
        lines = [f"sweep: {said}: {self.folder}"]
        lines += [f"failed: {folder}: {error.text.splitlines()[-1]}" for folder, error in self.failed.items()]
        if self.failed or self.unrun:
            lines.append(f"to go on: python -m specfw {KEY}={self.folder}")
        sys.stderr.write("".join(f"specfw: {line}\n" for line in lines))
