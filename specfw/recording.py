"""The record of a run: events, tokens and summary in its folder, words for the user on stderr.

The only user of structlog. Nothing is configured globally, so two runs in one process cannot write into each
other's files. Every file is written under another name and renamed when whole.
"""

import json
import math
import sys
import time
from collections.abc import Iterable, Mapping, MutableMapping
from pathlib import Path
from typing import Any, TextIO

from specfw.acceptance.base import AcceptanceRule
from specfw.console import animated
from specfw.files import EVENTS, SUMMARY, TOKENS, write_whole
from specfw.types import Outcome

import numpy as np
import structlog

_SHORT = 100
_EVERY_S = 10.0
# on a terminal these would stand in the middle of the text, and the table at the end says more
_ONLY_IN_THE_FILE = ("memory_estimated", "first_outcome", "run_finished")
_HEAD = ("timestamp", "level", "event")
_BRIEFLY = {
    "run_started": ("seed", "device", "blas", "threads"),
    "rule_active": ("rule", "preserves_target", "decided_by"),
}
_QUIET_DECISIONS = ("configuration", "auto")


def summary_line(rule: AcceptanceRule, decided_by: str, numbers: Mapping[str, Any]) -> str:
    """The one line that proves which rule ran and what it accepted; its shape is pinned by tests."""
    counts = " ".join(f"{name}={numbers[name]}" for name in ("rounds", "proposed", "positions_tested", "accepted"))
    rates = ("per_position_acceptance", "acceptance_rate", "mean_accepted_len")
    shown = " ".join(f"{name}={numbers[name]:.4f}" for name in rates)
    words = rule.label if decided_by in _QUIET_DECISIONS else f"{rule.label}; {decided_by}"
    return f"[Speculative acceptance] rule={rule.id} {counts} {shown} ({words})"


class Record:
    """The files of one run, open while it lasts.

    Attributes:
        folder: where they are written; None keeps no files.
    """

    def __init__(self, folder: Path | None, *, debug: bool = False, quiet: bool = False) -> None:
        """Open the record, the only one in its folder; `debug` keeps one event a round, `quiet` says nothing."""
        self.folder = folder
        if folder is not None:
            for name in (SUMMARY, TOKENS, EVENTS):  # of an earlier run, with which this one must not be mixed
                (folder / name).unlink(missing_ok=True)
        self._events = _Lines(folder, EVENTS)
        self._tokens: _Lines | None = None
        self._seen: set[str] = set()
        self._told = time.monotonic()
        self._debug = debug
        tell = structlog.PrintLogger(sys.stderr)
        console = structlog.dev.ConsoleRenderer(colors=animated())
        self._log = structlog.wrap_logger(
            tell,
            processors=[
                structlog.processors.add_log_level,
                structlog.processors.TimeStamper(fmt="iso", utc=True),
                self._keep,
                _brief if not quiet else _drop,
                console,
            ],
            wrapper_class=structlog.BoundLogger,
            cache_logger_on_first_use=False,
        )

    def event(self, name: str, **fields: Any) -> None:
        """Log an event at level info."""
        self._log.info(name, **fields)

    def warn(self, name: str, **fields: Any) -> None:
        """Log an event at level warning."""
        self._log.warning(name, **fields)

    def round(self, outcome: Outcome) -> None:
        """Log a round, at level debug."""
        if self._debug:
            fields = (
                "round",
                "prompt",
                "sample",
                "position",
                "lengths",
                "proposed",
                "accepted",
                "emitted",
                "degenerate",
            )
            self._log.debug("round", **{name: getattr(outcome, name) for name in fields})

    def first(self, outcome: str, **fields: Any) -> None:
        """Log an outcome the first time it occurs in this run."""
        if outcome not in self._seen:
            self._seen.add(outcome)
            self._log.info("first_outcome", outcome=outcome, **fields)

    def progress(self, role: str, taken: int, of: int) -> None:
        """Log every ten seconds how many of a prompt's tokens a model has taken in."""
        if time.monotonic() - self._told >= _EVERY_S:
            self._told = time.monotonic()
            self._log.info("prefill", role=role, taken=taken, of=of)

    def tokens(self, rows: Iterable[Mapping[str, Any]]) -> None:
        """Append token records."""
        self._tokens = self._tokens or _Lines(self.folder, TOKENS)
        for row in rows:
            self._tokens.write(row)

    def write(self, name: str, text: str) -> None:
        """Write a file of the record, whole or not at all."""
        if self.folder is not None:
            write_whole(self.folder / name, text)

    def close(self, summary: Mapping[str, Any]) -> None:
        """Rename what was written to its own name and write the summary last: it says the record is complete."""
        for lines in (self._events, self._tokens):
            if lines is not None:
                lines.close()
        self.write(SUMMARY, json.dumps(plain(summary), indent=2, allow_nan=False) + "\n")

    def _keep(self, logger: Any, method: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
        self._events.write(event)
        return event


class _Lines:
    """A file of JSON lines under a temporary name until it is closed."""

    def __init__(self, folder: Path | None, name: str) -> None:
        self._path = None if folder is None else folder / name
        self._part = None if folder is None else folder / f".{name}.part"
        self._file: TextIO | None = None if self._part is None else self._part.open("w", encoding="utf-8")

    def write(self, row: Mapping[str, Any]) -> None:
        if self._file is not None:
            self._file.write(json.dumps(plain(row), ensure_ascii=False, allow_nan=False) + "\n")

    def close(self) -> None:
        if self._file is not None and self._part is not None and self._path is not None:
            self._file.close()
            self._part.replace(self._path)


def plain(value: Any) -> Any:
    """`value` as JSON can hold it: numpy and tuples become plain, nan null, infinities words."""
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [plain(item) for item in value]
    if isinstance(value, np.ndarray | np.generic):
        return plain(value.tolist())
    if isinstance(value, float) and not math.isfinite(value):
        return None if math.isnan(value) else str(value)
    return value if isinstance(value, str | int | float | bool | None) else str(value)


def _brief(logger: Any, method: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    """What a reader of stderr wants before the text begins: words and numbers, no trees."""
    if method == "debug" or event["event"] in _ONLY_IN_THE_FILE:
        raise structlog.DropEvent
    shown = _BRIEFLY.get(event["event"], event)
    return {key: event[key] for key in (*_HEAD, *shown) if key in event and _is_short(event[key])}


def _is_short(value: Any) -> bool:
    return isinstance(value, int | float) or (isinstance(value, str) and len(value) <= _SHORT)


def _drop(logger: Any, method: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    raise structlog.DropEvent
