"""What a terminal shows of an audit, on stderr."""

import math
from collections.abc import Iterator
from typing import Any

from specfw.console import on_stderr, table
from specfw.verification.audit.audited import Audited

_WIDTH = 120


def show(audited: Audited) -> None:
    """Print the verdict in words, the alternatives by their evidence, and the transforms by their order."""
    console = on_stderr(_WIDTH)
    for sentence in _sentences(audited.numbers):
        console.print(sentence, soft_wrap=True)
    alternatives, orders = audited.numbers["alternatives"], audited.numbers["uniformity"]
    if alternatives:
        strongest = sorted(alternatives.items(), key=lambda item: -item[1])
        console.print(table(("alternative", "log10 product"), [(name, f"{log:.2f}") for name, log in strongest]))
    if orders:
        rows = [
            (name, *(f"{one[key]:.4f}" for key in ("ks", "ks_p", "lag1", "lag1_z"))) for name, one in orders.items()
        ]
        console.print(table(("transform by", "KS", "p", "lag 1", "z"), rows))
    if audited.folder is not None:
        console.print(f"record: {audited.folder}", soft_wrap=True)


def _sentences(numbers: Any) -> Iterator[str]:
    limit = -math.log10(numbers["alpha"])
    if math.isnan(numbers["log10_e_value"]):
        yield f"audit: {numbers['verdict']}"
    else:
        evidence = f"log10 e-value {numbers['log10_e_value']:.2f}, a text fails from {limit:g} on"
        yield f"audit: {numbers['verdict']} ({evidence})"
    if numbers["first_rejected_after"] is not None:
        yield f"rejected after {numbers['first_rejected_after']} tokens, best explained by {numbers['named']}"
    if (token := numbers["first_impossible"]) is not None:
        others = numbers["impossible_tokens"] - 1
        yield (
            f"prompt {token['prompt']}, sample {token['sample']}, position {token['position']}: token {token['id']} "
            f"({token['text']!r}) has probability 0 under the claimed chain, and so have {others} after it"
        )
    if (greedy := numbers["greedy"]) is not None and (first := greedy["first_difference"]) is not None:
        yield (
            f"greedy: {greedy['differences']} differences, {greedy['near_ties']} near-ties; first at prompt "
            f"{first['prompt']}, sample {first['sample']}, position {first['position']}: token {first['id']} for "
            f"{first['argmax']}, {first['gap']:.2g} nats below, top-2 gap {first['top_2_gap']:.2g}"
        )
