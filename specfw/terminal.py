"""The table at the end of a run, on stderr: what was measured beside what the rule's mathematics says."""

import math
import sys
from collections.abc import Iterator

from specfw.summary import Summary

from rich.console import Console
from rich.table import Table

WORDS = {
    "drafts": "draft tokens follow q (mean transform)",
    "lengths": "accepted given the block",
    "emitted": "emitted tokens follow p, by id",
    "emitted_by_ratio": "emitted tokens follow p, by q/p",
    "closed_form": "per-position acceptance",
}


def show(summary: Summary) -> None:
    """Print the table of checks; nothing when there was nothing to check."""
    rows = list(_rows(summary))
    if not rows:
        return
    console = Console(file=sys.stderr, highlight=False)
    table = Table(title=_title(summary), title_justify="left", box=None, padding=(0, 2, 0, 0))
    for name in ("check", "measured", "law", "n", "z", "log10 e"):
        table.add_column(name, justify="left" if name == "check" else "right")
    for row in rows:
        table.add_row(*row)
    console.print(table)
    if summary.folder is not None:
        console.print(f"record: {summary.folder}", soft_wrap=True)


def _title(summary: Summary) -> str:
    evidence = summary.numbers["log10_e_value"]
    return f"{summary.rule}: {summary.verdict} (log10 e-value {_number(evidence, 2)}, a run fails above 6)"


def _rows(summary: Summary) -> Iterator[tuple[str, ...]]:
    for name, check in summary.numbers["diagnostics"].get("calibration", {}).items():
        count = check["terms"]
        yield (
            WORDS[name],
            _number(check["observed"] / count, 4),
            _number(check["expected"] / count, 4),
            str(count),
            _number(check["z"], 2),
            _number(check["log10_e_value"], 2),
        )
    forms = summary.numbers["diagnostics"].get("closed_forms", {})
    for name in ("sum_min", "sum_prod", "q_at_target_argmax"):
        if not math.isnan(forms.get(name, math.nan)):
            yield name, "", _number(forms[name], 4), "", "", ""


def _number(value: float | None, digits: int) -> str:
    return "-" if value is None or math.isnan(value) else f"{value:.{digits}f}"
