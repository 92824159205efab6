"""Speed against plain decoding, where a benchmark or a plain run of the same machine and configuration is there."""

import json
import math
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from specfw.study.columns import compared
from specfw.study.figures.canvas import INK, MUTED, Key, canvas, label
from specfw.study.figures.figure import (
    Figure,
    between,
    configured,
    cut,
    differing,
    digits,
    sentences,
    share_ticks,
    value_of,
)
from specfw.study.gathered import PROMPTS, Run, Study
from specfw.study.pooling import Pool, pools
from specfw.study.values import at, number, text

import numpy as np

TITLE = "Speed against plain decoding"
LEAD = (
    "How many times as many tokens a second as without a drafter, on the same machine. Right of the line it pays to "
    "draft. Bars: 95 % intervals."
)
WHY = (
    "Not available: among the sources is neither a benchmark (task=benchmark) nor a plain run (drafting=none) that has "
    "the seed of a run that drafts, and its machine, threads (a sweep's are 1), target, prompts and sampler."
)
PLAIN = "plain"
_MOST = 24
_OF_DRAFTING = ("acceptance", "drafter", "drafting", "draft_sampler", "controller", "log_level")


class Ratio(NamedTuple):
    """An arm's tokens a second over plain decoding's.

    Attributes:
        name: of the arm.
        label: the same without the names of keys, for which there is no room in the picture.
        measured: `benchmark` or `runs`, how it was measured.
        estimate: the ratio.
        low: lower end of its 95 % interval, None where nothing was repeated.
        high: upper end.
    """

    name: str
    label: str
    measured: str
    estimate: float
    low: float | None
    high: float | None


def draw(study: Study) -> Figure:
    """The figure of a study."""
    found = [*_benchmarks(study), *_runs(study)]
    if not found:
        return Figure("speedup", TITLE, LEAD, why=WHY)
    drawn = found[:_MOST]
    left = f"{len(found) - _MOST} more are not drawn." if len(found) > _MOST else ""
    kinds = dict.fromkeys(one.measured for one in found)
    warned = "Runs measure speed with their diagnostics on, one after the other; task=benchmark interleaves its arms."
    rows, rest = cut(
        [(one.name, one.measured, digits(one.estimate, 3), between(one.low, one.high, 3)) for one in found]
    )
    return Figure(
        key="speedup",
        title=TITLE,
        lead=LEAD,
        svg=_picture(drawn),
        legend=tuple(_KEYS[kind] for kind in kinds),
        head=("arm", "measured by", "times as fast", "95 %"),
        rows=rows,
        note=sentences(warned if "runs" in kinds else "", left, rest),
    )


_KEYS = {"benchmark": Key("task=benchmark", 0, "o"), "runs": Key("runs, paired by seed", 1, "s")}


def _benchmarks(study: Study) -> Iterator[Ratio]:
    for other in study.others:
        arms = other.numbers.get("arms") if other.kind == "benchmark" else None
        for arm in arms if isinstance(arms, list) else []:
            try:
                name = text(arm, "name")
                estimate, low, high = (
                    number(at(arm, "ratios"), f"{PLAIN}.{end}") for end in ("estimate", "low", "high")
                )
            except ValueError:
                continue
            if name is not None and name != PLAIN and estimate is not None and estimate > 0:
                yield Ratio(name, name, "benchmark", estimate, low, high)


def _runs(study: Study) -> Iterator[Ratio]:
    """Pools against plain runs of the same seeds that differ in nothing but drafting."""
    pooled = pools(study.runs)
    plain = {_setting(run): run for pool in pooled if pool.rule == PLAIN for run in pool.runs}
    compared: list[tuple[Pool, list[float]]] = []
    for pool in pooled:
        pairs = [(run, plain.get(_setting(run))) for run in pool.runs if pool.rule != PLAIN]
        logs = [math.log(ratio) for run, other in pairs if other is not None and (ratio := _ratio(run, other))]
        if logs:
            compared.append((pool, logs))
    names = differing(study, (pool for pool, _ in compared))
    for pool, logs in compared:
        named = ", ".join(part for part in (pool.rule, configured(pool, names)) if part)
        brief = ", ".join((pool.rule, *(value_of(pool, one) for one in names)))
        yield Ratio(named, brief, "runs", *_mean(logs))


def _setting(run: Run) -> str:
    """What must be the same for two speeds to be compared: machine, seed, and all that is not of drafting."""
    pointed_at = [run.inputs.get(name) for name in ("target", PROMPTS)]
    kept = {key: value for key, value in compared(run).items() if key.partition(".")[0] not in _OF_DRAFTING}
    return json.dumps([run.row.seed, run.row.processor, run.row.device, pointed_at, kept], sort_keys=True)


def _ratio(run: Run, plain: Run) -> float | None:
    fast, slow = run.row.tokens_per_s, plain.row.tokens_per_s
    return fast / slow if fast and slow and fast > 0 and slow > 0 else None


def _mean(logs: Sequence[float]) -> tuple[float, float | None, float | None]:
    """Geometric mean, and Student's t interval of the mean logarithm, None of a single seed."""
    mean = float(np.mean(logs))
    if len(logs) == 1:
        return math.exp(mean), None, None
    from scipy.stats import t

    half = float(t.ppf(0.975, len(logs) - 1) * np.std(logs, ddof=1) / math.sqrt(len(logs)))
    return math.exp(mean), math.exp(mean - half), math.exp(mean + half)


def _picture(drawn: Sequence[Ratio]) -> str:
    with canvas("speedup", 62 + 22 * len(drawn)) as sheet:
        axes = sheet.axes(x="times as fast as plain decoding")
        axes.axvline(1, color=MUTED, linewidth=1.2, dashes=(4, 3))
        for place, one in enumerate(drawn):
            _mark(sheet, axes, one, place, _KEYS[one.measured])
        axes.set_yticks(range(len(drawn)), [label(one.label) for one in drawn])
        axes.tick_params(axis="y", labelcolor=INK)
        axes.set_ylim(len(drawn) - 0.5, -0.5)
        axes.set_xlim(*_limits(drawn))
        axes.grid(visible=False, axis="y")
        share_ticks(axes.xaxis)
        return sheet.svg(TITLE)


def _limits(drawn: Sequence[Ratio]) -> tuple[float, float]:
    """One and every estimate, and intervals up to twice the largest: two seeds can have endless ones."""
    estimates = [1.0, *(one.estimate for one in drawn)]
    ends = [end for one in drawn for end in (one.low, one.high) if end is not None]
    low, high = min(estimates), max(estimates)
    return max(0.0, min([low, *ends]) - 0.05), min(max([high, *ends]), 2 * high) + 0.05


def _mark(sheet: Any, axes: Any, one: Ratio, place: int, key: Key) -> None:
    if one.low is not None and one.high is not None:
        axes.hlines(place, one.low, one.high, color=INK, linewidth=1.2, alpha=0.6)
    interval = "" if one.low is None else f" ({between(one.low, one.high, 2)})"
    words = f"{one.name}: {digits(one.estimate, 2)} times plain decoding{interval}"
    sheet.point(axes, (one.estimate, place), key, words)
