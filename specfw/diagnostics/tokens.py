"""Every emitted token with its p and q under the filtered rows: what tokens.jsonl is made of."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, final

from specfw.counting import ORIGINS, origins
from specfw.diagnostics.base import Diagnostic, Floats, Observer, Setting
from specfw.distribution import from_logits
from specfw.registry import register
from specfw.types import Outcome, Round

import mlx.core as mx
import numpy as np


@final
@register("diagnostic")
@dataclass(frozen=True, kw_only=True)
class Tokens(Diagnostic):
    """One record a token; off, no tokens.jsonl is written.

    Attributes:
        logprob: also the log-probability under the raw logits, nats; one more pass over the vocabulary.
    """

    logprob: bool = False

    def open(self, setting: Setting) -> "TokenRows":
        return TokenRows(logprob=self.logprob)


@final
class TokenRows(Observer):
    """Records of the tokens of the latest round; whoever writes them drains them."""

    def __init__(self, *, logprob: bool) -> None:
        self._logprob = logprob
        self._rows: list[dict[str, Any]] = []

    def trace(self, graph: Round) -> tuple[mx.array, ...]:
        block, emitted = graph.block, graph.emitted
        count = block.tokens.shape[1]
        p = block.target.at(emitted)
        q = block.draft.at(emitted[:, :count]) if block.draft is not None and count else mx.full((len(p), 0), 0.0)
        if not self._logprob:
            return p, q
        return p, q, mx.log(from_logits(graph.logits.astype(mx.float32)).at(emitted))

    def observe(self, outcome: Outcome, trace: Sequence[Floats]) -> None:
        p, q, *raw = trace
        origin = origins(outcome)
        for row, place in np.argwhere(np.arange(outcome.tokens.shape[1]) < outcome.emitted[:, None]).tolist():
            drafted = place < min(outcome.lengths[row], q.shape[1])
            record = {
                "id": int(outcome.tokens[row, place]),
                "prompt": int(outcome.prompt[row]),
                "sample": int(outcome.sample[row]),
                "position": int(outcome.position[row]) + place,
                "round": outcome.round,
                "origin": ORIGINS[origin[row, place]],
                "p": float(p[row, place]),
                "q": float(q[row, place]) if drafted else None,
            }
            self._rows.append(record | ({"logprob": float(raw[0][row, place])} if raw else {}))

    def drain(self) -> list[dict[str, Any]]:
        """The records since the last call, in order of row and position."""
        rows, self._rows = self._rows, []
        return rows

    def numbers(self) -> dict[str, Any]:
        return {}
