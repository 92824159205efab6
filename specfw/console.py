"""Tables and sentences on stderr; stdout is for the text and for one line."""

import os
import sys
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from rich.console import Console
from rich.table import Table


class Size(NamedTuple):
    """Of a terminal, in cells."""

    columns: int
    rows: int


def animated() -> bool:
    """Whether stderr may be coloured and drawn over: a terminal, and nobody who asked for plain lines.

    NO_COLOR (no-color.org), a terminal that knows no cursor (TERM=dumb, or none) and continuous integration (CI) ask.
    """
    plain = os.environ.get("NO_COLOR") or os.environ.get("CI", "").lower() not in ("", "0", "false")
    return sys.stderr.isatty() and not plain and os.environ.get("TERM", "") not in ("", "dumb", "unknown")


def terminal_size() -> Size:
    """Of the terminal that stderr is."""
    try:
        columns, rows = os.get_terminal_size(sys.stderr.fileno())
    except (OSError, ValueError):
        columns = rows = 0
    return Size(columns or 80, rows or 24)  # a terminal that nobody gave a size says 0


def on_stderr(log_width: int) -> Console:
    """A console; a log file has no width of its own, so it is given one in which no row breaks."""
    width = terminal_size().columns if sys.stderr.isatty() else log_width
    return Console(file=sys.stderr, highlight=False, markup=False, emoji=False, width=width)


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> Table:
    """Plain columns, the first one to the left."""
    made = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, header_style="")
    for place, name in enumerate(head):
        made.add_column(name, justify="right" if place else "left", overflow="fold")
    for row in rows:
        made.add_row(*row)
    return made
