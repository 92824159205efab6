"""The page in Markdown: what was run, the tables, what their columns mean, and what could not be read."""

import re
from collections.abc import Iterator, Sequence

from specfw.study.columns import shown
from specfw.study.escaping import markdown, one_line, shortened
from specfw.study.gathered import Run, Study
from specfw.study.tables import Cell, Table, checks, claims, lengths, others, pooled
from specfw.study.values import at

_WIDTH, _LISTED, _WIDE = 60, 120, 200
_WORD = re.compile(r"[A-Za-z][\w-]*", re.ASCII)
_SEVERAL = 3
PACKAGES = ("specfw", "mlx", "mlx-lm", "hydra-core", "numpy", "scipy", "python")

NOTES = """
- Runs that differ in the seed alone are one row; their numbers are weighted by the draft tokens each tested.
- `tested`, `accepted`: draft tokens; of rules that look past a rejection those at the first place of a round.
- `sum_min`, `sum_prod`: means over the tested draft tokens, each over the runs of rules whose closed form it is, or over all where it is none's. `ratio` is `sum_min / sum_prod`.
- `95 % interval`: of three runs or more over their seeds (Student's t), of one run over its prompts or the samples of its only prompt, else Wilson's, which takes draft tokens as independent and is too narrow for those of few texts.
- `closed form`: the rule's own, over just these draft tokens. `z`: (accepted - expected) / sqrt(variance); it decides nothing.
- `largest log10 e`: of the runs' e-values. A run fails above 6.
- `distortion`: of lossy rules that declare what they follow, its total variation from the target at the first draft tokens of rounds.
- `distortion_lower_bound`: of lossy rules, what the first draft tokens of rounds are accepted beyond `sum_min`.
""".strip()  # noqa: E501 # a paragraph is a line


def page(study: Study) -> str:
    """The page in Markdown; everything that a record says is escaped."""
    found = pooled(study)
    tables = [claims(found), checks(found), lengths(found)] if study.runs else []
    parts = ["# Report", "\n".join(f"- {fact}" for fact in _facts(study))]
    for table in (*tables, *others(study)):
        parts += [f"## {table.title}", _table(table)]
    if study.runs:
        parts += ["## What the columns mean", NOTES]
    if study.problems:
        problems = (f"- {_cell(Cell(one.name))}: {markdown(one.sentence)}" for one in study.problems)
        parts += ["## What is not as it should be", "\n".join(problems)]
    return "\n\n".join(parts) + "\n"


def _facts(study: Study) -> Iterator[str]:
    """What was read, and what all runs have in common or how many things they have."""
    counted = f"{len(study.runs)} runs, {len(study.others)} other records, {len(study.problems)} problems"
    yield f"{counted}, from {_several(study.sources)}"
    runs = study.runs
    if not runs:
        return
    dates = sorted({(run.row.started or "")[:10] for run in runs} - {""})
    yield f"made on {_several(dates)} with {_several([_versions(run) for run in runs])}"
    yield f"float32 products by {_several([_said(run, 'blas') for run in runs])}, {_threads(runs)} thread(s) a run"
    limits = _several([shown(run.settings.get("max_tokens")) for run in runs])
    samples = _several([shown(run.settings.get("num_samples")) for run in runs])
    prompts = _several([_said(run, "prompts") for run in runs])
    yield f"{limits} tokens at most, {samples} samples of {prompts} prompt(s) a run"
    for role in ("target", "drafter"):
        if digests := [digest for run in runs if (digest := _weights(run, role))]:
            yield f"SHA-256 of the {role}'s weights: {_several(digests)}"


def _several(values: Sequence[str]) -> str:
    """The distinct values in order, a few of them."""
    distinct = list(dict.fromkeys(values))
    words = ", ".join(markdown(shortened(one_line(one), _WIDE)) for one in distinct[:_SEVERAL])
    return words if len(distinct) <= _SEVERAL else f"{words} and {len(distinct) - _SEVERAL} more"


def _said(run: Run, name: str) -> str:
    """What the run's first event says, whatever it is."""
    return shown(run.started.get(name))


def _threads(runs: Sequence[Run]) -> str:
    return _several([_said(run, "threads") for run in runs])


def _versions(run: Run) -> str:
    versions = run.started.get("versions")
    if not isinstance(versions, dict):
        return "unknown versions"
    said = ((name, versions.get(name)) for name in PACKAGES)
    return ", ".join(f"{name} {version}" for name, version in said if version not in (None, "not installed"))


def _weights(run: Run, role: str) -> str | None:
    """The first digits of the weights' digest; a toy has one of its rows, a checkpoint one for each file."""
    try:
        digest = at(run.started, f"models.{role}.sha256")
    except ValueError:
        return None
    found = digest.get("model.safetensors") if isinstance(digest, dict) else digest
    return found[:16] if isinstance(found, str) else None


def _table(table: Table) -> str:
    rows = [[_heading(one) for one in table.head], ["---"] * len(table.head)]
    rows += [[_cell(one) for one in row] for row in table.rows]
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


def _heading(head: str | Cell) -> str:
    """A plain word stands as it is."""
    text = head.text if isinstance(head, Cell) else head
    return text if not isinstance(head, Cell) or _WORD.fullmatch(text) else _cell(head)


def _cell(cell: str | Cell) -> str:
    if isinstance(cell, str):
        return cell
    return markdown(shortened(one_line(cell.text), _LISTED if cell.listed else _WIDTH))
