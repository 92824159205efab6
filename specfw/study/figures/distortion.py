"""Lossy rules: acceptance against how far the text is from the target's, with the front that no rule can pass.

A mixture of the models' rows with total variation D from the target accepts exactly sum_min + D, and no rule accepts
more at that distance (Yin et al. 2411.00841): the front is a straight line from (0, sum_min) to (1 - sum_min, 1).
The `distortion` of a rule that declares what it follows is recorded, its mean total variation from the target at the
first position of a round, and drawn. Of another only a lower bound is known, acceptance - sum_min, which lies on the
front: the truth is there or right of it.
"""

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from specfw.study.figures.apart import Box, name_marks
from specfw.study.figures.canvas import INK, MUTED, Key, canvas, colour
from specfw.study.figures.figure import (
    Figure,
    Named,
    briefly,
    configured,
    cut,
    differing,
    digits,
    sentences,
    series,
    share_ticks,
)
from specfw.study.gathered import Interval, Study
from specfw.study.intervals import wilson
from specfw.study.pooling import Pool, pools

TITLE = "Lossy rules: acceptance and distortion"
LEAD = (
    "How much a rule gains by leaving the target's distribution. No rule stands left of the dashed front, which starts "
    "at sum_min, the most a lossless rule can accept. An arrow marks a lower bound: the distortion is there or beyond."
)
_MOST_FRONTS, _MOST_LABELS = 6, 8
_ARROW = 0.12
"""Length of arrows, of the largest distortion."""


class Lossy(NamedTuple):
    """A pool of a lossy rule at the first position of its rounds.

    Attributes:
        pool: the runs.
        accepted: share of first draft tokens accepted.
        sum_min: of the same positions.
        distortion: total variation from the target, a mean.
        exact: whether it was recorded; False: a lower bound.
    """

    pool: Pool
    accepted: float
    sum_min: float
    distortion: float
    exact: bool

    @property
    def rounds(self) -> int:
        return self.pool.total("rounds")


def draw(study: Study) -> Figure | None:
    """The figure of a study, None where no rule is lossy."""
    lossy = [pool for pool in pools(study.runs) if not all(run.row.preserves_target for run in pool.runs)]
    if not lossy:
        return None
    points = [point for pool in lossy if (point := _point(pool)) is not None]
    if not points:
        return Figure("distortion", TITLE, LEAD, why="No lossy run recorded acceptance and sum_min at first positions.")
    names, rules = differing(study, (point.pool for point in points)), series(point.pool.rule for point in points)
    rows, rest = cut([_row(point, configured(point.pool, names)) for point in points])
    missing = len(lossy) - len(points)
    left = f"{missing} without numbers of first positions are not shown." if missing else ""
    return Figure(
        key="distortion",
        title=TITLE,
        lead=LEAD,
        svg=_picture(points, rules, names),
        legend=(*rules.values(), Key("front: sum_min + distortion", None, "dashes")),
        head=("rule", "configuration", "acceptance", "sum_min", "distortion", ""),
        rows=rows,
        note=sentences(left, rest),
    )


def _point(pool: Pool) -> Lossy | None:
    accepted, sum_min, recorded = (
        pool.mean(name, by="rounds") for name in ("first_measured", "first_sum_min", "distortion")
    )
    if accepted is None or sum_min is None:
        return None
    bound = max(accepted - sum_min, 0)
    return Lossy(pool, accepted, sum_min, bound if recorded is None else recorded, exact=recorded is not None)


def _picture(points: Sequence[Lossy], rules: dict[str, Key], names: Sequence[Named]) -> str:
    with canvas("distortion", 290) as sheet:
        axes = sheet.axes(x="distortion (total variation from the target)", y="acceptance, first position")
        for sum_min in sorted({round(point.sum_min, 3) for point in points})[:_MOST_FRONTS]:
            axes.plot([0, 1 - sum_min], [sum_min, 1], color=MUTED, linewidth=1.2, dashes=(4, 3))
        reach = max(0.08, *(point.distortion for point in points))
        for point in points:
            _mark(sheet, axes, point, reach, rules[point.pool.rule], configured(point.pool, names))
        axes.set_xlim(-0.03 * reach, 1.3 * reach)
        low = min(min(point.sum_min, point.accepted) for point in points)
        axes.set_ylim(max(low - 0.08, 0), 1.02)
        share_ticks(axes.xaxis)
        share_ticks(axes.yaxis)
        if len(points) <= _MOST_LABELS:
            marks = [(point.distortion, point.accepted) for point in points]
            name_marks(axes, marks, briefly([point.pool for point in points], names), list(_lines(points, reach)))
        return sheet.svg(TITLE)


def _lines(points: Sequence[Lossy], reach: float) -> Iterator[Box]:
    """What is drawn of the marks beside themselves: intervals and arrows."""
    for point in points:
        if (bar := _interval(point)) is not None:
            yield Box(point.distortion, bar.low, point.distortion, bar.high)
        if not point.exact:
            yield Box(point.distortion, point.accepted, point.distortion + (_ARROW + 0.02) * reach, point.accepted)


def _interval(point: Lossy) -> Interval | None:
    return wilson(round(point.accepted * point.rounds), point.rounds)


def _mark(sheet: Any, axes: Any, point: Lossy, reach: float, key: Key, configuration: str) -> None:
    interval = _interval(point)
    if interval is not None:
        axes.vlines(point.distortion, interval.low, interval.high, color=INK, linewidth=1.2, alpha=0.55)
    if not point.exact:
        tip = point.distortion + _ARROW * reach
        axes.hlines(point.accepted, point.distortion, tip, color=colour(key.series), linewidth=1.2)
        axes.plot([tip], [point.accepted], ">", color=colour(key.series), markersize=4)
    named = ", ".join(part for part in (point.pool.rule, configuration) if part)
    bound = "" if point.exact else "at least "
    words = (
        f"{named}: acceptance {digits(point.accepted, 3)}, distortion {bound}{digits(point.distortion, 3)}, "
        f"sum_min {digits(point.sum_min, 3)}"
    )
    sheet.point(axes, (point.distortion, point.accepted), key, words)


def _row(point: Lossy, configuration: str) -> tuple[str, ...]:
    numbers = (digits(value) for value in (point.accepted, point.sum_min, point.distortion))
    return (point.pool.rule, configuration, *numbers, "recorded" if point.exact else "lower bound")
