"""How many draft tokens a round accepted, beside what the rule's law expects of the same blocks."""

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

from specfw.study.figures.canvas import INK, Key, canvas, colour, label
from specfw.study.figures.figure import Figure, cut, digits, sentences, series
from specfw.study.gathered import Run, Study
from specfw.study.intervals import NORMAL
from specfw.study.pooling import pools
from specfw.study.values import at, number, require

import numpy as np
import numpy.typing as npt

TITLE = "Accepted draft tokens of a round"
LEAD = (
    "Bars: the share of rounds that accepted 0, 1, 2, … draft tokens. Ticks: what the rule's law expects of these "
    "blocks, with the range that holds 95 of 100 right runs."
)
_MOST_RULES = 6
LONGEST = 4096
"""Draft tokens of a round that a picture can show."""

Reals = npt.NDArray[np.float64]


class Lengths(NamedTuple):
    """Rounds of one rule by how many draft tokens they accepted.

    Attributes:
        rule: its id.
        counts: [K+1] rounds.
        law: [2, K+1] what the law expects of each count, and its variance; None where a run did not record it.
    """

    rule: str
    counts: Reals
    law: Reals | None


def draw(study: Study) -> Figure:
    """The figure of a study, a panel for each rule."""
    found = lengths(study)
    if not found:
        return Figure("lengths", TITLE, LEAD, why="No run recorded how many draft tokens its rounds accepted.")
    drawn, rules = found[:_MOST_RULES], series(one.rule for one in found)
    left = f"{len(found) - len(drawn)} more rules are not shown." if len(found) > len(drawn) else ""
    lawless = [one.rule for one in drawn if one.law is None]
    absent = f"Without a recorded law: {', '.join(lawless)}." if lawless else ""
    legend = [rules[one.rule]._replace(shape="bar") for one in drawn]
    rows, rest = cut([row for one in drawn for row in _rows(one)])
    return Figure(
        key="lengths",
        title=TITLE,
        lead=LEAD,
        svg=_picture(drawn, rules),
        legend=(*legend, *([] if len(lawless) == len(drawn) else [Key("law", None, "tick")])),
        head=("rule", "accepted", "rounds", "share", "law", "law's rounds"),
        rows=rows,
        note=sentences("All configurations and seeds of a rule are pooled.", absent, left, rest),
    )


def lengths(study: Study) -> list[Lengths]:
    """The counts of every rule, and its law where all its runs have one."""
    groups: dict[str, list[Run]] = {}
    for pool in pools(study.runs):
        groups.setdefault(pool.rule, []).extend(run for run in pool.runs if _fits(run.row.accepted_lengths))
    return [_pooled(rule, groups[rule]) for rule in series(groups) if groups[rule]]


def _fits(counts: Sequence[int] | None) -> bool:
    return counts is not None and 0 < len(counts) <= LONGEST


def _pooled(rule: str, runs: Sequence[Run]) -> Lengths:
    laws = [_law(run) for run in runs]
    counts = _summed([np.array([run.row.accepted_lengths], dtype=np.float64) for run in runs])
    known = [law for law in laws if law is not None]
    if len(known) < len(runs):
        return Lengths(rule, counts[0], None)
    law = _summed(known)
    wide = max(law.shape[1], counts.shape[1])
    counts, law = (np.pad(one, [(0, 0), (0, wide - one.shape[1])]) for one in (counts, law))
    return Lengths(rule, counts[0], law)


def _summed(parts: Sequence[Reals]) -> Reals:
    """Arrays of different widths, added from the left."""
    wide = max(part.shape[1] for part in parts)
    return np.asarray(sum(np.pad(part, [(0, 0), (0, wide - part.shape[1])]) for part in parts))


def _law(run: Run) -> Reals | None:
    """[2, K+1] expected counts and their variances, None where the record has none or nothing usable."""
    try:
        return np.array([_numbers(run, entry) for entry in ("expected", "variance")], dtype=np.float64)
    except ValueError:
        return None


def _numbers(run: Run, entry: str) -> list[float]:
    path = f"diagnostics.acceptance.accepted_length_law.{entry}"
    values = at(run.numbers, path)
    require(path, isinstance(values, list) and 0 < len(values) <= LONGEST, "a list of numbers", values)
    found = [number({"one": value}, "one") for value in values]
    require(path, all(one is not None and one >= 0 for one in found), "a list of numbers", values)
    return [one for one in found if one is not None]


def _picture(drawn: Sequence[Lengths], rules: dict[str, Key]) -> str:
    columns = 1 if len(drawn) == 1 else 2
    lines = math.ceil(len(drawn) / columns)
    with canvas("lengths", 230 if lines == 1 else 40 + 150 * lines) as sheet:
        grid = sheet.figure.subplots(lines, columns, squeeze=False, sharey=True)
        for place, axes in enumerate(grid.flat):
            if place >= len(drawn):
                axes.set_visible(False)
                continue
            _panel(sheet, axes, drawn[place], colour(rules[drawn[place].rule].series or 0))
            if columns > 1:
                axes.set_title(label(drawn[place].rule), loc="left")
        grid[0][0].set_ylim(0, 1.06 * max(map(_highest, drawn)))
        sheet.figure.supxlabel("accepted draft tokens", size=11)
        grid[0][0].figure.supylabel("share of rounds", size=11)
        return sheet.svg(TITLE)


def _panel(sheet: Any, axes: Any, one: Lengths, shade: str) -> None:
    from matplotlib.ticker import MaxNLocator

    rounds = one.counts.sum()
    for length, count in enumerate(one.counts):
        (bar,) = axes.bar([length], [count / rounds], width=0.72, color=shade, alpha=0.75)
        law = "" if one.law is None else f", law {digits(one.law[0][length] / rounds, 3)}"
        sheet.mark(bar, f"{one.rule}, {length} accepted: {digits(count / rounds, 3)} of {int(rounds)} rounds{law}")
    if one.law is not None:
        expected, spread = one.law[0] / rounds, NORMAL * np.sqrt(one.law[1]) / rounds
        places = np.arange(len(expected))
        axes.hlines(expected, places - 0.3, places + 0.3, color=INK, linewidth=2)
        axes.vlines(places, np.maximum(expected - spread, 0), expected + spread, color=INK, linewidth=1)
    axes.set_xlim(-0.6, len(one.counts) - 0.4)
    axes.grid(visible=False, axis="x")
    axes.xaxis.set_major_locator(MaxNLocator(nbins=6, integer=True, min_n_ticks=1))
    axes.yaxis.set_major_locator(MaxNLocator(nbins=4, min_n_ticks=2))


def _highest(one: Lengths) -> float:
    """The top of a panel's bars and ranges."""
    tops = one.counts if one.law is None else np.maximum(one.counts, one.law[0] + NORMAL * np.sqrt(one.law[1]))
    return float(tops.max() / one.counts.sum())


def _rows(one: Lengths) -> list[tuple[str, ...]]:
    rounds = one.counts.sum()
    laws = [None] * len(one.counts) if one.law is None else one.law[0].tolist()
    return [
        (one.rule, str(length), str(int(count)), digits(count / rounds), digits(law and law / rounds), digits(law, 1))
        for length, (count, law) in enumerate(zip(one.counts.tolist(), laws, strict=True))
    ]
