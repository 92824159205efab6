"""What every lossless rule would have accepted on the blocks of these runs, and the ceiling of them all."""

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from specfw.study.escaping import one_line, shortened
from specfw.study.figures.canvas import GRID, INK, Key, canvas, label
from specfw.study.figures.figure import Figure, cut, digits, sentences, series, share_ticks
from specfw.study.gathered import Run, Study
from specfw.study.intervals import NORMAL
from specfw.study.tables import pooled
from specfw.study.values import at, number

TITLE = "Scoreboard: other rules on the same blocks"
LEAD = (
    "What each lossless rule is expected to accept of the very blocks these runs drafted, without the noise of "
    "sampling. In the mean no lossless rule passes the joint ceiling; on few blocks one may. Bars: 95 % of the "
    "difference from the rule that ran."
)
CEILING = "joint_ceiling"
_MOST_RULES, _MOST_ROWS, _LONGEST = 12, 12, 80


class Score(NamedTuple):
    """A rule on the blocks of runs of another.

    Attributes:
        mean: draft tokens accepted a round.
        difference: from the rule that ran.
        error: standard error of that difference, None of a single round.
    """

    mean: float
    difference: float
    error: float | None


def draw(study: Study) -> Figure:
    """The figure of a study."""
    groups: dict[str, list[Run]] = {}
    for line in pooled(study).lines:
        groups.setdefault(line.rule, []).extend(line.pool.runs)
    having = {rule: scores for rule in series(groups) if (scores := _pooled(groups[rule]))}
    scored = dict(list(having.items())[:_MOST_ROWS])
    left = f"{len(having) - len(scored)} more are not drawn." if len(having) > len(scored) else ""
    if not scored:
        why = "There is none for plain decoding, a greedy target, or a run without diagnostics.scoreboard."
        return Figure("scoreboard", TITLE, LEAD, why=why)
    named = list(series(name for scores in scored.values() for name in scores if name != CEILING))
    names = [*named, *([CEILING] if any(CEILING in scores for scores in scored.values()) else [])]
    rules = series(scored)
    rows, rest = cut([_row(own, name, scored[own][name]) for own in scored for name in names if name in scored[own]])
    many = (
        "A rule's runs are pooled over seeds and all but its own keys, weighted by rounds."
        if len(study.runs) > 1
        else ""
    )
    return Figure(
        key="scoreboard",
        title=TITLE,
        lead=LEAD,
        svg=_picture(scored, names, {own: (groups[own][0].row.rule, key) for own, key in rules.items()}),
        legend=tuple(key._replace(words=f"on blocks of {_brief(rule)}") for rule, key in rules.items()),
        head=("blocks of", "rule", "accepted a round", "difference", "standard error"),
        rows=rows,
        note=sentences(many, left, rest),
    )


def _pooled(runs: Sequence[Run]) -> dict[str, Score]:
    """The rules that every one of the runs has, weighted by rounds."""
    boards = [(run.row.rounds, board) for run in runs if (board := _board(run))]
    total = sum(rounds for rounds, _ in boards)
    if not total:
        return {}
    common = [name for name in boards[0][1] if all(name in board for _, board in boards)]
    return {name: _mean([(rounds, board[name]) for rounds, board in boards], total) for name in common}


def _mean(parts: Sequence[tuple[int, Score]], total: int) -> Score:
    errors = [rounds * one.error for rounds, one in parts if one.error is not None]
    return Score(
        math.fsum(rounds * one.mean for rounds, one in parts) / total,
        math.fsum(rounds * one.difference for rounds, one in parts) / total,
        math.hypot(*errors) / total if len(errors) == len(parts) else None,
    )


def _board(run: Run) -> dict[str, Score]:
    """A run's scoreboard, empty where it has none or nothing usable."""
    try:
        found = at(run.numbers, "diagnostics.scoreboard")
        known = list(found)[:_MOST_RULES] if isinstance(found, Mapping) else []
        read = {name: [number(found[name], entry) for entry in _ENTRIES] for name in known}
    except ValueError:
        return {}
    return {
        name: Score(mean, difference, error)
        for name, (mean, difference, error) in read.items()
        if mean is not None and difference is not None
    }


_ENTRIES = ("mean_accepted_len", "difference", "standard_error")


def _picture(
    scored: Mapping[str, Mapping[str, Score]], names: Sequence[str], rules: Mapping[str, tuple[str, Key]]
) -> str:
    """`rules` are, for each whose blocks they are, its id and its key."""
    step = 0.72 / len(scored)
    with canvas("scoreboard", 62 + len(names) * max(26, 11 * len(scored))) as sheet:
        axes = sheet.axes(x="accepted draft tokens a round")
        for lane, (own, scores) in enumerate(scored.items()):
            for name, score in scores.items():
                height = names.index(name) + (lane - (len(scored) - 1) / 2) * step
                _mark(sheet, axes, own, name, score, height, *rules[own])
        axes.set_yticks(range(len(names)), [label(name.replace("_", " ")) for name in names])
        axes.set_ylim(len(names) - 0.5, -0.5)
        axes.set_xlim(left=0)
        for line in range(1, len(names)):
            axes.axhline(line - 0.5, color=GRID, linewidth=0.8)
        axes.tick_params(axis="y", labelcolor=INK)
        axes.grid(visible=False, axis="y")
        share_ticks(axes.xaxis)
        return sheet.svg(TITLE)


def _mark(sheet: Any, axes: Any, own: str, name: str, score: Score, height: float, rule: str, key: Key) -> None:
    spread = NORMAL * (score.error or 0)
    axes.hlines(height, max(score.mean - spread, 0), score.mean + spread, color=INK, linewidth=1.3, alpha=0.6, zorder=2)
    sign = "+" if score.difference >= 0 else ""
    beside = "the rule that ran" if name == rule else f"{sign}{digits(score.difference, 3)} against {_brief(own)}"
    words = f"{name} on blocks of {_brief(own)}: {digits(score.mean, 3)} accepted a round, {beside}"
    sheet.point(axes, (score.mean, height), key, words)


def _row(own: str, name: str, score: Score) -> tuple[str, ...]:
    return (_brief(own), name, digits(score.mean), digits(score.difference), digits(score.error))


def _brief(rule: str) -> str:
    """A rule with its own keys, whatever their values."""
    return shortened(one_line(rule), _LONGEST)
