"""Drafts that do not follow the law they are reported with: in the exact bench, and in a live run."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any, Literal, final

from specfw.drafting.base import Drafting, DraftSession, Judge, Start
from specfw.drafting.model import Autoregressive, ModelSession
from specfw.randomness import Noise
from specfw.sampling.chain import SamplerChain
from specfw.types import Ints, Proposal
from specfw.verification.exact import Doubles, Pair, Proposed, all_blocks, honest, joint
from specfw.verification.faults.next_token import proposing

import mlx.core as mx
import numpy as np

CONFIDENT = 0.5
TRUNCATIONS = ("top_k", "top_p", "min_p", "xtc")
Open = Callable[[Autoregressive, Start], DraftSession]


@final
@dataclass(frozen=True, kw_only=True)
class Misdrafting(Drafting):
    """A drafter model whose session is opened wrongly.

    Attributes:
        inner: the right one.
        opened: makes the session.
    """

    inner: Autoregressive
    opened: Open

    shares_noise = True

    @property
    def caches(self) -> Literal["own"]:
        return "own"

    def reports_distribution(self) -> bool:
        return True

    def point_mass(self, chain: SamplerChain) -> bool:
        return self.inner.point_mass(chain)

    def open(self, start: Start) -> DraftSession:
        return self.opened(self.inner, start)


def raw(chain: SamplerChain) -> SamplerChain:
    """No step at all: the model's own softmax."""
    return replace(chain, steps=())


def unfiltered(chain: SamplerChain) -> SamplerChain:
    """The chain without its truncations."""
    return replace(chain, steps=tuple(step for step in chain.steps if step[0] not in TRUNCATIONS))


def scored_by(reported: Callable[[SamplerChain], SamplerChain]) -> Open:
    """Opens a session that draws after the whole chain and reports the rows of another."""
    return lambda drafting, start: ModelSession(drafting, start, reported=reported(start.chain))


def argmax_drafts(drafting: Autoregressive, start: Start) -> DraftSession:
    """Takes the argmax and reports the soft row."""
    return ModelSession(drafting, start, draw=lambda row, *_: row.argmax())


def racing_drafts(drafting: Autoregressive, start: Start) -> DraftSession:
    """Draws rightly, on noise that the rule is going to use again."""
    return ModelSession(drafting, start, draw=lambda row, noise, offset: row.race(proposing(noise, offset)[:, None]))


def without_the_unsure(drafting: Autoregressive, start: Start) -> DraftSession:
    """Throws away the first draft token below `CONFIDENT`, and what follows it, after it was drawn."""
    return _Discarding(ModelSession(drafting, start))


@final
class _Discarding(DraftSession):
    def __init__(self, inner: DraftSession) -> None:
        self._inner = inner

    def prefill(self) -> Iterator[int]:
        return self._inner.prefill()

    def propose(self, committed: tuple[Ints, ...], count: int, noise: Noise, judge: Judge | None = None) -> Proposal:
        proposal = self._inner.propose(committed, count, noise, judge)
        assert proposal.rows is not None
        sure = (proposal.rows.at(proposal.tokens) >= CONFIDENT).astype(mx.int32)
        return proposal._replace(lengths=mx.cumprod(sure, axis=1).sum(axis=1))

    def rewind(self, counts: Ints) -> None:
        self._inner.rewind(counts)

    def lengths(self) -> Ints | None:
        return self._inner.lengths()

    def arrays(self) -> Any:
        return self._inner.arrays()


def filtered_draws(pair: Pair) -> Proposed:
    """Drawn from the two most probable ids of each row, reported unfiltered."""
    return honest(pair)._replace(weights=_weights(pair, _two_largest))


def argmax_draws(pair: Pair) -> Proposed:
    """Drawn by argmax, reported soft."""
    return honest(pair)._replace(weights=_weights(pair, lambda row: np.eye(row.shape[-1])[row.argmax(-1)]))


def discarded_draws(pair: Pair) -> Proposed:
    """Blocks that end before their first token of probability below `CONFIDENT`."""
    blocks, proposed = all_blocks(pair), honest(pair)
    drawn = np.stack([row[tuple(blocks[:, : j + 1].T)] for j, row in enumerate(pair.q)], axis=1)
    return proposed._replace(lengths=np.cumprod(drawn >= CONFIDENT, axis=1).sum(axis=1))


def _weights(pair: Pair, change: Callable[[Doubles], Doubles]) -> Doubles:
    return joint([change(row) for row in pair.q]).reshape(-1)


def _two_largest(row: Doubles) -> Doubles:
    order = np.argsort(np.argsort(-row, axis=-1, kind="stable"), axis=-1)
    kept = np.where(order < 2, row, 0)  # noqa: PLR2004
    return np.asarray(kept / kept.sum(-1, keepdims=True))
