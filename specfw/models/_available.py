"""How much memory this process may still take."""

import sys
from collections.abc import Iterator
from pathlib import Path

import mlx.core as mx

PROC, GROUPS = Path("/proc"), Path("/sys/fs/cgroup")

_FILES = {"": ("memory.max", "memory.current"), "memory": ("memory.limit_in_bytes", "memory.usage_in_bytes")}
"""Limit and use of a control group, by the controllers of its line: version 2, version 1."""


def available(held: int = 0) -> int | None:
    """Bytes that this process may take beside all but `held` of what it has; None where the system does not say.

    The memory of a GPU or a Mac; elsewhere on Linux what is available without swapping, within the limits of the
    control groups (containers, jobs of a scheduler) that the process is in.
    """
    named = mx.device_info().get("memory_size") or mx.device_info().get("total_memory")
    if named is not None or not sys.platform.startswith("linux"):
        return None if named is None else int(named)
    free = min((*_free(), *_groups()), default=None)
    return None if free is None else free + held


def _free() -> Iterator[int]:
    numbers = _numbers(PROC / "meminfo")
    if "MemAvailable:" in numbers:
        yield numbers["MemAvailable:"] * 1024


def _groups() -> Iterator[int]:
    try:
        lines = (PROC / "self/cgroup").read_text().splitlines()
    except OSError:
        return
    for line in lines:
        _, controllers, path = line.split(":", 2)
        if controllers in _FILES:
            top = GROUPS / controllers
            group = top / path.lstrip("/")
            for folder in (group, *group.parents):
                if folder.is_relative_to(top):
                    yield from _left(folder, *_FILES[controllers])


def _left(group: Path, limit: str, used: str) -> Iterator[int]:
    """What a control group has left: pages of files can be given back."""
    try:
        most, taken = (int((group / name).read_text()) for name in (limit, used))
    except (OSError, ValueError):  # no such group, or no limit: "max"
        return
    stat = _numbers(group / "memory.stat")
    files = sum(stat.get(prefix + "active_file", 0) for prefix in ("", "in"))
    yield max(most - taken + files, 0)


def _numbers(path: Path) -> dict[str, int]:
    """A file of lines `name number`."""
    try:
        words = [line.split() for line in path.read_text().splitlines()]
        return {name: int(number) for name, number, *_ in words}
    except (OSError, ValueError):
        return {}
