"""The lists and tables of docs/results/forward-cost.md, from the records of one sweep and the models it ran.

    python -m specfw -m acceptance=stochastic sampler.temperature.value=0.7,1.0 \
        controller.num_draft_tokens=1,2,4,8 num_samples=8 max_tokens=400
    python docs/forward_cost.py outputs/multirun/<date>/<time>

A round at draft length K takes K drafter passes over one row (d seconds each) and one target pass over K + 1 rows
(c(K + 1) seconds), and yields E(K) tokens; plain decoding yields one in c(1) seconds. So the speed-up is at most
E(K) c(1) / (c(K + 1) + K d): everything else a round does comes on top. Runs that differ in the seed alone are
pooled. The passes are timed here and now, on `SPECFW_BLAS_THREADS` threads (default: the cores).
"""
# ruff: noqa: INP001, E402 # a script beside the pages it serves; the BLAS must be bound before MLX is loaded

import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from itertools import groupby
from pathlib import Path
from typing import Any, NamedTuple

from specfw.backend import bind

BACKEND = bind()

from specfw.models.base import LanguageModel
from specfw.models.cost import forward_cost
from specfw.registry import build

import yaml

ROLES = ("target", "drafter")
ROWS, CONTEXT, REPEATS = (1, 2, 3, 5, 9), 256, 200
COSTS = ("rows", "target, ms", "of one row", "drafter, ms", "of one row")
BOUNDS = ("temperature", "K", "rounds", "tokens a round", "by the law", "cost of a round", "bound")
PACKAGES = ("mlx", "mlx-lm", "python")


class Run(NamedTuple):
    """What is wanted of one run's record."""

    temperature: float
    length: int
    numbers: dict[str, Any]


class Costs(NamedTuple):
    """Seconds of a forward pass, by rows."""

    target: Mapping[int, float]
    drafter: Mapping[int, float]

    def of_round(self, length: int) -> float:
        """(c(K + 1) + K d) / c(1)."""
        return (self.target[length + 1] + length * self.drafter[1]) / self.target[1]


def main(folder: str) -> None:
    """Print provenance, what passes cost, and the bound."""
    sweep = Path(folder)
    runs = sorted(read(sweep), key=lambda run: run[:2])
    started = json.loads(min(sweep.glob("*/events.jsonl")).read_text(encoding="utf-8").partition("\n")[0])
    models: list[LanguageModel] = [build("model", started["config"][role], role).load(role) for role in ROLES]
    costs = Costs(*(forward_cost(model, ROWS, CONTEXT, REPEATS) for model in models))
    sys.stdout.write("\n".join([provenance(started, models, len(runs)), cost_table(costs), bound_table(runs, costs)]))


def read(sweep: Path) -> Iterator[Run]:
    """Every finished run of a sweep."""
    for path in sweep.glob("*/summary.json"):
        config = yaml.safe_load((path.parent / "config.yaml").read_text(encoding="utf-8"))
        numbers = json.loads(path.read_text(encoding="utf-8"))
        yield Run(config["sampler"]["temperature"]["value"], config["controller"]["num_draft_tokens"], numbers)


def provenance(started: Mapping[str, Any], models: Sequence[LanguageModel], runs: int) -> str:
    """When, with which versions, on which machine and BLAS, with which weights."""
    config = started["config"]
    limits = f"{config['max_tokens']} tokens at most"
    sampled = f"{config['num_samples']} samples of {_counted(started['prompts'], 'prompt')}, {limits}"
    shown = ", ".join(f"{name} {started['versions'][name]}" for name in PACKAGES)
    digests = {role: model.fingerprint()["sha256"] for role, model in zip(ROLES, models, strict=True)}
    threads = _counted(BACKEND.threads or "its own", "thread")
    lines = (
        f"- measured on {datetime.now(UTC):%Y-%m-%d} with {shown}",
        f"- {BACKEND.processor}, float32 products by {BACKEND.blas}, {threads}",
        f"- a pass: the median of {REPEATS} after {CONTEXT} tokens of context",
        f"- tokens a round: {runs} runs of `{config['acceptance']['name']}`, {sampled}",
        *(f"- SHA-256 of the {role}'s weights: `{_of_weights(digest)[:16]}`" for role, digest in digests.items()),
    )
    return "".join(f"{line}\n" for line in lines)


def _counted(number: int | str, word: str) -> str:
    return f"{number} {word}{'' if number == 1 else 's'}"


def cost_table(costs: Costs) -> str:
    """One row a number of rows: c and d, in milliseconds and in passes over one row."""
    cells = ([f"{1e3 * cost[rows]:.3f}", f"{cost[rows] / cost[1]:.2f}"] for rows in ROWS for cost in costs)
    return _table(COSTS, [[str(rows), *next(cells), *next(cells)] for rows in ROWS])


def bound_table(runs: Sequence[Run], costs: Costs) -> str:
    """One row a temperature and K: E(K) as measured and as the rule's law has it, and the bound on the speed-up."""
    rows = []
    for (temperature, length), alike in groupby(runs, key=lambda run: run[:2]):
        numbers = [run.numbers for run in alike]
        rounds = sum(run["rounds"] for run in numbers)
        measured = 1 + sum(run["accepted"] for run in numbers) / rounds
        law = 1 + sum(run["diagnostics"]["calibration"]["lengths"]["expected"] for run in numbers) / rounds
        cost = costs.of_round(length)
        shown = [f"{measured:.3f}", f"{law:.3f}", f"{cost:.2f}", f"{measured / cost:.2f}"]
        rows.append([f"{temperature}", f"{length}", f"{rounds}", *shown])
    return _table(BOUNDS, rows)


def _of_weights(digest: str | Mapping[str, str]) -> str:
    """A toy has one digest, of its rows; a checkpoint one for each file."""
    return digest if isinstance(digest, str) else digest["model.safetensors"]


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


if __name__ == "__main__":
    main(*sys.argv[1:])
