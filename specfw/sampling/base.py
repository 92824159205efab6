"""What a step of the sampler chain is: a function of the logits of T positions and of what they may see.

A step never writes into the logits it was given, uses array code only (draft tokens may not be computed yet),
and treats every position on its own: position t sees the history before it and its own coin.

Filters keep ids and never add any. Among equal values the lowest ids come first: whenever a filter has to
choose between ties, it keeps the lowest.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import ClassVar, NamedTuple

from specfw.registry import require
from specfw.types import History

import mlx.core as mx

LIMIT = 1e30
"""Bound of additive strengths and, with its inverse, of factors: products with logits stay inside float32."""


class Logits(NamedTuple):
    """Logits in the chain.

    Attributes:
        values: [B, T, S] float32 (float64 in the exact bench), -inf for a filtered id.
        ids: [B, T, S] int32 ascending when a truncation left survivors, None while S = V.
        vocab_size: V.
    """

    values: mx.array
    ids: mx.array | None
    vocab_size: int

    def gather(self, table: mx.array) -> mx.array:
        """[B, T, S] the entries of `table` [V] or [B, T, V] that belong to these logits."""
        dense = mx.broadcast_to(table, (*self.values.shape[:-1], self.vocab_size))
        return dense if self.ids is None else mx.take_along_axis(dense, self.ids, axis=-1)

    def keep(self, kept: mx.array) -> "Logits":
        """The same ids, -inf where `kept` [B, T, S] is false."""
        return self._replace(values=mx.where(kept, self.values, -math.inf))

    def select(self, places: mx.array) -> "Logits":
        """The survivors at `places` [B, T, S'] int32, ascending, of the last axis."""
        ids = places if self.ids is None else mx.take_along_axis(self.ids, places, axis=-1)
        return self._replace(values=mx.take_along_axis(self.values, places, axis=-1), ids=ids)


class Scene(NamedTuple):
    """What a step may look at besides the logits; a chain that needs neither is given neither.

    Attributes:
        history: prompt, emitted and draft tokens before each position.
        coin: [B, T] uniform, XTC's coin of each position.
    """

    history: History | None
    coin: mx.array | None


class Step(ABC):
    """One member of the chain: a bias, a penalty or a filter, a frozen dataclass of its strengths.

    Every field has a default, and the defaults together are neutral.

    Attributes:
        strength: the field that makes the step act; the other fields are conventions.
        reorders: whether it may change which id has the largest logit (bias, penalties). In greedy decoding
            nothing after the last such step can matter.
        remembers: whether it looks at the history.
        random: whether it uses the coin.
        removes: whether it may take an id away.
    """

    strength: ClassVar[str]
    reorders: ClassVar[bool] = False
    remembers: ClassVar[bool] = False
    random: ClassVar[bool] = False
    removes: ClassVar[bool] = True

    @property
    @abstractmethod
    def neutral(self) -> bool:
        """Whether it changes nothing at these strengths."""

    @abstractmethod
    def apply(self, logits: Logits, scene: Scene) -> Logits:
        """The logits [B, T, S'] after this step."""

    def greedy(self, after_random: bool) -> bool:
        """Whether it makes the whole chain greedy.

        Args:
            after_random: a step that uses the coin stands before it.
        """
        return False

    def named_ids(self) -> Mapping[str, tuple[int, ...]]:
        """The token ids its fields name, by field, so that a chain can be held against a vocabulary."""
        return {}


def require_ids(field: str, ids: tuple[int, ...]) -> None:
    """Raise unless `ids` are token ids.

    Raises:
        ValueError: names the field and the first id that is none.
    """
    for token in ids:
        holds = isinstance(token, int) and not isinstance(token, bool) and 0 <= token < 2**31
        require(field, holds, "made of token ids in [0, 2^31)", token)


def table(entries: Mapping[int, float], vocab_size: int, dtype: mx.Dtype = mx.float32) -> mx.array:
    """[V] the entries by id, 0 elsewhere; ids beyond this vocabulary cannot be drawn from it and are left out."""
    ids = [token for token in entries if token < vocab_size]
    zeros = mx.zeros((vocab_size,), dtype=dtype)
    values = mx.array([entries[token] for token in ids], dtype=dtype)
    return zeros.at[mx.array(ids, dtype=mx.int32)].add(values)


def marks(ids: tuple[int, ...], vocab_size: int) -> mx.array:
    """[V] bool, true at `ids`."""
    return table(dict.fromkeys(ids, 1.0), vocab_size) > 0
