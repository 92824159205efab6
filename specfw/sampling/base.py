"""What a step of the sampler chain is: a function of the logits of T positions and of what they may see.

A step never writes into the logits it was given, uses array code only (draft tokens may not be computed yet),
and treats every position on its own: position t sees the history before it and its own coin.
"""

from abc import ABC, abstractmethod
from typing import ClassVar, NamedTuple

import mlx.core as mx

from specfw.types import History


class Logits(NamedTuple):
    """Logits in the chain.

    Attributes:
        values: [B, T, S] float32, -inf for a filtered id.
        ids: [B, T, S] int32 ascending when a truncation left survivors, None while S = V.
        vocab_size: V.
    """

    values: mx.array
    ids: mx.array | None
    vocab_size: int


class Scene(NamedTuple):
    """What a step may look at besides the logits.

    Attributes:
        history: prompt, emitted and draft tokens before each position.
        coin: [B, T] uniform, XTC's coin of each position.
    """

    history: History
    coin: mx.array


class Step(ABC):
    """One member of the chain: a bias, a penalty or a filter, a frozen dataclass of its strengths.

    Every field has a default, and the defaults together are neutral.

    Attributes:
        reorders: whether it may change which id has the largest logit (bias, penalties); such steps act in
            greedy decoding too, the others cannot matter there.
        random: whether it uses the coin.
    """

    reorders: ClassVar[bool] = False
    random: ClassVar[bool] = False

    @property
    @abstractmethod
    def neutral(self) -> bool:
        """Whether it changes nothing at these strengths."""

    @abstractmethod
    def apply(self, logits: Logits, scene: Scene) -> Logits:
        """The logits [B, T, S'] after this step."""
