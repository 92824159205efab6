"""A page of results: the machine, the command, and what was run, and nothing else."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from specfw.benchmark.tables import Table


def page(title: str, machine: Mapping[str, Any], facts: Sequence[str], shown: Iterable[Table], ends: str) -> str:
    """The page in Markdown.

    Args:
        title: its heading.
        machine: from `machine`.
        facts: further lines about what was run.
        shown: tables, each under its title.
        ends: what stands under the tables.
    """
    parts = [f"# {title}", "\n".join(f"- {fact}" for fact in (*_facts(machine), *facts))]
    for table in shown:
        parts += [f"## {table.title}", _markdown(table)]
    return "\n\n".join([*parts, ends]) + "\n"


def _facts(machine: Mapping[str, Any]) -> list[str]:
    versions = ", ".join(f"{name} {found}" for name, found in machine["versions"].items())
    blas = f"{machine['blas']} ({machine['blas_version']})" if machine["blas_version"] else machine["blas"]
    threads = machine["threads"] or "its own number of"
    return [
        f"command: `{machine['command']}`",
        f"measured: {machine['date']}",
        f"machine: {machine['processor']}, {machine['cores']} cores, {machine['system']}, MLX on {machine['device']}",
        f"float32 products: {blas}, {threads} thread{'' if threads == 1 else 's'}",
        f"versions: {versions}",
    ]


def _markdown(table: Table) -> str:
    lines = [table.head, ["---"] * len(table.head), *table.rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)
