"""What a proof looks like: one line, a table, and plain values."""

import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from specfw.console import on_stderr, table
from specfw.recording import plain
from specfw.verification.power import Seen
from specfw.verification.proof import Proof

_WIDTH = 140


def line(proof: Proof) -> str:
    """The one line that says what was proved; its shape is pinned by a test."""
    smallest = min((one.p_value for one in proof.tests), default=math.nan)
    exact = "-" if proof.exact is None else f"{proof.exact.total_variation:.3g}"
    seen = f"{sum(one.seen for one in proof.power)}/{len(proof.power)}"
    return (
        f"[Proof] rule={proof.rule} verdict={'passed' if proof.passed else 'failed'} fault={proof.fault or 'none'} "
        f"tokens={proof.tokens} exact_tv={exact} smallest_p={smallest:.3g} of={len(proof.tests)} faults_seen={seen}"
    )


def record(proof: Proof) -> dict[str, Any]:
    """Everything in plain values."""
    values = proof._asdict()
    for name in ("tests", "promises", "power"):
        values[name] = [one._asdict() for one in values[name]]
    values["exact"] = None if proof.exact is None else proof.exact._asdict()
    verdict = {"verdict": "passed" if proof.passed else "failed", "rejected_by": proof.rejected_by, "line": line(proof)}
    written: dict[str, Any] = plain({**values, **verdict})
    return written


def show(proof: Proof, folder: Path) -> None:
    """Print the verdict, what was tried, and the power arm."""
    console = on_stderr(_WIDTH)
    console.print(_verdict(proof), soft_wrap=True)
    head = ("check", "p-value", "statistic", "degrees", "n")
    rows = [
        (one.name, f"{one.p_value:.3g}", f"{one.statistic:.4g}", str(one.degrees or "-"), str(one.observations))
        for one in proof.tests
    ]
    console.print(table(head, [*_exact(proof), *rows]))
    console.print(
        table(("promise", "", ""), [(one.name, "held" if one.held else "BROKEN", one.words) for one in proof.promises])
    )
    if proof.power:
        console.print(
            table(("fault", "seen by", "in a run after", "exact TV", "would need"), list(_power(proof.power)))
        )
    console.print(f"record: {folder}", soft_wrap=True)


def _verdict(proof: Proof) -> str:
    fault = f" with fault {proof.fault}" if proof.fault else ""
    if proof.passed:
        return f"{proof.rule}{fault}: passed ({proof.tokens} tokens, alpha {proof.alpha:g} for all checks together)"
    return f"{proof.rule}{fault}: failed ({proof.tokens} tokens), rejected by: {', '.join(proof.rejected_by)}"


def _exact(proof: Proof) -> Iterator[tuple[str, ...]]:
    if proof.exact is not None:
        name = f"exact bench, {proof.exact.draft_tokens + 1} tokens, total variation"
        yield name, "-", f"{proof.exact.total_variation:.3g}", "-", "-"


def _power(found: tuple[Seen, ...]) -> Iterator[tuple[str, ...]]:
    for one in found:
        by = ", ".join(dict.fromkeys(_word(name) for name in one.by)) or "not seen"
        run = ", ".join(f"{name} {tokens}" for name, tokens in sorted(one.by_run.items(), key=lambda item: item[1]))
        exact = "-" if one.exact is None else f"{one.exact:.3g}"
        yield one.fault, by, run or "-", exact, _needed(one)


def _word(check: str) -> str:
    """A check in a word: first, places, all, pairs, p-values, neighbours, support."""
    word = check.split(",", maxsplit=1)[0].split(maxsplit=1)[0]
    return "places" if word == "place" else word


def _needed(one: Seen) -> str:
    if one.seen:
        return ""
    return (
        "unknown" if one.exact is None else "no sample of this pair" if one.would_need is None else str(one.would_need)
    )
