"""Acceptance by place in the block: of tested draft tokens, and of all rounds that drafted so far."""

from collections.abc import Sequence
from typing import Any, NamedTuple

from specfw.study.figures.canvas import Key, canvas, colour
from specfw.study.figures.figure import Figure, between, cut, digits, sentences, series, share_ticks
from specfw.study.figures.lengths import LONGEST, Lengths, Reals, lengths
from specfw.study.gathered import Interval, Run, Study
from specfw.study.intervals import wilson
from specfw.study.pooling import pools
from specfw.study.values import counts, flag
from specfw.types import Ints

import numpy as np

TESTED = "Acceptance by position in the block"
TESTED_LEAD = (
    "Of the draft tokens that were looked at: the share that was accepted, by place in the block. A falling line says "
    "that later draft tokens are worse guesses, given that all before them stood."
)
REACHED = "How far blocks stand"
REACHED_LEAD = (
    "Of the rounds that drafted a token at this place: the share in which it stands, and so all before it. Dashes: "
    "what the rule's law expects of these blocks."
)
NAMES = ("proposed", "tested", "accepted")
_AT = "diagnostics.acceptance.by_position"


class Places(NamedTuple):
    """One rule's draft tokens by place in the block, all its runs pooled.

    Attributes:
        rule: its id.
        stops: whether it stops at a rejection.
        proposed: [K] rounds that drafted there.
        tested: [K] rounds that looked there.
        accepted: [K] rounds in which the draft token there stands.
    """

    rule: str
    stops: bool
    proposed: tuple[int, ...]
    tested: tuple[int, ...]
    accepted: tuple[int, ...]


def draw(study: Study) -> list[Figure]:
    """Both figures of a study."""
    found = places(study)
    rules = series(one.rule for one in found)
    return [_tested([one for one in found if one.stops], found, rules), _reached(found, lengths(study), rules)]


def places(study: Study) -> list[Places]:
    """Every rule of which some run recorded places."""
    groups: dict[str, list[tuple[bool, list[tuple[int, ...]]]]] = {}
    for pool in pools(study.runs):
        recorded = [one for run in pool.runs if (one := _recorded(run)) is not None]
        groups.setdefault(pool.rule, []).extend(recorded)
    found = []
    for rule in series(groups):
        if groups[rule]:
            summed = [_added([counted[place] for _, counted in groups[rule]]) for place in range(len(NAMES))]
            found.append(Places(rule, all(stops for stops, _ in groups[rule]), *summed))
    return found


def _recorded(run: Run) -> tuple[bool, list[tuple[int, ...]]] | None:
    """Whether the run's rule stops at a rejection, and its counts; None where there is nothing usable."""
    try:
        counted = [counts(run.numbers, f"{_AT}.{name}") for name in NAMES]
        stops = flag(run.numbers, "stops_at_rejection")
    except ValueError:
        return None
    known = [one for one in counted if one]
    one_width = len(known) == len(NAMES) and len({len(one) for one in known}) == 1
    ordered = one_width and all(a <= t <= p > 0 for p, t, a in zip(*known, strict=True)) and len(known[0]) <= LONGEST
    return (stops is not False, known) if ordered else None


def _added(parts: Sequence[tuple[int, ...]]) -> tuple[int, ...]:
    wide = max(map(len, parts))
    return tuple(sum(part[place] for part in parts if place < len(part)) for place in range(wide))


def _tested(drawn: Sequence[Places], found: Sequence[Places], rules: dict[str, Key]) -> Figure:
    if not drawn:
        why = "Rules that look past a rejection accept or drop a block as a whole: the next figure is theirs."
        absent = "No run recorded acceptance by place in the block."
        return Figure("places", TESTED, TESTED_LEAD, why=why if found else absent)
    values = [
        (one, place, accepted / tested, wilson(accepted, tested))
        for one in drawn
        for place, (tested, accepted) in enumerate(zip(one.tested, one.accepted, strict=True), start=1)
        if tested
    ]
    with canvas("places") as sheet:
        axes = sheet.axes(x="position in the block", y="accepted of tested")
        beside = _beside(drawn)
        for one in drawn:
            key = rules[one.rule]
            mine = [value for value in values if value[0] is one]
            along = [value[1] + beside[one.rule] for value in mine]
            axes.plot(along, [value[2] for value in mine], color=colour(key.series))
        for one, place, rate, interval in values:
            key, at = rules[one.rule], place + beside[one.rule]
            if interval is not None:
                axes.vlines(at, interval.low, interval.high, color=colour(key.series), linewidth=1.2, alpha=0.6)
            of = f"{one.accepted[place - 1]} of {one.tested[place - 1]} tested"
            sheet.point(axes, (at, rate), key, f"{one.rule}, position {place}: {digits(rate, 3)}, {of}")
        _by_place(axes)
        svg = sheet.svg(TESTED)
    head = ("rule", "position", "tested", "accepted", "acceptance", "95 %")
    rows, rest = cut([_tested_row(*value) for value in values])
    looks = [one.rule for one in found if not one.stops]
    past = f"{', '.join(looks)} looks past a rejection and has no such acceptance." if looks else ""
    legend = tuple(rules[one.rule] for one in drawn)
    bars = "Bars: 95 % intervals that take draft tokens as independent (Wilson)."
    note = sentences(bars, past, rest)
    return Figure("places", TESTED, TESTED_LEAD, svg=svg, legend=legend, head=head, rows=rows, note=note)


def _beside(drawn: Sequence[Places]) -> dict[str, float]:
    """Where a rule's marks stand beside the place itself: none hides another's."""
    return {one.rule: 0.1 * (lane - (len(drawn) - 1) / 2) for lane, one in enumerate(drawn)}


def _tested_row(one: Places, place: int, rate: float, interval: Interval | None) -> tuple[str, ...]:
    low, high, _ = interval or (None, None, "")
    tested, accepted = str(one.tested[place - 1]), str(one.accepted[place - 1])
    return (one.rule, str(place), tested, accepted, digits(rate), between(low, high))


def _reached(found: Sequence[Places], counted: Sequence[Lengths], rules: dict[str, Key]) -> Figure:
    if not found:
        return Figure("reached", REACHED, REACHED_LEAD, why="No run recorded acceptance by place in the block.")
    laws = {one.rule: one.law for one in counted if one.law is not None}
    rows = []
    with canvas("reached") as sheet:
        axes = sheet.axes(x="position in the block", y="share of rounds")
        beside = _beside(found)
        for one in found:
            key, proposed = rules[one.rule], np.array(one.proposed)
            shade, along = colour(key.series), np.arange(1, len(proposed) + 1) + beside[one.rule]
            expected = _survival(laws.get(one.rule), proposed)
            if expected is not None:
                axes.plot(along, expected, color=shade, linewidth=1.4, dashes=(3, 2))
            for place, (drafted, accepted) in enumerate(zip(one.proposed, one.accepted, strict=True), start=1):
                by_law = None if expected is None else float(expected[place - 1])
                words = "" if by_law is None else f", law {digits(by_law, 3)}"
                told = f"{one.rule}, position {place}: stands in {digits(accepted / drafted, 3)}{words}"
                sheet.point(axes, (place + beside[one.rule], accepted / drafted), key, told)
                rows.append(
                    (one.rule, str(place), str(drafted), str(accepted), digits(accepted / drafted), digits(by_law))
                )
        _by_place(axes)
        svg = sheet.svg(REACHED)
    kept, rest = cut(rows)
    head = ("rule", "position", "rounds", "stands", "share", "law")
    legend = (*(rules[one.rule] for one in found), *([Key("law", None, "dashes")] if laws else []))
    return Figure("reached", REACHED, REACHED_LEAD, svg=svg, legend=legend, head=head, rows=kept, note=rest)


def _survival(law: Reals | None, proposed: Ints) -> Reals | None:
    """[K] the share of rounds expected to accept at least 1, .., K; None without a law of these very rounds."""
    if law is None or law.shape[1] != len(proposed) + 1 or round(law[0].sum()) != proposed[0]:
        return None
    return np.asarray(np.cumsum(law[0][::-1])[::-1][1:] / proposed)


def _by_place(axes: Any) -> None:
    from matplotlib.ticker import MaxNLocator

    axes.set_ylim(0, 1.02)
    axes.margins(x=0.08)
    axes.xaxis.set_major_locator(MaxNLocator(nbins=8, integer=True, min_n_ticks=1))
    share_ticks(axes.yaxis)
