"""A second, smaller language model drafts token by token from its own cache."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal, final

from specfw.distribution import Categorical, Dense, Survivors
from specfw.drafting.base import Drafting, DraftSession, Start, tail
from specfw.models.base import prefill
from specfw.randomness import Noise
from specfw.registry import register
from specfw.sampling.chain import SamplerChain
from specfw.types import History, Ints, Proposal

import mlx.core as mx
import numpy as np


@final
@register("drafting")
@dataclass(frozen=True, kw_only=True)
class ModelDrafting(Drafting):
    """Autoregressive drafting.

    Attributes:
        proposal: `sampled` draws each draft token from the draft chain's row; `greedy` takes that row's argmax
            and reports a point mass there, which is the law it was drawn from.
        reports_distribution: false hands over tokens alone, as drafters of other engines do.
    """

    proposal: Literal["sampled", "greedy"] = "sampled"
    report_distribution: bool = True

    shares_noise = True

    @property
    def caches(self) -> Literal["own"]:
        return "own"

    def reports_distribution(self) -> bool:
        return self.report_distribution

    def point_mass(self, chain: SamplerChain) -> bool:
        return self.proposal == "greedy" or chain.is_greedy

    def open(self, start: Start) -> DraftSession:
        return _ModelSession(self, start)


@final
class _ModelSession(DraftSession):
    def __init__(self, drafting: ModelDrafting, start: Start) -> None:
        assert start.model is not None
        self._drafting, self._start, self._model = drafting, start, start.model
        self._cache = start.model.new_cache(len(start.prompts))
        self._prompt_lengths = np.full(len(start.prompts), start.prompts.shape[1])
        self._filling = np.zeros(len(start.prompts), dtype=np.int64)

    def prefill(self) -> Iterator[int]:
        return prefill(self._model, self._cache, self._start.prompts[:, :-2], self._start.chunk)

    def propose(self, committed: tuple[Ints, ...], count: int, noise: Noise) -> Proposal:
        owed, self._filling = tail(committed, self._cache.lengths)
        feed = mx.array(owed.astype(np.int32))
        tokens: list[mx.array] = []
        rows: list[Categorical] = []
        for offset in range(count):
            logits = self._model.forward(feed, self._cache)[:, -1:]
            drafted = mx.concatenate(tokens, axis=1) if tokens else mx.zeros((len(committed), 0), dtype=mx.int32)
            row = self._row(logits, History(committed, self._prompt_lengths, drafted), noise, offset)
            token = self._draw(row, noise, offset)
            tokens.append(token)
            rows.append(row)
            feed = token
        drafts = mx.concatenate(tokens, axis=1)
        return Proposal(drafts, _stacked(rows) if self._drafting.report_distribution else None)

    def _row(self, logits: mx.array, history: History, noise: Noise, offset: int) -> Categorical:
        chain = self._start.chain
        coin = noise.coin([offset]) if chain.needs_coin else None
        row = chain.distribution(logits, history, coin)
        return row.peak() if self._drafting.proposal == "greedy" else row

    def _draw(self, row: Categorical, noise: Noise, offset: int) -> mx.array:
        """[B, 1] int32: the draft token `offset` places into the round."""
        if self._start.shared_noise:
            return row.race(noise.target([offset]))
        return row.draw(noise.draft(offset)[:, None])

    def rewind(self, counts: Ints) -> None:
        self._cache.rewind(counts + self._filling)

    def lengths(self) -> Ints:
        return self._cache.lengths

    def arrays(self) -> Any:
        return self._cache.arrays()


def _stacked(rows: list[Categorical]) -> Categorical:
    """K rows [B, 1, S] of one form as [B, K, S]."""
    probs = mx.concatenate([row.probs for row in rows], axis=1)
    ids = [row.ids for row in rows if isinstance(row, Survivors)]
    return Survivors(mx.concatenate(ids, axis=1), probs) if ids else Dense(probs)
