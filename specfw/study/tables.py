"""The tables of a study in words: what pooled runs measured beside their closed forms, and the other records."""

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from specfw.study.columns import RULE, most_telling, same, short, telling
from specfw.study.gathered import Interval, Leaf, Other, Study
from specfw.study.lists import Parts, beside, parts
from specfw.study.pooling import Pool, pools
from specfw.study.values import LARGE

_NEAR = 1e-6
NOTHING = "-"


class Cell(NamedTuple):
    """A text of a record, which is escaped before it is shown; our own numbers and words are plain strings.

    Attributes:
        text: as it was found.
        listed: whether it is a list, which is told by its end as well and is cut late.
    """

    text: str
    listed: bool = False


class Table(NamedTuple):
    """A table with its heading.

    Attributes:
        title: what stands above it.
        head: names of the columns.
        rows: their cells.
    """

    title: str
    head: tuple[str | Cell, ...]
    rows: tuple[tuple[str | Cell, ...], ...]


class Line(NamedTuple):
    """A pool and where it stands.

    Attributes:
        pool: the runs.
        place: what tells them from runs of other configurations, but for the rule.
        words: the place in words.
        rule: the rule's id, with its keys and the name it was asked for by where runs differ in them.
    """

    pool: Pool
    place: tuple[Leaf, ...]
    words: tuple[str | Cell, ...]
    rule: str


class Pooled(NamedTuple):
    """All pools in order.

    Attributes:
        keys: dotted keys of the places.
        head: their short names.
        lines: by place, then rule.
        left_out: short names of keys that tell pools apart too, and for which there was no room.
    """

    keys: tuple[str, ...]
    head: tuple[Cell, ...]
    lines: tuple[Line, ...]
    left_out: tuple[Cell, ...] = ()


def pooled(study: Study, most_keys: int | None = None) -> Pooled:
    """Runs that differ in the seed alone, side by side with those that differ in more.

    Args:
        study: everything that was read.
        most_keys: of a place at most; None for all that tell pools apart.
    """
    found = pools(study.runs)
    heads = [pool.runs[0] for pool in found]
    apart = telling(heads, [key for key in study.varying if not key.startswith(RULE)])
    keys = most_telling(heads, apart, len(apart) if most_keys is None else most_keys)
    own = [key for key in study.varying if key.startswith(RULE)]
    differing = {pool.rule: telling([head for head in heads if head.row.rule == pool.rule], own) for pool in found}
    known = {key: parts(run.settings.get(key) for run in study.runs) for key in (*keys, *own)}
    lines = [_line(pool, keys, differing[pool.rule], known) for pool in found]
    names = {key: Cell(name) for key, name in short(apart).items()}
    ordered = sorted(lines, key=lambda line: ([_order(value) for value in line.place], line.rule))
    left_out = tuple(names[key] for key in apart if key not in keys)
    return Pooled(keys, tuple(names[key] for key in keys), tuple(ordered), left_out)


def _line(pool: Pool, keys: Sequence[str], own: Sequence[str], known: Mapping[str, Parts]) -> Line:
    place = tuple(pool.settings.get(key) for key in keys)
    words = tuple(_value(value, known[key]) for key, value in zip(keys, place, strict=True))
    return Line(pool, place, words, _rule(pool, own, known))


def claims(found: Pooled) -> Table:
    """One row a configuration and its models and prompts: the closed forms, and what each rule measured."""
    lines = [line for line in found.lines if line.pool.tested]
    rules = sorted({line.rule for line in lines})
    spots: dict[tuple[Any, ...], list[Line]] = {}
    for line in lines:
        spots.setdefault(_spot(line), []).append(line)
    rows: list[tuple[str | Cell, ...]] = []
    for here in spots.values():
        sum_min, sum_prod = (_form([line.pool for line in here], name) for name in ("sum_min", "sum_prod"))
        ratio = sum_min / sum_prod if sum_min is not None and sum_prod else None
        measured = {line.rule: line.pool.measured for line in here}
        forms = (_number(sum_min, 3), _number(sum_prod, 3), _number(ratio, 1))
        rows.append((*here[0].words, *forms, *(_number(measured.get(rule), 3) for rule in rules)))
    head: tuple[str | Cell, ...] = (*found.head, "sum_min", "sum_prod", "ratio", *map(Cell, rules))
    return Table("What was claimed and what was measured", head, tuple(rows))


def _spot(line: Line) -> tuple[Any, ...]:
    """A place and what was there: other weights or prompts under the same settings are another row."""
    return (line.place, *sorted(line.pool.runs[0].inputs.items()))


def checks(found: Pooled) -> Table:
    """One row a configuration and rule: measured acceptance on its own closed form."""
    rows = tuple(
        (
            *line.words,
            Cell(line.rule),
            *_counts(line.pool),
            _number(line.pool.measured, 4),
            _interval(line.pool.interval),
            _number(line.pool.mean("expected"), 4),
            _number(line.pool.z, 2),
            _number(line.pool.log10_e_value, 2),
            line.pool.verdict,
        )
        for line in found.lines
    )
    numbers = ("tested", "accepted", "measured", "95 % interval", "closed form", "z", "largest log10 e", "verdict")
    return Table("Every measured value on its own closed form", (*found.head, "rule", *numbers), rows)


def _counts(pool: Pool) -> tuple[str, str]:
    if any(run.row.uncounted for run in pool.runs):
        return NOTHING, NOTHING
    return str(pool.tested), str(pool.accepted)


def lengths(found: Pooled) -> Table:
    """One row a configuration and rule: accepted lengths, speed, and what a lossy rule costs."""
    rows = tuple(
        (
            *line.words,
            Cell(line.rule),
            _number(line.pool.mean("mean_accepted_len", by="rounds"), 3),
            _number(line.pool.mean("mean_tokens_per_round", by="rounds"), 3),
            _number(line.pool.rate("emitted", "decode_s"), 1),
            _number(line.pool.mean("distortion", by="rounds"), 4),
            _number(line.pool.distortion_lower_bound, 4),
        )
        for line in found.lines
    )
    numbers = ("mean_accepted_len", "mean_tokens_per_round", "tokens/s", "distortion", "distortion_lower_bound")
    return Table("Accepted lengths and speed", (*found.head, "rule", *numbers), rows)


def others(study: Study) -> Iterator[Table]:
    """A table for each kind of record that is no run."""
    titles = {
        "audit": "Audits",
        "proof": "Proofs",
        "benchmark": "Benchmarks",
        "benchmark_rules": "Benchmarks of the rules alone",
    }
    for kind, title in titles.items():
        if ours := [other for other in study.others if other.kind == kind]:
            judged = ("verdict",) if ours[0].verdict is not None else ()
            yield Table(title, ("folder", *judged, *ours[0].facts), tuple(_other(one) for one in ours))


def _other(other: Other) -> tuple[str | Cell, ...]:
    verdict = () if other.verdict is None else (other.verdict,)
    return (Cell(other.name), *verdict, *map(_fact, other.facts.values()))


def _fact(value: Leaf) -> str | Cell:
    if isinstance(value, float):
        return f"{value:.3g}"
    return NOTHING if value is None else _value(value, {})


def _rule(pool: Pool, keys: Sequence[str], known: Mapping[str, Parts]) -> str:
    own = [f"{key.removeprefix(RULE)}={beside(pool.settings.get(key), known[key])}" for key in keys]
    return f"{pool.rule} ({', '.join(own)})" if own else pool.rule


def _form(found: Sequence[Pool], name: str) -> float | None:
    """A closed form over the draft tokens of the rules whose own it is, or of all rules where it is nobody's."""
    means = [(pool.tested, pool.mean(name), pool.mean("expected")) for pool in found]
    known = [(tested, mean, expected) for tested, mean, expected in means if mean is not None]
    own = [one for one in known if one[2] is not None and abs(one[1] - one[2]) <= _NEAR] or known
    total = sum(tested for tested, _, _ in own)
    return math.fsum(tested * mean for tested, mean, _ in own) / total if total else None


def _order(value: Leaf) -> tuple[Any, ...]:
    """Nothing, then truth values, numbers, words."""
    if isinstance(value, bool) or value is None:
        return (0, value is not None, bool(value))
    return (2, value) if isinstance(value, str) else (1, same(value)[1])


def _value(value: Leaf, known: Parts) -> str | Cell:
    ordinary = isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < LARGE
    return str(value) if ordinary else Cell(beside(value, known), value in known)


def _number(value: float | None, digits: int) -> str:
    return NOTHING if value is None else f"{value:.{digits}f}"


def _interval(found: Interval | None) -> str:
    return NOTHING if found is None else f"{found.low:.3f} .. {found.high:.3f}"
