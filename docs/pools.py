"""Records of a sweep, and pools of those that differ in the seed alone; what docs/result_pages.py makes tables of."""
# ruff: noqa: INP001 # a script beside the pages it serves

import json
import math
from collections.abc import Callable, Iterator, Sequence
from functools import reduce
from itertools import groupby
from pathlib import Path
from statistics import fmean, median, stdev
from typing import Any, NamedTuple

from specfw.diagnostics._student import quantile
from specfw.diagnostics.population import CONFIDENCE, interval

import numpy as np
import yaml


class Run(NamedTuple):
    """What is wanted of one run's record."""

    folder: Path
    config: dict[str, Any]
    numbers: dict[str, Any]

    def get(self, path: str) -> Any:
        """A value of the configuration, its keys joined by dots."""
        return reduce(dict.__getitem__, path.split("."), self.config)

    def found(self, diagnostic: str) -> dict[str, Any]:
        """The numbers of a diagnostic."""
        numbers: dict[str, Any] = self.numbers["diagnostics"][diagnostic]
        return numbers

    def texts(self) -> list[list[int]]:
        """The emitted ids of every sequence."""
        rows = map(json.loads, (self.folder / "tokens.jsonl").read_text(encoding="utf-8").splitlines())
        found: dict[tuple[int, int], list[int]] = {}
        for row in rows:
            found.setdefault((row["prompt"], row["sample"]), []).append(row["id"])
        return [found[key] for key in sorted(found)]


class Pool(NamedTuple):
    """Runs that differ in the seed alone, as sums over what they tested."""

    key: tuple[Any, ...]
    runs: list[Run]

    def total(self, name: str) -> int:
        """A counter, summed."""
        return sum(run.numbers[name] for run in self.runs)

    def mean(self, diagnostic: str, name: str, weight: str = "positions_tested") -> float:
        """A number of a diagnostic, averaged over all that `weight` counts."""
        return math.fsum(run.numbers[weight] * run.found(diagnostic)[name] for run in self.runs) / self.total(weight)

    def predicted(self, rule: str) -> float:
        """Accepted draft tokens a round that `rule` is expected to have on the blocks of these runs."""
        scored = (run.numbers["rounds"] * run.found("scoreboard")[rule]["mean_accepted_len"] for run in self.runs)
        return math.fsum(scored) / self.total("rounds")

    def rate(self, part: str, whole: str, digits: int = 3) -> str:
        """The ratio of two counters and its 95 % interval over the seeds."""
        parts, wholes = (np.array([run.numbers[name] for run in self.runs]) for name in (part, whole))
        found = interval(parts, wholes, parts)
        ends = f" [{found['low']:.{digits}f}, {found['high']:.{digits}f}]" if found else ""
        return f"{parts.sum() / wholes.sum():.{digits}f}{ends}"

    def lead(self, other: "Pool") -> str:
        """Accepted a round less that of `other` at the same seeds: the mean, and its 95 % interval."""
        of = {run.get("seed"): run.numbers["mean_accepted_len"] for run in other.runs}
        leads = [run.numbers["mean_accepted_len"] - of[run.get("seed")] for run in self.runs]
        if len(leads) < 2:  # noqa: PLR2004
            return f"{leads[0]:+.3f}"
        half = quantile(len(leads) - 1, CONFIDENCE) * stdev(leads) / math.sqrt(len(leads))
        return f"{fmean(leads):+.3f} [{fmean(leads) - half:+.3f}, {fmean(leads) + half:+.3f}]"

    @property
    def speed(self) -> str:
        """Tokens a second, the median of the seeds."""
        return f"{median(run.found('throughput')['tokens_per_s'] for run in self.runs):.0f}"

    @property
    def z(self) -> float:
        """(observed - expected) / sqrt(variance) of the closed form, sums over the runs; it decides nothing."""
        checks = [run.found("calibration")["closed_form"] for run in self.runs]
        excess = math.fsum(check["observed"] - check["expected"] for check in checks)
        return excess / math.sqrt(math.fsum(check["variance"] for check in checks))

    @property
    def evidence(self) -> str:
        """The largest log10 e-value among the runs."""
        return f"{max(float(run.numbers['log10_e_value']) for run in self.runs):.2f}"

    @property
    def verdict(self) -> str:
        """The verdicts of the runs, counted."""
        verdicts = sorted(run.numbers["verdict"] for run in self.runs)
        return ", ".join(f"{len(list(group))} {verdict}" for verdict, group in groupby(verdicts))


def read(sweep: Path) -> Iterator[Run]:
    """Every finished run of a sweep."""
    for path in sorted(sweep.glob("*/summary.json")):
        yield Run(path.parent, read_yaml(path.parent / "config.yaml"), json.loads(path.read_text(encoding="utf-8")))


def read_yaml(path: Path) -> dict[str, Any]:
    """A file of keys."""
    found: dict[str, Any] = yaml.safe_load(path.read_text(encoding="utf-8"))
    return found


def pooled(runs: Sequence[Run], key: Callable[[Run], tuple[Any, ...]]) -> dict[tuple[Any, ...], Pool]:
    """Pools by what their runs have in common, in order; seeds ascend."""
    ordered = sorted(runs, key=lambda run: (*key(run), run.get("seed")))
    return {common: Pool(common, list(group)) for common, group in groupby(ordered, key=key)}
