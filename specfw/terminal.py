"""What a terminal shows on stderr: a bar while a long prompt is taken in, and the tables at the end of a run."""

import math
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from specfw.console import on_stderr, table
from specfw.models.base import Progress
from specfw.summary import Summary

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
from rich.progress import Progress as Bar

_LOG_WIDTH = 120
WORDS = {
    "drafts": "draft tokens follow q (mean transform)",
    "lengths": "accepted given the block",
    "emitted": "emitted tokens follow {law}, by id",
    "emitted_by_ratio": "emitted tokens follow {law}, by q/p or p",
    "closed_form": "{places}",
}


@contextmanager
def prompt_bar() -> Iterator[Progress | None]:
    """A bar for prompts of more than one chunk; None where stderr is no terminal."""
    if not sys.stderr.isatty():
        yield None
        return
    columns = (TextColumn("prompt, {task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    console = Console(file=sys.stderr, highlight=False, markup=False)
    bar = Bar(*columns, console=console, transient=True, redirect_stdout=False, redirect_stderr=False)

    def follow(role: str, taken: int, of: int) -> None:
        task = next((task for task in bar.tasks if task.description == role), None)
        if task is None and taken < of:
            bar.add_task(role, total=of, completed=taken)
            bar.start()
        elif task is not None and taken < of:
            bar.update(task.id, completed=taken)
        elif task is not None:
            bar.remove_task(task.id)
            bar.stop()

    try:
        yield follow
    finally:
        bar.stop()


def show(summary: Summary) -> None:
    """Print the table of checks and the scoreboard, if there was anything to check, and where the record is."""
    console = on_stderr(_LOG_WIDTH)
    rows = list(_rows(summary))
    console.print(_title(summary), soft_wrap=True)
    if rows:
        console.print(table(("check", "measured", "law", "n", "z", "log10 e"), rows))
    scores = summary.numbers["diagnostics"].get("scoreboard", {})
    if len(scores) > 1:
        console.print(table(("accepted a round, on this run's blocks", "law", "less own", "s.e."), _scores(scores)))
    for sentence in _over_prompts(summary):
        console.print(sentence, soft_wrap=True)
    if summary.folder is not None:
        console.print(f"record: {summary.folder}", soft_wrap=True)


def _scores(scores: Mapping[str, Mapping[str, float]]) -> Iterator[tuple[str, ...]]:
    """The rules by what they would have accepted; the run's own is not compared with itself."""
    own, *_ = scores
    for name, found in sorted(scores.items(), key=lambda entry: entry[1]["mean_accepted_len"]):
        compared = ("difference", "standard_error") if name != own else ()
        yield name, _number(found["mean_accepted_len"], 4), *(_number(found[key], 4) for key in compared)


def _over_prompts(summary: Summary) -> Iterator[str]:
    intervals = summary.numbers["diagnostics"].get("population", {}).get("intervals", {})
    for name, found in intervals.items():
        if found is not None:
            yield (
                f"{name} over {found['clusters']} prompts: {_number(found['estimate'], 4)}, 95 % interval "
                f"{_number(found['low'], 4)} .. {_number(found['high'], 4)}, "
                f"design effect {_number(found['design_effect'], 1)}"
            )


def _title(summary: Summary) -> str:
    evidence = summary.numbers["log10_e_value"]
    if evidence is None:
        return f"{summary.rule}: {summary.verdict}"
    return f"{summary.rule}: {summary.verdict} (log10 e-value {_number(evidence, 2)}, a run fails above 6)"


def _rows(summary: Summary) -> Iterator[tuple[str, ...]]:
    law = "p" if summary.numbers["preserves_target"] else "the rule's own row"
    places = "per-position acceptance" if summary.numbers["stops_at_rejection"] else "acceptance at first places"
    for name, check in summary.numbers["diagnostics"].get("calibration", {}).items():
        count = check["terms"]
        yield (
            WORDS[name].format(law=law, places=places),
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
