"""A terminal for tests: a real pseudo-terminal under stdout and stderr, and what its screen shows in the end."""

import fcntl
import os
import pty
import re
import struct
import sys
import termios
import threading
import time

from specfw import live

import pytest
from rich.cells import cell_len

MARK = "\0"
STEP = re.compile(r"\x1b\[(\d*)([A-Zam])|(\r)|(\n)|([^\x1b\r\n])")


def shown(raw, columns):
    """The rows of a screen without a bottom: carriage returns, erased rows, cursor up, and long lines that wrap."""
    rows, row, column = [[]], 0, 0
    for count, command, back, down, letter in STEP.findall(raw):
        if command == "A":
            row = max(0, row - int(count or 1))
        elif command == "K":
            rows[row] = []
        elif back:
            column = 0
        elif down or (letter and column + cell_len(letter) > columns):
            row += 1
            column = 0 if letter else column
            rows += [[] for _ in range(row + 1 - len(rows))]
        if letter:
            rows[row] += [" "] * (column - len(rows[row]))
            rows[row][column : column + cell_len(letter)] = [letter, *[""] * (cell_len(letter) - 1)]
            column += cell_len(letter)
    return ["".join(line).rstrip() for line in rows]


class Terminal:
    """A pseudo-terminal of some columns; what is written to `out` is in `raw()`."""

    def __init__(self, columns):
        self.columns = columns
        self._master, slave = pty.openpty()
        self.resize(columns)
        self.out = os.fdopen(slave, "w", encoding="utf-8", newline="")
        self._read, self._asked = bytearray(), 0
        self._reader = threading.Thread(target=self._follow, daemon=True)
        self._reader.start()

    def resize(self, columns):
        self.columns = columns
        fcntl.ioctl(self._master, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))

    def raw(self):
        """Everything so far, as the terminal was given it (with its own carriage returns)."""
        self.out.write(MARK)
        self.out.flush()
        deadline = time.monotonic() + 10
        self._asked += 1
        while self._read.count(MARK.encode()) < self._asked:
            assert time.monotonic() < deadline, "nothing arrives"
            time.sleep(0.001)
        return self._read.decode(errors="replace").replace(MARK, "")

    def screen(self):
        return shown(self.raw(), self.columns)

    def close(self):
        self.out.close()
        self._reader.join(timeout=5)
        os.close(self._master)

    def _follow(self):
        while True:
            try:
                self._read += os.read(self._master, 65536)
            except OSError:  # the other end is closed
                return


@pytest.fixture
def attach(monkeypatch):
    """Called in a test: stderr becomes a terminal, stdout too unless told otherwise; every round is drawn."""
    made = []

    def attached(columns=60, stdout=None):
        made.append(Terminal(columns))
        monkeypatch.setattr(sys, "stdout", stdout or made[0].out)
        monkeypatch.setattr(sys, "stderr", made[0].out)
        return made[0]

    for variable in ("NO_COLOR", "CI", "COLUMNS"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr(live, "EVERY_S", 0)
    yield attached
    monkeypatch.undo()
    for terminal in made:
        terminal.close()
