"""Folders that hold a record of any kind, beneath those that were named."""

import os
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from specfw.files import ERROR, EVENTS, JOB, SUMMARY, SWEEP, TOKENS
from specfw.study.gathered import Problem

OTHERS = {name: f"{name}.json" for name in ("audit", "proof", "benchmark", "benchmark_rules")}
MARKS = {SUMMARY, EVENTS, TOKENS, ERROR, *(f".{name}.part" for name in (SUMMARY, EVENTS, TOKENS)), *OTHERS.values()}


class Found(NamedTuple):
    """A folder with a record, finished or not.

    Attributes:
        folder: where it is.
        name: the folder beneath what all sources have in common.
        files: names of what a record may hold and this one does.
    """

    folder: Path
    name: str
    files: frozenset[str]


class Sweep(NamedTuple):
    """The folder of a sweep.

    Attributes:
        folder: where it is.
        name: as of a record.
        named: the folder as the sources spell it.
        finished: jobs in it that have finished.
        failed: jobs in it that have failed.
    """

    folder: Path
    name: str
    named: Path
    finished: int = 0
    failed: int = 0


def find(sources: Sequence[str], leave_out: Path | None = None) -> tuple[list[Found], list[Sweep], list[Problem]]:
    """Every record at or beneath the sources once, `2` before `10`, sweeps, and folders that cannot be looked into.

    Links to folders are not followed beneath a source, nor are folders whose name begins with a dot.

    Args:
        sources: folders.
        leave_out: a folder that is not looked into.

    Raises:
        ValueError: a source is no folder.
    """
    tops = [_folder(source) for source in sources]
    common = Path(os.path.commonpath(tops))
    found: dict[Path, Found] = {}
    sweeps: dict[Path, Sweep] = {}
    ended: dict[Path, str] = {}
    problems: dict[Path, Problem] = {}
    for source, top in zip(sources, tops, strict=True):
        for folder, files in _walk(top, leave_out):
            name = _name(folder, common)
            if isinstance(files, OSError):
                problems[folder] = Problem(name, f"the folder cannot be read: {files.strerror}")
                continue
            if files & MARKS:
                found[folder] = Found(folder, name, files & MARKS)
            if SWEEP in files:
                sweeps[folder] = Sweep(folder, name, Path(source).expanduser() / folder.relative_to(top))
            if files & {JOB, ERROR}:
                ended[folder] = ERROR if ERROR in files else JOB
    in_order = [found[folder] for folder in sorted(found, key=_natural)]
    return in_order, _counted(sweeps, ended), list(problems.values())


def _counted(sweeps: Mapping[Path, Sweep], ended: Mapping[Path, str]) -> list[Sweep]:
    """The sweeps, each with the jobs that ended in it and in no sweep within it."""
    counts = Counter(
        (next((above for above in (folder, *folder.parents) if above in sweeps), None), how)
        for folder, how in ended.items()
    )
    return [
        sweeps[folder]._replace(finished=counts[folder, JOB], failed=counts[folder, ERROR])
        for folder in sorted(sweeps, key=_natural)
    ]


def _folder(source: str) -> Path:
    path = Path(source).expanduser()
    if not path.is_dir():
        raise ValueError(f"task.source must name folders, got {source!r}")
    return path.resolve()


def _walk(top: Path, leave_out: Path | None) -> Iterator[tuple[Path, frozenset[str] | OSError]]:
    """Folders with the names they hold, or the error that hides them."""
    left = [top]
    while left:
        folder = left.pop()
        try:
            with os.scandir(folder) as entries:
                seen = [(entry.name, entry.is_dir(follow_symlinks=False)) for entry in entries]
        except OSError as error:
            yield folder, error
            continue
        yield folder, frozenset(name for name, _ in seen)
        inner = (folder / name for name, is_dir in seen if is_dir and not name.startswith("."))
        left += [path for path in inner if path != leave_out]


def _name(folder: Path, common: Path) -> str:
    beneath = str(folder.relative_to(common))
    return folder.name if beneath == "." else beneath


def _natural(path: Path) -> list[tuple[int, str]]:
    """Numbers in a path by their value."""
    parts = re.split(r"(\d+)", str(path))
    return [(int(part) if part.isdecimal() and part.isascii() else -1, part) for part in parts]
