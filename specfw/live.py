"""What a terminal shows while a run is under way: the line that is being written, and a bar under it.

Text and bar may share a terminal. The bar then holds back what has no end of line yet, shows it above itself, and
takes itself away before whole lines are written: stdout gets the same bytes in the same order as without a bar.
"""

import math
import multiprocessing
import os
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from specfw.console import Size, animated, terminal_size
from specfw.counting import Tally, rate
from specfw.transcript import Writer
from specfw.watching import Watcher

from rich.cells import cell_len, chop_cells

EVERY_S = 0.125
_SPARE = 3  # cells at the right: the ^C of an interrupted terminal must not begin a new row
_LEAST_BAR = 8
_PREVIEW_ROWS = 4


@contextmanager
def display(write: Writer) -> Iterator["Display | None"]:
    """A bar on stderr; None where there is no terminal, where none is wanted, and in a launcher's worker.

    Args:
        write: says text on stdout.
    """
    if not animated() or multiprocessing.parent_process() is not None:
        yield None
        return
    shown = Display(write, shared=_one_terminal(), size=terminal_size)
    try:
        yield shown
    finally:
        shown.end()


class Display(Watcher):
    """A bar, and the text that is held back for it."""

    def __init__(self, write: Writer, *, shared: bool, size: Callable[[], Size]) -> None:
        """Show nothing yet.

        Args:
            write: says text on stdout.
            shared: whether stdout is the bar's own terminal.
            size: of the terminal now.
        """
        self._write, self._shared, self._size = write, shared, size
        self._held = ""
        self._drawn: list[str] = []
        self._latest: float | None = None
        self._began: tuple[float, int] | None = None
        self._over = False

    def say(self, text: str) -> None:
        """Say text on stdout, now or with the next drawing."""
        if self._over or not self._shared:
            self._write(text)
        else:
            self._held += text

    def prompt(self, role: str, taken: int, of: int) -> None:
        """Show how far a prompt of more than one chunk is; see `specfw.models.base.Progress`."""
        if taken < of:
            self._draw(lambda room: of_prompt(role, taken, of, room))

    def round(self, tally: Tally, total: int) -> None:
        now = time.monotonic()
        if self._began is None:
            self._began = now, tally.emitted
        since, before = self._began
        self._draw(lambda room: of_run(tally, total, rate(tally.emitted - before, now - since), room))

    def end(self) -> None:
        """Take the bar away and say what was held back."""
        self._erase()
        self._over = True
        held, self._held = self._held, ""
        if held:
            self._write(held)

    def _draw(self, bar: Callable[[int], str]) -> None:
        now = time.monotonic()
        if self._latest is None:  # a run of a moment shows no bar
            self._latest = now
        if now - self._latest < EVERY_S:
            return
        self._latest = now
        self._erase()
        lines, end, self._held = self._held.rpartition("\n")
        if end:
            self._write(lines + end)
        size = self._size()
        room = max(1, size.columns - _SPARE)
        rows = min(_PREVIEW_ROWS, size.rows - 2)
        self._drawn = [*preview(self._held, room, rows, sys.stderr.encoding or "utf-8"), bar(room)[:room]]
        self._put("\n".join(self._drawn))

    def _erase(self) -> None:
        """A terminal that was made narrower since has broken the rows: they are counted as they lie now."""
        if self._drawn:
            columns = max(1, self._size().columns)
            rows = sum(max(1, math.ceil(cell_len(line) / columns)) for line in self._drawn)
            self._drawn = []
            self._put("\r\x1b[2K" + "\x1b[1A\x1b[2K" * (rows - 1))

    def _put(self, text: str) -> None:
        sys.stderr.write(text)
        sys.stderr.flush()


def preview(text: str, room: int, rows: int, encoding: str = "utf-8") -> list[str]:
    """The last rows of an unfinished line, `room` cells each, with nothing in it that moves a cursor."""
    spelt = text.expandtabs().encode(encoding, "replace").decode(encoding)
    plain = "".join(letter if letter.isprintable() else "?" for letter in spelt)
    return chop_cells(plain, room)[-rows:] if plain and rows > 0 else []


def of_run(tally: Tally, total: int, tokens_per_s: float, room: int) -> str:
    """One line about a run: tokens of all, tokens a second, acceptance so far, time left."""
    counted = tally.numbers()
    each, length = counted["per_position_acceptance"], counted["mean_accepted_len"]
    told = _known(f"acceptance {each:.3f}", each) or _known(f"{length:.2f} accepted a round", length)
    left = _clock((total - tally.emitted) / tokens_per_s) if tokens_per_s > 0 else ""
    long = (f"{tally.emitted}/{total} tokens", _known(f"{tokens_per_s:.1f} tokens/s", tokens_per_s), told)
    terse = _known(f"acc {each:.3f}", each) or _known(f"acc {length:.2f}", length)
    short = (f"{tally.emitted}/{total}", _known(f"{tokens_per_s:.1f} tok/s", tokens_per_s), terse)
    return line(tally.emitted / total, (*long, left and f"{left} left"), (*short, left), room)


def of_prompt(role: str, taken: int, of: int, room: int) -> str:
    """One line about a prompt that is being taken in."""
    counts = f"{taken}/{of}"
    return line(taken / of, (f"prompt, {role}", counts), (f"prompt, {role}", counts), room)


def line(share: float, long: Sequence[str], short: Sequence[str], room: int) -> str:
    """The first form that fits, a bar in the room that is left; else as many of the short parts as fit."""
    for parts in (long, short):
        words = "  ".join(part for part in parts if part)
        if (cells := room - len(words) - 2) >= 0:
            return f"{words}  {_bar(share, cells)}" if cells >= _LEAST_BAR else words
    while len(words := "  ".join(part for part in short if part)) > room and len(short) > 1:
        short = short[:-1]
    return words


def _known(words: str, value: float) -> str:
    """`words` unless the value in them is nan."""
    return "" if math.isnan(value) else words


def _bar(share: float, cells: int) -> str:
    done = int(min(1.0, share) * (cells - 2))
    return f"[{'#' * done}{'.' * (cells - 2 - done)}]"


def _clock(seconds: float) -> str:
    minutes, rest = divmod(math.ceil(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


def _one_terminal() -> bool:
    """Whether stdout is the terminal that stderr is."""
    try:
        out, err = (os.fstat(stream.fileno()).st_rdev for stream in (sys.stdout, sys.stderr))
    except (OSError, ValueError):  # no file: a test's or a notebook's stream
        return sys.stdout.isatty()
    return sys.stdout.isatty() and out == err
