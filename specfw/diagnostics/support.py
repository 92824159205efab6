"""How many ids the sampler chain leaves and how flat rows are: p rows of emitted tokens, q rows of tested ones."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, final

from specfw.counting import rate, tested
from specfw.diagnostics.base import Diagnostic, Floats, Observer, Setting
from specfw.distribution import Categorical
from specfw.registry import register
from specfw.summation import block_sum
from specfw.types import Outcome, Round

import mlx.core as mx
import numpy as np

NAMES = ("target_ids", "target_entropy", "drafter_ids", "drafter_entropy")


@final
@register("diagnostic")
@dataclass(frozen=True, kw_only=True)
class Support(Diagnostic):
    """Mean number of ids with a probability above 0, and mean entropy in nats.

    Attributes:
        enabled: off by default; it takes a logarithm of every entry of every row.
    """

    enabled: bool = False

    def open(self, setting: Setting) -> Observer:
        return _Means(stops=setting.rule.stops_at_rejection)


@final
class _Means(Observer):
    def __init__(self, *, stops: bool) -> None:
        self._stops = stops
        self._sums = np.zeros((2, 2))
        self._counts = np.zeros(2, dtype=np.int64)

    def trace(self, graph: Round) -> tuple[mx.array, ...]:
        draft = graph.block.draft if graph.block.tokens.shape[1] else None
        rows = [graph.block.target] if draft is None else [graph.block.target, draft]
        return tuple(mx.stack([ids(row), entropy(row)]) for row in rows)

    def observe(self, outcome: Outcome, trace: Sequence[Floats]) -> None:
        limits = (outcome.emitted, tested(outcome, self._stops))
        for model, (found, limit) in enumerate(zip(trace, limits, strict=False)):
            seen = np.arange(found.shape[-1]) < limit[:, None]
            self._counts[model] += int(seen.sum())
            self._sums[model] += np.where(seen, found, 0).sum(axis=(1, 2), dtype=np.float64)

    def numbers(self) -> dict[str, Any]:
        pairs = zip(self._sums.tolist(), self._counts.tolist(), strict=True)
        return dict(zip(NAMES, (rate(total, count) for sums, count in pairs for total in sums), strict=True))


def ids(row: Categorical) -> mx.array:
    """[...] how many ids have a probability above 0."""
    return (row.probs > 0).sum(axis=-1).astype(mx.float32)


def entropy(row: Categorical) -> mx.array:
    """[...] -sum p log p, in nats."""
    return -block_sum(mx.where(row.probs > 0, row.probs * mx.log(row.probs), 0))
