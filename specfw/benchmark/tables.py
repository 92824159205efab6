"""The tables of a benchmark, as a terminal and a page show them alike, and the sentences under them."""

import math
from collections.abc import Iterator, Sequence
from statistics import median
from typing import NamedTuple

from specfw.benchmark.found import Found
from specfw.benchmark.line_up import MLX_LM_PLAIN, MLX_LM_SPECULATIVE, PLAIN
from specfw.benchmark.numbers import Ratio
from specfw.benchmark.recommending import Recommendation
from specfw.benchmark.report import Report

MIB = 2**20


class Table(NamedTuple):
    """A table.

    Attributes:
        title: over it.
        head: names of the columns.
        rows: cells.
    """

    title: str
    head: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


def tables(report: Report) -> list[Table]:
    """Speed, rounds, and forward cost."""
    found = report.found.values()
    against = [name for name in (PLAIN, MLX_LM_PLAIN) if any(name in one.ratios for one in found)]
    speculative = any(_speculative(one) for one in found)
    heads = [*against, *([f"{MLX_LM_SPECULATIVE}, equal K"] if speculative else [])]
    speed = ("arm", "tokens/s", "seconds", *(f"x {name}" for name in heads), "peak MiB")
    rows = [
        (
            one.arm.name,
            number(median(one.speeds), 1),
            number(median(one.seconds), 3),
            *(interval(one.ratios.get(name)) for name in against),
            *([interval(_speculative(one))] if speculative else []),
            number(one.peak_bytes / MIB, 0),
        )
        for one in found
    ]
    return [Table("Speed", speed, tuple(rows)), _rounds(report), _costs(report)]


def sentences(report: Report) -> Iterator[str]:
    """What was left out, what diagnostics cost, and the recommendation."""
    for kind, why in report.line_up.left_out.items():
        yield f"left out: {kind}, {why}."
    if (cost := report.diagnostics) is not None:
        assert report.line_up.diagnosed is not None
        decided = "" if cost.decided else " (not decided: the interval includes 1)"
        yield f"diagnostics: {report.line_up.diagnosed[1]} takes {interval(cost)} times as long with them{decided}."
    if report.measured.interrupted:
        yield f"interrupted after {report.measured.repeats} repeats."
    if report.recommendation is None:
        yield f"no recommendation: {report.why_none}."
    else:
        yield from _recommended(report, report.recommendation)


def number(value: float | None, digits: int) -> str:
    """`value`, a dash for nan or none."""
    return "-" if value is None or math.isnan(value) else f"{value:.{digits}f}"


def interval(ratio: Ratio | None) -> str:
    """Estimate and 95 % interval."""
    if ratio is None:
        return "-"
    ends = "" if math.isnan(ratio.low) else f" [{ratio.low:.3f}, {ratio.high:.3f}]"
    return f"{ratio.estimate:.3f}{ends}"


def _speculative(found: Found) -> Ratio | None:
    return found.ratios.get(f"{MLX_LM_SPECULATIVE} K={found.arm.num_draft_tokens}")


def _rounds(report: Report) -> Table:
    head = ("arm", "K", "per-position acceptance", "accepted", "E(K)", "bound", "reached", "by x mlx_lm_plain")
    rows = tuple(_round(one) for one in report.found.values())
    return Table("Rounds", (*head, "draft ms", "verify ms", "decide ms"), rows)


def _round(one: Found) -> tuple[str, ...]:
    numbers, phases = one.numbers(), one.phases or {}
    shown = ((name, 4 if name == "per_position_acceptance" else 3) for name in _OF_ROUNDS)
    milliseconds = (1e3 * phases[name] if name in phases else None for name in ("draft_s", "verify_s", "decide_s"))
    return (
        one.arm.name,
        number(numbers["mean_num_draft_tokens"], 1 if one.arm.controller else 0),
        *(number(numbers[name], digits) for name, digits in shown),
        *(number(one.share(name), 2) for name in (PLAIN, MLX_LM_PLAIN)),
        *(number(value, 2) for value in milliseconds),
    )


_OF_ROUNDS = ("per_position_acceptance", "mean_accepted_len", "mean_tokens_per_round", "bound")


def _costs(report: Report) -> Table:
    curves = {"target": report.costs.target_s, "drafter": report.costs.drafter_s}
    present = {role: curve for role, curve in curves.items() if curve}
    head = ("rows", *(word for role in present for word in (f"{role} ms", "of one row")))
    rows = tuple(
        (str(rows), *(cell for curve in present.values() for cell in _cost(curve[rows], curve[1])))
        for rows in report.costs.target_s
    )
    return Table("Forward cost", head, rows)


def _cost(seconds: float, one: float) -> Sequence[str]:
    return f"{1e3 * seconds:.3f}", f"{seconds / one:.2f}"


def _recommended(report: Report, found: Recommendation) -> Iterator[str]:
    best = report.found[found.best].arm
    pays = f"{found.best} is {interval(found.ratio)} times as fast as plain decoding"
    if not found.decided:
        yield f"recommendation: not decided, as the interval includes 1: {pays}."
    elif found.choice == PLAIN:
        yield f"recommendation: no drafter on this machine; the best that drafts, {pays}."
    else:
        length = f"controller = {best.controller['name']}" if best.controller else f"K = {best.num_draft_tokens}"
        yield f"recommendation: the configured drafter with {best.rule}, {length}; {pays}."
    ends = "" if math.isnan(found.low) else f", 95 % interval {found.low:.1f} to {found.high:.1f}"
    yield (
        f"{found.choice}: {found.expected_tokens_per_s:.1f} tokens/s expected from forward costs alone, "
        f"{found.tokens_per_s:.1f} measured{ends}."
    )
    yield (
        f"The answer flips where each draft token stands with chance {_chance(found.flip)} from forward costs alone, "
        f"{_chance(found.flip_as_measured)} with all that a round costs here; {found.best} had "
        f"E(K) = {report.found[found.best].tokens_of_round:.3f}, as of {_chance(found.acceptance)} "
        "(draft tokens taken as independent and alike)."
    )


def _chance(value: float | None) -> str:
    return "none" if value is None else f"{value:.3f}"
