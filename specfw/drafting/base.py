"""What a drafter is: it proposes up to K tokens after the committed ones and says what law they came from.

A token and its row come from one tensor, so what is reported is what was sampled. A drafter says which caches
it holds; between rounds its own holds m <= n - 2 of n committed tokens (n - 2 except after rounds in which it
did not run, and at a one-token prompt), and it is fed tokens m .. n - 1 before it drafts.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from typing import Any, Literal, NamedTuple, TypeAlias

from specfw.models.base import LanguageModel
from specfw.models.vocabulary import fitted
from specfw.randomness import Noise
from specfw.sampling.chain import SamplerChain
from specfw.types import Ints, Proposal

import mlx.core as mx
import numpy as np
import numpy.typing as npt

Judge: TypeAlias = Callable[[mx.array], npt.NDArray[np.bool_]]


class Start(NamedTuple):
    """What a drafter is opened with.

    Attributes:
        model: the drafter model, None for drafters without one.
        chain: the draft chain.
        prompts: [B, L] int64 prompt tokens, all of one length.
        chunk: prefill chunk, tokens.
        shared_noise: draw each draft token by the target's own noise of its position, not by the drafter's.
    """

    model: LanguageModel | None
    chain: SamplerChain
    prompts: Ints
    chunk: int
    shared_noise: bool = False


class DraftSession(ABC):
    """A drafter at work on B sequences."""

    @abstractmethod
    def prefill(self) -> Iterator[int]:
        """Take in the prompt, evaluating once a chunk; yields the tokens taken in so far."""

    @abstractmethod
    def propose(self, committed: tuple[Ints, ...], count: int, noise: Noise, judge: Judge | None = None) -> Proposal:
        """A lazy proposal of `count` >= 1 tokens for every row, or of fewer where `judge` ends it.

        Args:
            committed: B integer arrays, prompt + emitted tokens.
            count: the round's K.
            noise: the round's draws.
            judge: asked after every token but the last, with its probabilities [B]; says which rows go on [B].
        """

    @abstractmethod
    def rewind(self, counts: Ints) -> None:
        """Forget the last `counts` [B] tokens of every cache that ran in this round."""

    @abstractmethod
    def lengths(self) -> Ints | None:
        """[B] tokens held in the drafter's own cache, None when it has none."""

    @abstractmethod
    def arrays(self) -> Any:
        """What to evaluate with a round so that no graph is carried along: a tree of arrays."""


class Drafting(ABC):
    """A component that says how drafts are made.

    Attributes:
        uses_model: whether the configured drafter model is loaded at all.
        proposes: False for plain decoding.
        shares_noise: whether it can draft on the target's noise.
    """

    uses_model: bool = True
    proposes: bool = True
    shares_noise: bool = False

    @property
    @abstractmethod
    def caches(self) -> Literal["none", "own", "target"]:
        """Which cache the drafter holds."""

    @abstractmethod
    def reports_distribution(self) -> bool:
        """Whether proposals carry their rows."""

    @abstractmethod
    def point_mass(self, chain: SamplerChain) -> bool:
        """Whether every row is a point mass, so that drafting is deterministic."""

    def fit(self, drafter: LanguageModel, target: LanguageModel) -> LanguageModel:
        """The drafter model as one of the target's ids.

        Raises:
            ValueError: its tokens are foreign to the target.
        """
        return fitted(drafter, target)

    @abstractmethod
    def open(self, start: Start) -> DraftSession:
        """A session on the given prompts."""


def tail(committed: tuple[Ints, ...], held: Ints) -> tuple[Ints, Ints]:
    """The committed tokens that a cache does not hold yet.

    Rows of a batch owe the same number, but for finished ones after rounds in which only the others went on:
    those are filled up with their last token, which is to be forgotten with the round.

    Args:
        committed: B integer arrays of n tokens.
        held: [B] m.

    Returns:
        [B, W] tokens, and [B] how many at the end of each row are filling.
    """
    owed = [tokens[int(m) :] for tokens, m in zip(committed, held, strict=True)]
    width = max(len(row) for row in owed)
    filling = np.array([width - len(row) for row in owed])
    filled = owed if not filling.any() else [np.concatenate([row, row[-1:].repeat(width - len(row))]) for row in owed]
    return np.stack(filled), filling
