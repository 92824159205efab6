"""What a figure is on the page: a picture with its key, how it is read, and its numbers as a table."""

import math
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from specfw.study.columns import beside_rule
from specfw.study.columns import short as short_names
from specfw.study.escaping import one_line, shortened
from specfw.study.figures.canvas import LONGEST_LABEL, Key
from specfw.study.gathered import Study
from specfw.study.lists import Parts, beside, parts
from specfw.study.pooling import Pool

_ORDER = ("stochastic", "block", "sampler-match", "gumbel", "greedy-argmax", "argmax-against-argmax", "plain")
_SHAPES = "os^DvPX*"
_LONGEST_VALUE = 80
ABSENT, _MINUS = "\N{EN DASH}", "\N{MINUS SIGN}"
MOST_ROWS = 40
"""Rows of a figure's own table; the table of runs has all."""


class Figure(NamedTuple):
    """A picture and what stands around it.

    Attributes:
        key: a word of its own.
        title: its heading.
        lead: how it is read, one or two sentences.
        svg: the picture, None where there is nothing to draw.
        why: the reason, where there is no picture.
        legend: its entries.
        head: of the table of values.
        rows: of the table of values, texts.
        note: what was left out or pooled; empty if nothing.
    """

    key: str
    title: str
    lead: str
    svg: str | None = None
    why: str = ""
    legend: tuple[Key, ...] = ()
    head: tuple[str, ...] = ()
    rows: tuple[tuple[str, ...], ...] = ()
    note: str = ""


class Named(NamedTuple):
    """A key of the configuration as figures call it.

    Attributes:
        key: dotted.
        name: its short name.
        parts: what stands for its lists.
    """

    key: str
    name: str
    parts: Parts


def series(rules: Iterable[str]) -> dict[str, Key]:
    """Colour and shape of every rule: those that ship have always the same, others what these leave."""
    known = dict.fromkeys(rules)
    places = {rule: place for place, rule in enumerate(_ORDER) if rule in known}
    looks = (*range(len(_ORDER), len(_SHAPES)), *range(len(_ORDER)))
    free = [place for place in looks if place not in places.values()]
    others = (rule for rule in known if rule not in _ORDER)
    places |= {rule: free[number % len(free)] for number, rule in enumerate(others)}
    return {rule: Key(rule, place, _SHAPES[place]) for rule, place in places.items()}


def differing(study: Study, drawn: Iterable[Pool]) -> tuple[Named, ...]:
    """Keys that tell the runs of these pools apart beside the rule and the seed."""
    return named(study, beside_rule([run for pool in drawn for run in pool.runs], study.varying))


def named(study: Study, keys: Sequence[str]) -> tuple[Named, ...]:
    """Keys with their short names, and their lists as they differ in the study."""
    return tuple(
        Named(key, one_line(name), parts(run.settings.get(key) for run in study.runs))
        for key, name in short_names(keys).items()
    )


def configured(pool: Pool, names: Iterable[Named]) -> str:
    """The configuration of a pool in the keys that vary: `temperature 0.7, num_draft_tokens 4`."""
    return ", ".join(f"{one.name} {value_of(pool, one)}" for one in names)


def briefly(pools: Iterable[Pool], names: Sequence[Named]) -> list[str]:
    """As labels of marks, without keys that a pool lacks: `temperature=0.7`, values alone where that is too long."""
    kept = [
        [(one.name, value_of(pool, one)) for one in names if pool.settings.get(one.key) is not None] for pool in pools
    ]
    full = [", ".join(f"{name}={value}" for name, value in pairs) for pairs in kept]
    if max(map(len, full), default=0) <= LONGEST_LABEL:
        return full
    return [", ".join(value for _, value in pairs) for pairs in kept]


def value_of(pool: Pool, one: Named) -> str:
    """A value of its configuration, one short line."""
    return shortened(one_line(beside(pool.settings.get(one.key), one.parts)), _LONGEST_VALUE)


def digits(value: float | None, places: int = 4) -> str:
    """A number for reading; a dash where there is none."""
    if value is None or math.isnan(value):
        return ABSENT
    written = f"{value:.{places}f}" if math.isfinite(value) else "∞" if value > 0 else "-∞"
    return written.replace("-", _MINUS)


def between(low: float | None, high: float | None, places: int = 4) -> str:
    """An interval for reading."""
    return ABSENT if low is None or high is None else f"{digits(low, places)} to {digits(high, places)}"


def cut(rows: Sequence[tuple[str, ...]]) -> tuple[tuple[tuple[str, ...], ...], str]:
    """At most `MOST_ROWS` rows, and a sentence about the others."""
    left = len(rows) - MOST_ROWS
    return tuple(rows[:MOST_ROWS]), f"The table below shows the first {MOST_ROWS} of {len(rows)}." if left > 0 else ""


def sentences(*parts: str) -> str:
    """Those that say something, one after the other."""
    return " ".join(part for part in parts if part)


def share_ticks(axis: Any) -> None:
    """A few ticks with as many digits as they need."""
    from matplotlib.ticker import MaxNLocator

    axis.set_major_locator(MaxNLocator(nbins=5, steps=[1, 2, 2.5, 5, 10]))
