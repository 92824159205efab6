"""The table with one row a run, column by column: what CSV and Parquet hold."""

import csv
import io
import json
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from specfw.study.columns import shown
from specfw.study.escaping import csv_cell, one_line
from specfw.study.gathered import Leaf, Row, Run, Study

ORIGINS = ("accepted", "recovered", "bonus", "plain")
_TEXT, _REAL, _WHOLE, _FLAG = "VARCHAR", "DOUBLE", "BIGINT", "BOOLEAN"
_LARGEST = 2**63

_KINDS = {
    **dict.fromkeys(("rule", "verdict", "decided_by"), _TEXT),
    "preserves_target": _FLAG,
    "seed": "UBIGINT",
    **dict.fromkeys(("sum_min", "sum_prod", "ratio", "measured"), _REAL),
    **dict.fromkeys(("low", "high"), _REAL),
    "interval": _TEXT,
    **dict.fromkeys(("z", "log10_e_value", "expected", "gumbel"), _REAL),
    "places": _TEXT,
    **dict.fromkeys(("tested", "accepted", "rounds", "proposed", "emitted"), _WHOLE),
    **dict.fromkeys(("acceptance_rate", "mean_accepted_len"), _REAL),
    **dict.fromkeys(("mean_accepted_len_low", "mean_accepted_len_high"), _REAL),
    "accepted_lengths": "BIGINT[]",
    **dict.fromkeys(("mean_tokens_per_round", "tokens_per_s", "decode_s", "prefill_s"), _REAL),
    "distortion": _REAL,
    "distortion_lower_bound": _REAL,
    **{f"{origin}_tokens": _WHOLE for origin in ORIGINS},
    "interrupted": _FLAG,
    **dict.fromkeys(("error", "started", "processor", "device"), _TEXT),
}
"""The columns after folder, digest and configuration, and their types in Parquet."""


class Column(NamedTuple):
    """A column of the table.

    Attributes:
        name: its heading.
        kind: its type in Parquet.
        values: one a run, None where there is none.
    """

    name: str
    kind: str
    values: tuple[Any, ...]


def columns(study: Study) -> list[Column]:
    """Folder, digest, the keys that vary, then the numbers; every name once, whatever keys a record has."""
    runs = study.runs
    fixed = ("folder", "digest", *_KINDS)
    rows = [_cells(run.row) for run in runs]
    return [
        Column("folder", _TEXT, tuple(run.name for run in runs)),
        Column("digest", _TEXT, tuple(run.row.digest for run in runs)),
        *(_configured(name, key, runs) for name, key in _named(study.varying, fixed)),
        *(Column(name, kind, tuple(row[name] for row in rows)) for name, kind in _KINDS.items()),
    ]


def csv_text(table: Sequence[Column]) -> str:
    """The table as CSV (RFC 4180), all cells quoted, nulls empty, lists JSON, nothing a spreadsheet would calculate."""
    file = io.StringIO()
    writer = csv.writer(file, lineterminator="\n", quoting=csv.QUOTE_ALL)
    writer.writerow(csv_cell(column.name) for column in table)
    writer.writerows([_csv(value) for value in row] for row in zip(*(column.values for column in table), strict=True))
    return file.getvalue()


def json_lines(table: Sequence[Column]) -> str:
    """The table as one JSON object a row; infinities are words."""
    names = [one_line(column.name) for column in table]
    rows = zip(*(column.values for column in table), strict=True)
    return "".join(json.dumps(dict(zip(names, map(_json, row), strict=True))) + "\n" for row in rows)


def _cells(row: Row) -> dict[str, Any]:
    """What stands in a run's row; the names beyond those of `Row` are its intervals and origins."""
    low, high, kind = row.interval or (None, None, None)
    length_low, length_high, _ = row.mean_accepted_len_interval or (None, None, None)
    by_origin = row.origins
    counted = {f"{name}_tokens": None if by_origin is None else by_origin.get(name, 0) for name in ORIGINS}
    lengths = {"mean_accepted_len_low": length_low, "mean_accepted_len_high": length_high}
    unknown = dict.fromkeys(("tested", "accepted")) if row.uncounted else {}
    return {**row._asdict(), **unknown, "low": low, "high": high, "interval": kind, **lengths, **counted}


def _named(keys: Sequence[str], taken: Sequence[str]) -> list[tuple[str, str]]:
    """Headings of keys; DuckDB does not tell upper from lower case."""
    seen, found = {name.casefold() for name in taken}, []
    for key in keys:
        name = one_line(key)
        while name.casefold() in seen:
            name = f"config.{name}"
        seen.add(name.casefold())
        found.append((name, key))
    return found


def _configured(name: str, key: str, runs: Sequence[Run]) -> Column:
    values = [run.settings.get(key) for run in runs]
    known = [value for value in values if value is not None]
    kind = next((kind for kind, fits in _FITS.items() if all(map(fits, known))), _TEXT)
    made: Callable[[Leaf], Any] = shown if kind == _TEXT else lambda value: value
    return Column(name, kind, tuple(None if value is None else made(value) for value in values))


_FITS: dict[str, Callable[[Leaf], bool]] = {
    _FLAG: lambda value: isinstance(value, bool),
    _WHOLE: lambda value: _is_number(value, int) and abs(value) < _LARGEST,  # type: ignore[arg-type]
    _REAL: lambda value: _is_number(value, int | float) and abs(value) < _LARGEST,  # type: ignore[arg-type]
}


def _is_number(value: Leaf, kind: Any) -> bool:
    return isinstance(value, kind) and not isinstance(value, bool)


def _csv(value: Any) -> str:
    match value:
        case None:
            return ""
        case str():
            return csv_cell(value)
        case tuple():
            return json.dumps(value)
    return json.dumps(value) if isinstance(value, bool) else str(value)


def _json(value: Any) -> Any:
    """Python's own infinity is no JSON."""
    if isinstance(value, str):
        return one_line(value)
    return str(value) if value in (float("inf"), float("-inf")) else value
