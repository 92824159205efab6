"""The table of runs as the page shows it: cells for reading, values for sorting, and what can be filtered by."""

import math
from collections.abc import Callable, Mapping
from typing import NamedTuple

from specfw.study.columns import beside_rule, short
from specfw.study.escaping import one_line, shortened
from specfw.study.figures.figure import ABSENT, digits
from specfw.study.gathered import Leaf, Row, Run, Study
from specfw.study.lists import beside, parts

_LONGEST = 80
_MOST_CHOICES = 24


class Cell(NamedTuple):
    """One cell.

    Attributes:
        text: to read.
        value: to sort by, None for text and for what is absent.
    """

    text: str
    value: str | None = None


class Column(NamedTuple):
    """One column.

    Attributes:
        name: its heading.
        words: what it means, where the heading does not say.
        numeric: whether it is set flush right.
        cells: one a run.
        choices: the texts to filter by, empty where there are too many.
    """

    name: str
    words: str
    numeric: bool
    cells: tuple[Cell, ...]
    choices: tuple[str, ...] = ()


def sheet(study: Study) -> tuple[Column, ...]:
    """Run, rule, verdict, what was measured, what tells runs apart, the rest; columns without an entry are left out."""
    names = {key: one_line(_apart(key, name)) for key, name in short(beside_rule(study.runs, study.varying)).items()}
    rows = [run.row for run in study.runs]
    verdicts = [_VERDICTS.get(row.standing, row.standing) for row in rows]
    measured, *numbers = (_numbers(name, *how, study.runs) for name, how in _NUMBERS.items())
    columns = [
        Column("run", "the folder", numeric=False, cells=tuple(Cell(one_line(run.name)) for run in study.runs)),
        _chosen("rule", "", [row.rule for row in rows]),
        _chosen("verdict", "whether the run follows its law", verdicts),
        measured,
        *(_configured(name, [run.settings.get(key) for run in study.runs]) for key, name in names.items()),
        Column("seed", "", numeric=True, cells=tuple(Cell(str(row.seed), str(row.seed)) for row in rows)),
        *numbers,
    ]
    return tuple(column for column in columns if any(cell.text != ABSENT for cell in column.cells))


_VERDICTS = {"passed": "✓ passed", "failed": "✗ failed", "unchecked": "unchecked"}
_NUMBERS: Mapping[str, tuple[str, int, Callable[[Row], float | None]]] = {
    "measured": ("accepted of tested draft tokens", 4, lambda row: row.measured),
    "low": ("lower end of its 95 % interval", 4, lambda row: row.interval and row.interval.low),
    "high": ("upper end of its 95 % interval", 4, lambda row: row.interval and row.interval.high),
    "closed form": ("what the rule's mathematics says of the same positions", 4, lambda row: row.expected),
    "z": ("distance from the closed form in standard deviations; it decides nothing", 2, lambda row: row.z),
    "log10 e": ("evidence against the run's law; it fails above 6", 2, lambda row: row.log10_e_value),
    "sum_min": ("closed form of stochastic", 4, lambda row: row.sum_min),
    "sum_prod": ("closed form of sampler_match", 4, lambda row: row.sum_prod),
    "ratio": ("sum_min / sum_prod", 2, lambda row: row.ratio),
    "gumbel": ("closed form of shared noise", 4, lambda row: row.gumbel),
    "accepted": ("draft tokens accepted a round", 3, lambda row: row.mean_accepted_len),
    "tokens/round": ("tokens emitted a round, the extra token included", 3, lambda row: row.mean_tokens_per_round),
    "tested": ("draft tokens whose acceptance is measured", 0, lambda row: None if row.uncounted else row.tested),
    "distortion": ("total variation of what a lossy rule follows from the target", 4, lambda row: row.distortion),
    "distortion ≥": ("lower bound of a lossy rule's distortion", 4, lambda row: row.distortion_lower_bound),
    "tokens/s": ("of the rounds, without prefill", 1, lambda row: row.tokens_per_s),
}


def _apart(key: str, name: str) -> str:
    """A heading that no column of ours has."""
    ours = {"run", "rule", "verdict", "seed", *_NUMBERS}
    return next(one for one in (name, key, f"config.{key}") if one not in ours)


def _numbers(name: str, words: str, places: int, read: Callable[[Row], float | None], runs: tuple[Run, ...]) -> Column:
    return Column(name, words, numeric=True, cells=tuple(_number(read(run.row), places) for run in runs))


def _number(value: float | None, places: int) -> Cell:
    if value is None or math.isnan(value):
        return Cell(ABSENT)
    return Cell(digits(value, places), _sortable(f"{value:.9g}"))


def _sortable(number: str) -> str:
    """A number as JavaScript reads it."""
    return number.replace("inf", "Infinity")


def _chosen(name: str, words: str, texts: list[str]) -> Column:
    shown_texts = [_text(text) for text in texts]
    return Column(name, words, False, tuple(map(Cell, shown_texts)), _choices(shown_texts))


def _configured(name: str, values: list[Leaf]) -> Column:
    known = parts(values)
    texts = [ABSENT if value is None else _text(beside(value, known)) for value in values]
    sortable = [_sortable(repr(value)) if _is_number(value) else None for value in values]
    numeric = all(value is None or number is not None for value, number in zip(values, sortable, strict=True))
    return Column(name, "of the configuration", numeric, tuple(map(Cell, texts, sortable)), _choices(texts))


def _choices(texts: list[str]) -> tuple[str, ...]:
    known = tuple(dict.fromkeys(texts))
    return known if 1 < len(known) <= _MOST_CHOICES else ()


def _is_number(value: Leaf) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _text(text: str) -> str:
    return shortened(one_line(text), _LONGEST)
