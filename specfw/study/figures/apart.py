"""What would lie on one another in a picture: marks are moved sideways, labels go where nothing else is."""

import math
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from specfw.study.figures.canvas import INK, label

_STEPS = (0, 1, -1, 2, -2)
_COVERED = 0.7
"""Sizes of a mark within which one hides another."""

_FONT, _HALF, _GAP = 11, 6.5, 9
"""Of labels: units of the letters, half of a line, and from the middle of a mark to its label."""

_LETTER = 6.8
"""Units that a letter may be wide."""


class Box(NamedTuple):
    """A part of the picture, in its units or in those of the axes."""

    left: float
    low: float
    right: float
    high: float

    def meets(self, other: "Box") -> bool:
        """Whether the two have a point in common."""
        across = self.left <= other.right and other.left <= self.right
        return across and self.low <= other.high and other.low <= self.high

    def distance(self, point: "Box") -> float:
        """From a point, a box of no size."""
        across = max(self.left - point.left, 0, point.left - self.right)
        return math.hypot(across, max(self.low - point.low, 0, point.low - self.high))

    def holds(self, other: "Box") -> bool:
        """Whether the other lies within."""
        across = self.left <= other.left and other.right <= self.right
        return across and self.low <= other.low and other.high <= self.high


def sideways(points: Sequence[tuple[float, float]], kinds: Sequence[str], size: float) -> list[float]:
    """How far each mark is moved so that it hides none of another kind, at most two sizes; those before it stay.

    Args:
        points: where the marks belong.
        kinds: what each is of.
        size: of a mark, in units of the axes.
    """
    placed: list[tuple[float, float, str]] = []
    moves = []
    for (x, y), kind in zip(points, kinds, strict=True):
        others = [(left, low) for left, low, other in placed if other != kind and abs(low - y) < _COVERED * size]
        free = (step * size for step in _STEPS if not _hides(x + step * size, others, size))
        moves.append(next(free, 0.0))
        placed.append((x + moves[-1], y, kind))
    return moves


def _hides(x: float, others: Sequence[tuple[float, float]], size: float) -> bool:
    return any(abs(left - x) < _COVERED * size for left, _ in others)


def name_marks(axes: Any, marks: Sequence[tuple[float, float]], words: Sequence[str], lines: Sequence[Box]) -> None:
    """Write beside each mark what it is: nearest to it, on no mark and no other text, across few lines.

    A label for which there is no such room is left out. The limits of the axes must stand.

    Args:
        axes: matplotlib's.
        marks: where they are.
        words: for each, empty for none.
        lines: what else is drawn, in units of the axes.
    """
    axes.figure.draw_without_rendering()
    (left, right), (low, high) = axes.get_xlim(), axes.get_ylim()
    frame, crossed = _seen(axes, Box(left, low, right, high)), [_seen(axes, line) for line in lines]
    middles = [_seen(axes, Box(*at, *at)) for at in marks]
    taken = [_grown(middle, _HALF) for middle in middles]
    for at, middle, said in zip(marks, middles, map(label, words), strict=True):
        places = [place for place in _places(middle, _LETTER * len(said)) if frame.holds(place.box)]
        nearest = [place for place in places if min(middles, key=place.box.distance) == middle]
        free = [place for place in nearest if not any(place.box.meets(other) for other in taken)]
        if said and free:
            best = min(free, key=lambda place: place.lines + sum(place.box.meets(line) for line in crossed))
            style = {"fontsize": _FONT, "color": INK, "ha": best.aligned, "va": "center"}
            axes.annotate(said, at, best.offset, textcoords="offset points", **style).set_in_layout(False)
            taken.append(best.box)


class _Place(NamedTuple):
    """Where a label may stand: an offset from its mark, lines away from it, and the box of its text."""

    lines: int
    offset: tuple[float, float]
    aligned: str
    box: Box


def _places(middle: Box, width: float) -> Iterator[_Place]:
    """Right and left of a mark, then a line or two above and below."""
    x, y, *_ = middle
    beside = ((_GAP, "left", x + _GAP), (-_GAP, "right", x - _GAP - width))
    for line in (0, 1, -1, 2, -2):
        up = 2 * _HALF * line
        for across, aligned, left in (*beside, (0, "center", x - width / 2)) if line else beside:
            yield _Place(abs(line), (across, up), aligned, Box(left, y + up - _HALF, left + width, y + up + _HALF))


def _seen(axes: Any, box: Box) -> Box:
    """Where a part of the axes is in the picture."""
    points = axes.transData.transform([box[:2], box[2:]]) * 72 / axes.figure.dpi
    return Box(*map(float, points.ravel()))


def _grown(box: Box, by: float) -> Box:
    return Box(box.left - by, box.low - by, box.right + by, box.high + by)
