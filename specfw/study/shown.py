"""What a terminal shows of a report: one line on stdout, and the pooled table on stderr."""

from collections.abc import Iterator, Sequence
from pathlib import Path

from specfw.console import on_stderr, table
from specfw.study.escaping import one_line, shortened
from specfw.study.gathered import Study
from specfw.study.tables import Cell, Table, checks, others, pooled

from rich.console import Console

_LOG_WIDTH = 160
_ROWS, _KEYS, _PROBLEMS, _CELL, _LISTED, _NAME, _NAMED = 40, 4, 10, 32, 100, 120, 12


def line(study: Study) -> str:
    """The one line that says what was read; its shape is pinned by a test."""
    found = [run.row.standing for run in study.runs]
    counted = " ".join(f"{name}={found.count(name)}" for name in ("passed", "failed", "unchecked", "interrupted"))
    return f"[Report] runs={len(study.runs)} {counted} others={len(study.others)} problems={len(study.problems)}"


def show(study: Study, files: Sequence[Path]) -> None:
    """Print the tables, what is not in them, and where everything is."""
    console = on_stderr(_LOG_WIDTH)
    if study.runs:
        found = pooled(study, _KEYS)
        _print(console, checks(found))
        if found.left_out:
            console.print(f"not shown: {_named(found.left_out)}", soft_wrap=True)
    for one in others(study):
        _print(console, one)
    for problem in study.problems[:_PROBLEMS]:
        console.print(f"{shortened(one_line(problem.name), _NAME)}: {problem.sentence}", soft_wrap=True)
    if len(study.problems) > _PROBLEMS:
        console.print(f"{len(study.problems) - _PROBLEMS} more in the page", soft_wrap=True)
    for path in files:
        console.print(f"report: {path}", soft_wrap=True)


def _print(console: Console, one: Table) -> None:
    console.print(table([_plain(cell) for cell in one.head], list(_rows(one))))
    if len(one.rows) > _ROWS:
        console.print(f"{len(one.rows) - _ROWS} more rows in the files", soft_wrap=True)


def _named(keys: Sequence[Cell]) -> str:
    more = f" and {len(keys) - _NAMED} more" if len(keys) > _NAMED else ""
    return ", ".join(map(_plain, keys[:_NAMED])) + more


def _rows(one: Table) -> Iterator[list[str]]:
    for row in one.rows[:_ROWS]:
        yield [_plain(cell) for cell in row]


def _plain(cell: str | Cell) -> str:
    if isinstance(cell, str):
        return cell
    return shortened(one_line(cell.text), _LISTED if cell.listed else _CELL)
