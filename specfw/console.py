"""Tables and sentences on stderr; stdout is for the text and for one line."""

import sys
from collections.abc import Iterable, Sequence

from rich.console import Console
from rich.table import Table


def on_stderr(log_width: int) -> Console:
    """A console; a log file has no width of its own, so it is given one in which no row breaks."""
    width = None if sys.stderr.isatty() else log_width
    return Console(file=sys.stderr, highlight=False, markup=False, width=width)


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> Table:
    """Plain columns, the first one to the left."""
    made = Table(box=None, padding=(0, 2, 0, 0), header_style="")
    for place, name in enumerate(head):
        made.add_column(name, justify="right" if place else "left")
    for row in rows:
        made.add_row(*row)
    return made
