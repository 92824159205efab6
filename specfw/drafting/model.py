"""A second, smaller language model drafts token by token from its own cache."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Literal, final

from specfw.distribution import Categorical, stacked
from specfw.drafting.base import Drafting, DraftSession, Judge, Start, tail
from specfw.models.base import prefill
from specfw.randomness import Noise
from specfw.registry import register
from specfw.sampling.chain import SamplerChain
from specfw.types import History, Ints, Proposal

import mlx.core as mx
import numpy as np

Draw = Callable[[Categorical, Noise, int], mx.array]


@dataclass(frozen=True, kw_only=True)
class Autoregressive(Drafting):
    """A language model drafts token by token.

    Attributes:
        proposal: `sampled` draws each draft token from the draft chain's row; `greedy` takes that row's argmax
            and reports a point mass there, which is the law it was drawn from.
        report_distribution: false hands over tokens alone, as drafters of other engines do.
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
        return ModelSession(self, start)


@final
@register("drafting")
@dataclass(frozen=True, kw_only=True)
class ModelDrafting(Autoregressive):
    """Drafting by a model with the target's own tokens."""


def drawn(row: Categorical, noise: Noise, offset: int) -> mx.array:
    """[B, 1] int32: a draft token of the drafter's own."""
    return row.draw(noise.draft(offset)[:, None])


def raced(row: Categorical, noise: Noise, offset: int) -> mx.array:
    """[B, 1] int32: a draft token on the noise of the target's own draw at that position."""
    return row.race(noise.target([offset]))


@final
class ModelSession(DraftSession):
    """A drafter model at work.

    Args:
        drafting: its options.
        start: what it is opened with.
        draw: how a token comes from its row; by default as `start` says.
        reported: the chain whose rows are handed over; anything but the one that was drawn from is a fault.
    """

    def __init__(
        self, drafting: Autoregressive, start: Start, draw: Draw | None = None, reported: SamplerChain | None = None
    ) -> None:
        assert start.model is not None
        self._reported = reported
        self._drafting, self._start, self._model = drafting, start, start.model
        self._draw = draw or (raced if start.shared_noise else drawn)
        self._cache = start.model.new_cache(len(start.prompts))
        self._prompt_lengths = np.full(len(start.prompts), start.prompts.shape[1])
        self._filling = np.zeros(len(start.prompts), dtype=np.int64)

    def prefill(self) -> Iterator[int]:
        return prefill(self._model, self._cache, self._start.prompts[:, :-2], self._start.chunk)

    def propose(self, committed: tuple[Ints, ...], count: int, noise: Noise, judge: Judge | None = None) -> Proposal:
        owed, self._filling = tail(committed, self._cache.lengths)
        feed = mx.array(owed.astype(np.int32))
        tokens: list[mx.array] = []
        rows: list[Categorical] = []
        going, lengths = np.ones(len(committed), dtype=np.bool_), np.zeros(len(committed), dtype=np.int32)
        for offset in range(count):
            read = self._model.follow if offset else self._model.forward
            logits = read(feed, self._cache)[:, -1:]
            # the pass runs while its row, its draw and the next pass are being built
            mx.async_eval(logits)  # type: ignore[no-untyped-call]
            drafted = mx.concatenate(tokens, axis=1) if tokens else mx.zeros((len(committed), 0), dtype=mx.int32)
            coin = noise.coin([offset]) if self._start.chain.needs_coin else None
            scene = History(committed, self._prompt_lengths, drafted), coin
            row = self._row(logits, *scene)
            feed = self._draw(row, noise, offset)
            tokens.append(feed)
            rows.append(row if self._reported is None else self._reported.distribution(logits, *scene))
            lengths += going
            if judge is not None and offset + 1 < count:
                going &= judge(row.at(feed)[:, 0])
                if not going.any():
                    break
        reported = stacked(rows) if self._drafting.report_distribution else None
        return Proposal(mx.concatenate(tokens, axis=1), reported, None if judge is None else mx.array(lengths))

    def _row(self, logits: mx.array, history: History, coin: mx.array | None) -> Categorical:
        row = self._start.chain.distribution(logits, history, coin)
        return row.peak() if self._drafting.proposal == "greedy" else row

    def rewind(self, counts: Ints) -> None:
        self._cache.rewind(counts + self._filling)

    def lengths(self) -> Ints:
        return self._cache.lengths

    def arrays(self) -> Any:
        return self._cache.arrays()
