"""The tables of docs/results/temperature-table.md, from the records of one sweep.

    python -m specfw experiment=temperature_table
    python docs/temperature_table.py outputs/multirun/<date>/<time>

Runs that differ in the seed alone are pooled: rates and closed forms are weighted by the positions each run tested.
"""
# ruff: noqa: INP001 # a script beside the pages it serves

import json
import math
import sys
from collections.abc import Iterator, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any, NamedTuple

import yaml

SHORT = ("temperature", "sum_min", "sum_prod", "ratio", "stochastic", "sampler_match")
LONG = ("temperature", "rule", "tested", "accepted", "measured", "closed form", "z", "largest log10 e", "verdict")
PACKAGES = ("specfw", "mlx", "mlx-lm", "hydra-core", "numpy", "scipy", "python")


class Run(NamedTuple):
    """What is wanted of one run's record."""

    temperature: float
    rule: str
    seed: int
    numbers: dict[str, Any]


class Pool(NamedTuple):
    """Runs of one temperature and rule, as sums over their tested positions."""

    temperature: float
    rule: str
    runs: list[Run]

    def total(self, name: str) -> int:
        """A counter, summed."""
        return sum(run.numbers[name] for run in self.runs)

    def mean(self, form: str) -> float:
        """A closed form, averaged over all tested positions."""
        weighted = (run.numbers["positions_tested"] * _forms(run)[form] for run in self.runs)
        return math.fsum(weighted) / self.total("positions_tested")

    @property
    def measured(self) -> float:
        """Accepted of tested."""
        return self.total("accepted") / self.total("positions_tested")

    @property
    def z(self) -> float:
        """(observed - expected) / sqrt(variance) of the closed form, sums over the runs; it decides nothing."""
        checks = [run.numbers["diagnostics"]["calibration"]["closed_form"] for run in self.runs]
        excess = [check["observed"] - check["expected"] for check in checks]
        # a record keeps z and not the variance, which is lost where z is exactly 0
        variance = math.fsum((one / (check["z"] or math.inf)) ** 2 for one, check in zip(excess, checks, strict=True))
        return math.fsum(excess) / math.sqrt(variance)

    @property
    def evidence(self) -> float:
        """The largest log10 e-value among the runs."""
        return max(float(run.numbers["log10_e_value"]) for run in self.runs)

    @property
    def verdict(self) -> str:
        """The verdicts of the runs, counted."""
        verdicts = sorted(run.numbers["verdict"] for run in self.runs)
        return ", ".join(f"{len(list(group))} {verdict}" for verdict, group in groupby(verdicts))


def main(folder: str) -> None:
    """Print provenance, the short table and the long one."""
    runs = sorted(read(Path(folder)), key=lambda run: run[:3])
    pools = [Pool(run.temperature, run.rule, [run, *rest]) for run, *rest in _alike(runs)]
    sys.stdout.write("\n".join([provenance(Path(folder)), short(pools), long(pools)]))


def read(sweep: Path) -> Iterator[Run]:
    """Every finished run of a sweep."""
    for path in sweep.glob("*/summary.json"):
        config = yaml.safe_load((path.parent / "config.yaml").read_text(encoding="utf-8"))
        numbers = json.loads(path.read_text(encoding="utf-8"))
        yield Run(config["sampler"]["temperature"]["value"], config["acceptance"]["name"], config["seed"], numbers)


def short(pools: Sequence[Pool]) -> str:
    """One row a temperature: each closed form over the positions tested by the rule it belongs to."""
    found = {(pool.temperature, pool.rule): pool for pool in pools}
    rows = []
    for temperature in sorted({pool.temperature for pool in pools}):
        ratio_rule, match = (found[temperature, rule] for rule in SHORT[-2:])
        sum_min, sum_prod = ratio_rule.mean("sum_min"), match.mean("sum_prod")
        forms = [f"{sum_min:.3f}", f"{sum_prod:.3f}", f"{sum_min / sum_prod:.1f}"]
        rows.append([f"{temperature}", *forms, f"{ratio_rule.measured:.3f}", f"{match.measured:.3f}"])
    return _table(SHORT, rows)


def long(pools: Sequence[Pool]) -> str:
    """One row a temperature and rule, with what the checks say."""
    rows = [
        [
            f"{pool.temperature}",
            f"`{pool.rule}`",
            f"{pool.total('positions_tested')}",
            f"{pool.total('accepted')}",
            f"{pool.measured:.4f}",
            f"{pool.mean('expected_acceptance'):.4f}",
            f"{pool.z:.2f}",
            f"{pool.evidence:.2f}",
            pool.verdict,
        ]
        for pool in pools
    ]
    return _table(LONG, rows)


def provenance(sweep: Path) -> str:
    """When, with which versions, on which BLAS, with which weights."""
    first = min(sweep.glob("*/events.jsonl")).read_text(encoding="utf-8").partition("\n")[0]
    started = json.loads(first)
    config, versions = started["config"], started["versions"]
    shown = ", ".join(f"{name} {versions[name]}" for name in PACKAGES if versions[name] != "not installed")
    digests = {role: model["sha256"] for role, model in started["models"].items()}
    lines = (
        f"- made on {started['timestamp'][:10]} by {len(list(sweep.glob('*/summary.json')))} runs with {shown}",
        f"- float32 products by {started['blas']}, {started['threads']} thread(s) a run",
        f"- {config['max_tokens']} tokens at most, {config['num_samples']} samples of one prompt a run",
        *(f"- SHA-256 of the {role}'s weights: `{_of_weights(digest)[:16]}`" for role, digest in digests.items()),
    )
    return "".join(f"{line}\n" for line in lines)


def _alike(runs: Sequence[Run]) -> Iterator[list[Run]]:
    yield from (list(group) for _, group in groupby(runs, key=lambda run: run[:2]))


def _forms(run: Run) -> dict[str, float]:
    forms: dict[str, float] = run.numbers["diagnostics"]["closed_forms"]
    return forms


def _of_weights(digest: str | dict[str, str]) -> str:
    """A toy has one digest, of its rows; a checkpoint one for each file."""
    return digest if isinstance(digest, str) else digest["model.safetensors"]


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


if __name__ == "__main__":
    main(*sys.argv[1:])
