"""Measured acceptance against the rule's closed form: runs that follow their law lie on the diagonal."""

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

from specfw.study.figures.apart import sideways
from specfw.study.figures.canvas import CROWD, INK, MUTED, Key, canvas
from specfw.study.figures.figure import (
    Figure,
    Named,
    between,
    configured,
    cut,
    differing,
    digits,
    sentences,
    series,
    share_ticks,
)
from specfw.study.gathered import Study
from specfw.study.intervals import NORMAL
from specfw.study.pooling import Pool, pools

TITLE = "Measured acceptance and its closed form"
LEAD = (
    "One mark for each configuration, its seeds pooled. A run that follows its rule's mathematics lies on the "
    "diagonal; a bar that misses the diagonal happens to one right mark in twenty."
)
_LEAST = 0.3
"""Length of the axes."""

_MARK = 8.5 / 240
"""Size of a mark, of the length of the axes."""

WHY = "No run recorded the closed form of its rule; diagnostics.closed_forms.sorting=true records those that sort."


class _Point(NamedTuple):
    """A pool with numbers to draw, and how far from its closed form it stands for others to be seen."""

    pool: Pool
    expected: float
    measured: float
    half: float | None
    moved: float = 0.0

    @property
    def ends(self) -> tuple[float | None, float | None]:
        return (None, None) if self.half is None else (self.measured - self.half, self.measured + self.half)


def draw(study: Study) -> Figure:
    """The figure of a study."""
    pooled = pools(study.runs)
    points = _apart([point for pool in pooled if (point := _point(pool)) is not None])
    if not points:
        return Figure("acceptance", TITLE, LEAD, why=WHY)
    names, rules = differing(study, (point.pool for point in points)), series(point.pool.rule for point in points)
    drafting = [pool for pool in pooled if pool.tested]
    missing = len(drafting) - len(points)
    rows, rest = cut([_row(point, configured(point.pool, names)) for point in points])
    note = (
        f"Not shown, for want of a recorded closed form: {missing} of {len(drafting)} configurations."
        if missing
        else ""
    )
    return Figure(
        key="acceptance",
        title=TITLE,
        lead=LEAD,
        svg=_picture(points, rules, names),
        legend=(*rules.values(), Key("closed form", None, "dashes")),
        head=("rule", "configuration", "measured", "95 % by its law", "closed form", "z"),
        rows=rows,
        note=sentences(note, _MOVED if any(point.moved for point in points) else "", rest),
    )


def _point(pool: Pool) -> _Point | None:
    """The interval is the law's own: what 95 of 100 right runs of this length stay within."""
    expected, measured = pool.mean("expected"), pool.measured
    if expected is None or measured is None:
        return None
    variances = [run.row.variance for run in pool.runs if run.row.tested]
    known = [variance for variance in variances if variance is not None]
    half = NORMAL * math.sqrt(math.fsum(known)) / pool.tested if len(known) == len(variances) else None
    return _Point(pool, expected, measured, half)


_MOVED = "Marks that would hide those of another rule stand beside them; the numbers they tell are exact."


def _apart(points: list[_Point]) -> list[_Point]:
    """In a crowd every mark stays."""
    if not 1 < len(points) <= CROWD:
        return points
    low, high = _limits(points)
    kinds = [point.pool.rule for point in points]
    moves = sideways([(point.expected, point.measured) for point in points], kinds, _MARK * (high - low))
    return [point._replace(moved=move) for point, move in zip(points, moves, strict=True)]


def _picture(points: list[_Point], rules: dict[str, Key], names: Sequence[Named]) -> str:
    with canvas("acceptance", 300) as sheet:
        axes = sheet.axes(x="closed form", y="measured")
        low, high = _limits(points)
        axes.plot([low, high], [low, high], color=MUTED, linewidth=1.2, dashes=(4, 3))
        for point in points:
            _bar(axes, point, 0.55 if len(points) <= CROWD else 0.12)
        for point in sorted(points, key=lambda one: one.pool.rule):
            key = rules[point.pool.rule]
            words = _words(point, configured(point.pool, names))
            sheet.point(axes, (point.expected + point.moved, point.measured), key, words, crowd=len(points))
        axes.set(xlim=(low, high), ylim=(low, high))
        share_ticks(axes.xaxis)
        share_ticks(axes.yaxis)
        axes.set_aspect("equal", adjustable="box")
        return sheet.svg(TITLE)


def _bar(axes: Any, point: _Point, alpha: float) -> None:
    low, high = point.ends
    if low is not None and high is not None:
        axes.vlines(
            point.expected + point.moved, max(low, 0), min(high, 1), color=INK, linewidth=1.2, alpha=alpha, zorder=2
        )


def _limits(points: list[_Point]) -> tuple[float, float]:
    """Both axes alike, a little beyond everything that is drawn, and never so near that chance looks large."""
    values = [value for point in points for value in (point.expected, point.measured, *point.ends) if value is not None]
    least, most = max(min(values), 0), min(max(values), 1)
    room = max(0.04 * (most - least), (_LEAST - (most - least)) / 2)
    return max(least - room, -0.02), min(most + room, 1.02)


def _words(point: _Point, configuration: str) -> str:
    z = "" if point.pool.z is None else f", z {digits(point.pool.z, 2)}"
    named = ", ".join(part for part in (point.pool.rule, configuration) if part)
    low, high = point.ends
    around = "" if low is None else f" ({between(low, high, 3)})"
    return (
        f"{named}: measured {digits(point.measured, 3)}{around}, closed form {digits(point.expected, 3)}{z}, "
        f"{point.pool.tested} draft tokens"
    )


def _row(point: _Point, configuration: str) -> tuple[str, ...]:
    measured, expected = digits(point.measured), digits(point.expected)
    return (point.pool.rule, configuration, measured, between(*point.ends), expected, digits(point.pool.z, 2))
