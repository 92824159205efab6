"""What a benchmark shows and leaves: one line, tables on stderr, plain values, a page."""

import math
from collections.abc import Iterable, Mapping
from pathlib import Path
from statistics import median
from typing import Any

from specfw.benchmark.line_up import PLAIN
from specfw.benchmark.report import Report
from specfw.benchmark.tables import Table, sentences, tables
from specfw.console import on_stderr, table
from specfw.recording import plain

_WIDTH = 180


def line(report: Report) -> str:
    """The one line; its shape is pinned by a test."""
    found = report.recommendation
    decided = "no recommendation"
    ratio, best = (math.nan, math.nan, math.nan), "none"
    if found is not None:
        ratio, best = found.ratio, found.best.replace(" ", ",")
        decided = ("plain" if found.choice == PLAIN else "draft") if found.decided else "not decided"
    speed = median(report.found[PLAIN].speeds) if PLAIN in report.found else math.nan
    return (
        f"[Benchmark] arms={len(report.found)} repeats={report.measured.repeats} plain_tokens_per_s={speed:.1f} "
        f"best={best} ratio={ratio[0]:.3f} low={ratio[1]:.3f} high={ratio[2]:.3f} ({decided})"
    )


def record(report: Report, machine: Mapping[str, Any]) -> dict[str, Any]:
    """Everything in plain values, every repeat of every arm among them."""
    found, diagnosed, measured = report.recommendation, report.line_up.diagnosed, report.measured
    taken = [
        {
            "repeat": one.repeat,
            "place": one.place,
            "arm": one.arm,
            "seed": one.seed,
            "seconds": one.timed.seconds,
            "tokens": one.timed.tokens,
            "rounds": one.timed.rounds,
            "peak_memory_bytes": one.peak_bytes,
        }
        for one in measured.taken
    ]
    cost = report.diagnostics
    values = {
        "line": line(report),
        "machine": machine,
        **report.ran._asdict(),
        "repeats": measured.repeats,
        "interrupted": measured.interrupted,
        "left_out": report.line_up.left_out,
        "arms": [one.numbers() for one in report.found.values()],
        "forward_cost": report.costs._asdict(),
        "forward_cost_by_repeat": [costs._asdict() for costs in measured.costs],
        "diagnostics_cost": None if cost is None or diagnosed is None else {"arm": diagnosed[1], **cost._asdict()},
        "recommendation": None if found is None else {**found._asdict(), "ratio": found.ratio._asdict()},
        "why_no_recommendation": report.why_none,
        "taken": taken,
    }
    written: dict[str, Any] = plain(values)
    return written


def show(report: Report, folder: Path) -> None:
    """Print tables and sentences on stderr."""
    say(tables(report), sentences(report), folder)


def say(shown: Iterable[Table], words: Iterable[str], folder: Path) -> None:
    """Print tables, sentences and where the record is."""
    console = on_stderr(_WIDTH)
    for one in shown:
        console.print(table(one.head, one.rows))
    for sentence in words:
        console.print(sentence, soft_wrap=True)
    console.print(f"record: {folder}", soft_wrap=True)
