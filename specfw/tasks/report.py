"""Report: any number of runs gathered into one table."""

import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple, final

from specfw.files import write_whole
from specfw.registry import register, require
from specfw.study import markdown, parquet
from specfw.study.gathered import Study
from specfw.study.gathering import gather
from specfw.study.rows import columns, csv_text
from specfw.study.shown import line, show
from specfw.tasks.base import Job, Task

Writer = Callable[[Study, Path], None]

WRITERS: dict[str, Writer] = {
    "report.parquet": lambda study, path: parquet.write(columns(study), path),
    "report.csv": lambda study, path: write_whole(path, csv_text(columns(study))),
    "report.md": lambda study, path: write_whole(path, markdown.page(study)),
}
"""What writes each file of a report."""


class Reported(NamedTuple):
    """A finished report.

    Attributes:
        study: everything that was read.
        folder: where the files are.
        line: what stands on stdout.
    """

    study: Study
    folder: Path
    line: str

    @property
    def passed(self) -> bool:
        """Whether anything was read; verdicts of runs are told, and are not the report's."""
        return True


@final
@register("task")
@dataclass(frozen=True, kw_only=True)
class Report(Task):
    """One line on stdout, a table on stderr, and report.parquet, report.csv and report.md in the folder.

    Attributes:
        source: folders, each a run, a sweep or anything above them.
    """

    source: tuple[str, ...]

    def __post_init__(self) -> None:
        some = bool(self.source) and all(one.strip() for one in self.source)
        require("source", some, "a list of at least one folder", list(self.source))

    def run(self, job: Job) -> Reported:
        parquet.require_duckdb()
        study = parquet.counted(gather(self.source, leave_out=job.folder))
        for name, write in WRITERS.items():
            write(study, job.folder / name)
        show(study, [job.folder / name for name in WRITERS])
        said = line(study)
        sys.stdout.write(f"{said}\n")
        return Reported(study, job.folder, said)
