"""What stands on stderr at the end of a run: the tables of what was measured beside its law."""

import math
from collections.abc import Iterator, Mapping

from specfw.console import on_stderr, table
from specfw.summary import Summary

from rich.console import Console
from rich.table import Table

_LOG_WIDTH = 120
HEAD = ("measured", "law", "n", "z", "log10 e")
_LEFT_OUT = ((), ("n",), ("n", "log10 e"), ("n", "z", "log10 e"))
MIB = 2**20
WORDS = {
    "drafts": "draft tokens follow q (mean transform)",
    "lengths": "accepted given the block",
    "emitted": "emitted tokens follow {law}, by id",
    "emitted_by_ratio": "emitted tokens follow {law}, by q/p or p",
    "closed_form": "{places}",
}


def show(summary: Summary) -> None:
    """Print the table of checks and the scoreboard, if there was anything to check, and where the record is."""
    console = on_stderr(_LOG_WIDTH)
    console.print(_title(summary), soft_wrap=True)
    if checks := _checks(summary, console):
        console.print(checks)
    scores = summary.numbers["diagnostics"].get("scoreboard", {})
    if len(scores) > 1:
        console.print(table(("accepted a round, on this run's blocks", "law", "less own", "s.e."), _scores(scores)))
    for sentence in (*_over_prompts(summary), *_speed(summary)):
        console.print(sentence, soft_wrap=True)
    if summary.folder is not None:
        console.print(f"record: {summary.folder}", soft_wrap=True)


def _checks(summary: Summary, console: Console) -> Table | None:
    """The checks in the longest form that fits the terminal: full words, else the record's names, else less columns."""
    rows = list(_rows(summary))
    unbounded = console.options.update_width(_LOG_WIDTH)
    forms = (("words", ()), *(("name", left_out) for left_out in _LEFT_OUT))
    for said, left_out in forms if rows else ():
        kept = [head for head in HEAD if head not in left_out]
        made = table(("check", *kept), [(row[said], *(row[head] for head in kept)) for row in rows])
        if console.measure(made, options=unbounded).maximum <= console.width:
            return made
    return made if rows else None


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


def _speed(summary: Summary) -> Iterator[str]:
    found = summary.numbers["diagnostics"].get("throughput", {})
    if summary.numbers["emitted"] and found:
        yield (
            f"{summary.numbers['emitted']} tokens, {_number(found['tokens_per_s'], 1)} tokens/s, "
            f"peak memory {_number(found['peak_memory_bytes'] / MIB, 0)} MiB"
        )


def _title(summary: Summary) -> str:
    evidence = summary.numbers["log10_e_value"]
    law = "" if summary.numbers["preserves_target"] else " against the rule's own law, not the target's"
    if evidence is None:
        return f"{summary.rule}: {summary.verdict}{law}"
    return f"{summary.rule}: {summary.verdict}{law} (log10 e-value {_number(evidence, 2)}, a run fails above 6)"


def _rows(summary: Summary) -> Iterator[dict[str, str]]:
    law = "p" if summary.numbers["preserves_target"] else "the rule's own row"
    places = "per-position acceptance" if summary.numbers["stops_at_rejection"] else "acceptance at first places"
    for name, check in summary.numbers["diagnostics"].get("calibration", {}).items():
        count = check["terms"]
        yield {
            "name": name,
            "words": WORDS[name].format(law=law, places=places),
            "measured": _number(check["observed"] / count, 4),
            "law": _number(check["expected"] / count, 4),
            "n": str(count),
            "z": _number(check["z"], 2),
            "log10 e": _number(check["log10_e_value"], 2),
        }
    forms = summary.numbers["diagnostics"].get("closed_forms", {})
    for name in ("sum_min", "sum_prod", "q_at_target_argmax"):
        if not math.isnan(forms.get(name, math.nan)):
            yield _alone(name, "law", forms[name])
    distortion = forms.get("first_position", {}).get("distortion", math.nan)
    if not math.isnan(distortion):
        yield _alone("distortion", "law", distortion)
    if forms.get("distortion_lower_bound") is not None:
        yield _alone("distortion_lower_bound", "measured", forms["distortion_lower_bound"])


def _alone(name: str, head: str, value: float) -> dict[str, str]:
    return {"name": name, "words": name, **dict.fromkeys(HEAD, ""), head: _number(value, 4)}


def _number(value: float | None, digits: int) -> str:
    return "-" if value is None or math.isnan(value) else f"{value:.{digits}f}"
