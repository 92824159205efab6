"""Rows of probabilities: every piece of arithmetic on p (target) and q (drafter), and the one normaliser.

A `Categorical` is `Dense` (a probability for every id) or `Survivors` (ids and probabilities of what a
truncation left, ids ascending). Both carry the same methods; rules never index them. Weights need not be
normalised: what a rule returns is drawn in proportion, and `normalised` divides by the total.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import NamedTuple, Self, TypeAlias

from specfw.summation import block_sum, blocked, first_above, last_at_most

import mlx.core as mx

NORMALISATION_TOLERANCE = 1e-5


class _Weights(ABC):
    """What both forms share; `probs` [..., S] are weights on the ids `support` [..., S]."""

    probs: mx.array

    @property
    @abstractmethod
    def support(self) -> mx.array:
        """[..., S] or [S] int32: the ids that `probs` belong to, ascending."""

    @abstractmethod
    def aligned(self, like: "Categorical") -> mx.array:
        """[..., S'] the probabilities of this row on the support of `like`."""

    def weighed(self, weights: mx.array) -> Self:
        """The same ids with other weights [..., S]."""
        return self._replace(probs=weights)  # type: ignore[attr-defined,no-any-return]

    def total(self) -> mx.array:
        """[...] the sum of the weights, in two levels."""
        return block_sum(self.probs)

    def normalised(self) -> Self:
        """The weights divided by their total."""
        return self.weighed(self.probs / self.total()[..., None])

    def excess(self, other: "Categorical", scale: mx.array | float = 1.0) -> Self:
        """Weights (scale p - q)+, not normalised; the residual of Leviathan et al. 2211.17192, eq. 2.

        Args:
            other: q, rows of the same leading shape.
            scale: 1, or [...] one factor a row (block verification's prefix weight).
        """
        factor = scale[..., None] if isinstance(scale, mx.array) else scale
        return self.weighed(mx.maximum(factor * self.probs - other.aligned(self), 0))  # type: ignore[arg-type]

    def overlap(self, other: "Categorical") -> mx.array:
        """[...] sum of min(p, q) = 1 - TV(p, q)."""
        return block_sum(mx.minimum(self.probs, other.aligned(self)))  # type: ignore[arg-type]

    def product(self, other: "Categorical") -> mx.array:
        """[...] sum of p q: the chance that two independent draws agree."""
        return block_sum(self.probs * other.aligned(self))  # type: ignore[arg-type]

    @abstractmethod
    def where(self, chosen: mx.array, other: "Categorical") -> Self:
        """This row where `chosen` [...] holds, else the row of `other`, which has the same form."""

    def cube_sum(self) -> mx.array:
        """[...] sum of p cubed, the variance term of the mid-distribution transform."""
        return block_sum(self.probs * self.probs * self.probs)

    def transform(self, ids: mx.array, order: mx.array | None = None) -> mx.array:
        """Mid-distribution transform of `ids` under this row: P(before) + p/2, mean 1/2 in law.

        Args:
            ids: [...] int32, the tokens seen.
            order: [..., S] sort key on the support, ties by id; by default the id itself.
        """
        token, support = ids[..., None], self.support
        before = support < token
        if order is not None:
            own = mx.take_along_axis(order, self._index(ids), axis=-1)
            before = (order < own) | ((order == own) & before)
        return block_sum(mx.where(before, self.probs, 0)) + self.at(ids) / 2

    @abstractmethod
    def at(self, ids: mx.array) -> mx.array:
        """[...] the probability of `ids` [...] int32."""

    @abstractmethod
    def _index(self, ids: mx.array) -> mx.array: ...

    def draw(self, uniforms: mx.array) -> mx.array:
        """[...] int32: draw in proportion to the weights by a two-level cumulative sum.

        Args:
            uniforms: [..., 2] in [0, 1): one picks the block, one the id in it, each scaled by the sum it
                divides; the first entry above it wins, so an id of weight 0 is never drawn.
        """
        blocks = blocked(self.probs)
        block = first_above(blocks.sum(axis=-1), uniforms[..., 0])
        inside = mx.take_along_axis(blocks, block[..., None, None], axis=-2)[..., 0, :]
        entry = block * blocks.shape[-1] + first_above(inside, uniforms[..., 1])
        return self._ids(entry)

    def race(self, noise: mx.array) -> mx.array:
        """[...] int32: argmax(p / noise), a draw when `noise` [..., V] > 0 is exponential of rate 1.

        It is the Gumbel trick, argmax(log p + g) with g = -log(noise) (Maddison et al. 2014), without its two
        logarithms. An id with p = 0 gets 0 after the division: whatever the noise holds there, it cannot win.
        """
        if self.probs.shape[-1] == 1:
            return self._ids(mx.zeros(self.probs.shape[:-1], dtype=mx.int32))
        scores = self.probs / Dense(noise).aligned(self)  # type: ignore[arg-type]
        return self._ids(mx.argmax(mx.where(self.probs > 0, scores, 0), axis=-1))

    def argmax(self) -> mx.array:
        """[...] int32: the most probable id, the lowest among equals."""
        return self._ids(mx.argmax(self.probs, axis=-1))

    def peak(self) -> "Survivors":
        """The point mass [..., 1] on the most probable id; NaN where this row is broken, so that it shows."""
        mass = point_mass(self.argmax(), self.probs.dtype)
        return mass._replace(probs=mass.probs + 0 * self.total()[..., None])

    def mode(self) -> Self:
        """The row that puts everything on the most probable id, in this row's own form."""
        return self.weighed((self.support == self.argmax()[..., None]).astype(self.probs.dtype))

    @abstractmethod
    def _ids(self, entry: mx.array) -> mx.array: ...


class _DenseFields(NamedTuple):
    probs: mx.array


class Dense(_DenseFields, _Weights):
    """A weight for every id: `probs` [..., V]."""

    __slots__ = ()

    @property
    def support(self) -> mx.array:
        return mx.arange(self.probs.shape[-1], dtype=mx.int32)

    def aligned(self, like: "Categorical") -> mx.array:
        if isinstance(like, Survivors):
            return mx.take_along_axis(self.probs, like.ids, axis=-1)
        return self.probs

    def at(self, ids: mx.array) -> mx.array:
        return mx.take_along_axis(self.probs, ids[..., None], axis=-1)[..., 0]

    def head(self, count: int) -> "Dense":
        """The first `count` rows of axis 1."""
        return Dense(self.probs[:, :count])

    def tail(self, start: int) -> "Dense":
        """The rows of axis 1 from `start` on."""
        return Dense(self.probs[:, start:])

    def row(self, n: mx.array) -> "Dense":
        """The rows [B, ...] at index `n` [B] of axis 1."""
        return Dense(self.probs[mx.arange(n.shape[0]), n])

    def where(self, chosen: mx.array, other: "Categorical") -> "Dense":
        return Dense(mx.where(chosen[..., None], self.probs, other.probs))

    def _index(self, ids: mx.array) -> mx.array:
        return ids[..., None]

    def _ids(self, entry: mx.array) -> mx.array:
        return entry.astype(mx.int32)


class _SurvivorFields(NamedTuple):
    ids: mx.array
    probs: mx.array


class Survivors(_SurvivorFields, _Weights):
    """Weights `probs` [..., S] on `ids` [..., S] int32, ascending; every other id has weight 0."""

    __slots__ = ()

    @property
    def support(self) -> mx.array:
        return self.ids

    def aligned(self, like: "Categorical") -> mx.array:
        if isinstance(like, Dense):
            zeros = mx.zeros_like(like.probs)
            return mx.put_along_axis(zeros, self.ids, self.probs.astype(zeros.dtype), axis=-1)
        return self._lookup(like.ids)

    def at(self, ids: mx.array) -> mx.array:
        return self._lookup(ids[..., None])[..., 0]

    def head(self, count: int) -> "Survivors":
        """The first `count` rows of axis 1."""
        return Survivors(self.ids[:, :count], self.probs[:, :count])

    def tail(self, start: int) -> "Survivors":
        """The rows of axis 1 from `start` on."""
        return Survivors(self.ids[:, start:], self.probs[:, start:])

    def row(self, n: mx.array) -> "Survivors":
        """The rows [B, ...] at index `n` [B] of axis 1."""
        batch = mx.arange(n.shape[0])
        return Survivors(self.ids[batch, n], self.probs[batch, n])

    def where(self, chosen: mx.array, other: "Categorical") -> "Survivors":
        assert isinstance(other, Survivors)
        return Survivors(*(mx.where(chosen[..., None], *pair) for pair in zip(self, other, strict=True)))

    def _lookup(self, ids: mx.array) -> mx.array:
        place = last_at_most(self.ids, ids)
        found = mx.take_along_axis(self.ids, place, axis=-1) == ids
        return mx.where(found, mx.take_along_axis(self.probs, place, axis=-1), 0)

    def _index(self, ids: mx.array) -> mx.array:
        return last_at_most(self.ids, ids[..., None])

    def _ids(self, entry: mx.array) -> mx.array:
        return mx.take_along_axis(self.ids, entry[..., None], axis=-1)[..., 0]


Categorical: TypeAlias = Dense | Survivors


def point_mass(ids: mx.array, dtype: mx.Dtype = mx.float32) -> Survivors:
    """The rows [...] that put everything on `ids` [...] int32."""
    return Survivors(ids[..., None], mx.ones((*ids.shape, 1), dtype=dtype))


def stacked(rows: Sequence[Categorical]) -> Categorical:
    """Rows [B, K_i, S] of one form behind each other, [B, sum K_i, S]."""
    probs = mx.concatenate([row.probs for row in rows], axis=1)
    ids = [row.ids for row in rows if isinstance(row, Survivors)]
    return Survivors(mx.concatenate(ids, axis=1), probs) if ids else Dense(probs)


def from_logits(logits: mx.array, ids: mx.array | None = None) -> Categorical:
    """Softmax of `logits` [..., S] (float32, -inf for a filtered id) on all ids or on the survivors `ids`.

    A row without a finite entry comes out as NaN; the check before deciding names it.
    """
    weights = mx.exp(logits - mx.max(logits, axis=-1, keepdims=True))
    probs = weights / block_sum(weights)[..., None]
    return Dense(probs) if ids is None else Survivors(ids, probs)
