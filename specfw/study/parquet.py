"""DuckDB over JSON lines: what tokens.jsonl of every run holds, and the table of runs as Parquet.

Records are anyone's, so DuckDB is told nothing but files: their names are parameters, it may open no other, extensions
are neither loaded nor fetched, and the settings are locked before the first file is read.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from specfw.files import TOKENS, write_whole
from specfw.study.gathered import Run, Study
from specfw.study.gathering import problem
from specfw.study.loading import is_regular
from specfw.study.rows import ORIGINS, Column, json_lines

_NO_EXTENSIONS: dict[str, Any] = {
    "autoinstall_known_extensions": "false",
    "autoload_known_extensions": "false",
    "allow_community_extensions": "false",
}
_COUNT = """
    SELECT filename, json ->> '$.origin' AS origin, count(*)
    FROM read_ndjson_objects(?, filename = true, ignore_errors = true)
    GROUP BY ALL
"""
"""Of a line that is no JSON the origin is null."""

_SPECIAL = re.compile(r"[*?\[]")


def require_duckdb() -> None:
    """Refuse a report that could not be written.

    Raises:
        ValueError: the extra is not installed.
    """
    try:
        import duckdb  # noqa: F401
    except ImportError as error:
        raise ValueError(f"task=report must have the extra report (pip install 'specfw[report]'): {error}") from error


def counted(study: Study) -> Study:
    """The study with every run's tokens counted by origin, and a problem where they are not those it emitted."""
    paths = {str(run.folder / TOKENS): run for run in study.runs if is_regular(run.folder / TOKENS)}
    found = _origins(list(paths))
    problems = [
        problem(run.name, sentence)
        for path, run in paths.items()
        if (sentence := _wrong(run, found.get(path, {}))) is not None
    ]
    known = {paths[path].folder: _known(origins) for path, origins in found.items() if origins is not None}
    runs = tuple(run._replace(row=run.row._replace(origins=known.get(run.folder))) for run in study.runs)
    return study._replace(runs=runs, problems=(*study.problems, *problems))


def write(table: Sequence[Column], path: Path) -> None:
    """Write the table, whole or not at all."""
    lines, part = path.with_name(f".{path.stem}.jsonl"), path.with_name(f".{path.name}.part")
    write_whole(lines, json_lines(table))
    try:
        with _opened([str(lines), str(part)]) as database:
            kinds = {column.name: column.kind for column in table}
            database.read_json(_literal(str(lines)), columns=kinds, format="newline_delimited").write_parquet(str(part))
        part.replace(path)
    finally:
        lines.unlink()


def _origins(paths: list[str]) -> dict[str, dict[str | None, int] | None]:
    """Tokens by origin in each file that has any; None for a file that DuckDB cannot read."""
    import duckdb

    found: dict[str, dict[str | None, int] | None] = {path: None for path in paths if not _can_be_asked_for(path)}
    paths = [path for path in paths if path not in found]
    counts: dict[str, dict[str | None, int]] = {}
    try:
        with _opened(paths) as database:
            literal = [_literal(path) for path in paths]
            for name, origin, count in database.execute(_COUNT, [literal]).fetchall() if paths else ():
                counts.setdefault(name, {})[origin] = count
    except duckdb.Error:  # whichever file it was
        half = len(paths) // 2
        return found | (_origins(paths[:half]) | _origins(paths[half:]) if half else dict.fromkeys(paths))
    return found | counts


def _literal(path: str) -> str:
    """The pattern that this path alone fits: what DuckDB would expand stands in brackets."""
    return _SPECIAL.sub(r"[\g<0>]", path)


def _can_be_asked_for(path: str) -> bool:
    """A path in UTF-8; in a pattern DuckDB takes a backslash for a slash."""
    try:
        path.encode()
    except UnicodeEncodeError:
        return False
    return "\\" not in path or not _SPECIAL.search(path)


def _wrong(run: Run, origins: Mapping[str | None, int] | None) -> str | None:
    if origins is None:
        return f"{TOKENS} cannot be read by DuckDB"
    if broken := sum(count for origin, count in origins.items() if origin not in ORIGINS):
        return f"{broken} lines of {TOKENS} are no tokens"
    held = sum(origins.values())
    return None if held == run.row.emitted else f"{TOKENS} holds {held} tokens, and {run.row.emitted} were emitted"


def _known(origins: Mapping[str | None, int]) -> dict[str, int]:
    return {name: origins[name] for name in ORIGINS if name in origins}


@contextmanager
def _opened(paths: Sequence[str]) -> Iterator[Any]:
    """A database in memory that can touch these files alone; it asks for them by their patterns too."""
    import duckdb

    with duckdb.connect(":memory:", config=_NO_EXTENSIONS) as database:
        database.execute("SET allowed_paths = ?", [sorted({*paths, *map(_literal, paths)})])
        database.execute("SET enable_external_access = false")
        database.execute("SET lock_configuration = true")
        yield database
