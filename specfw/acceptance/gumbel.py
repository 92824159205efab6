"""Shared noise (Daliri, Musco, Suresh 2408.07978): drafter and target race on the same Gumbel noise of a position.

    x = argmax(log q + g),   y = argmax(log p + g),   accept while x = y, emit y in any case

The text is the target's own draw on its position-keyed noise: plain decoding at the same seed, whatever the
drafter, K or controller. The law needs one integral over the ratio q / p, written here in b = q / (p + q), which is
bounded where the ratio is not:

    E(b)  = sum_i max(q_i (1 - b), p_i b),      F(b) = integral_0^b dv / E(v)^2
    P(y = d | x = d) = (1 - b_d) / E(b_d),      P(y = k, x = d) = p_k q_d (F(b_d) - F(b_k))+  for k != d

Between neighbouring values of b, E is linear, so F grows by (b' - b) / (E(b) E(b')): one sort gives it at every id.
"""

from dataclasses import dataclass
from typing import final

from specfw.acceptance._draws import TargetDrawRule
from specfw.acceptance.base import Needs, given
from specfw.distribution import Categorical
from specfw.registry import register
from specfw.summation import block_sum, running_sum
from specfw.types import Block

import mlx.core as mx


@final
@register("acceptance")
@dataclass(frozen=True, kw_only=True)
class Gumbel(TargetDrawRule):
    """S_i = prod_{j<=i} P(y_j = x_j | x_j); under a point-mass drafter this is sampler match's law."""

    id = "gumbel"
    label = "gumbel (shared noise)"
    preserves_target = True
    needs = Needs.SHARED_NOISE
    closed_form_sorts = True

    def survival(self, block: Block) -> mx.array:
        p, q = block.target.head(block.tokens.shape[1]), given(block.draft, self.id)
        b = _share(p.at(block.tokens), q.at(block.tokens))
        level = block_sum(mx.maximum(q.aligned(p) * (1 - b)[..., None], p.probs * b[..., None]))
        level = level + _outside(p, q) * (1 - b)
        return mx.cumprod(mx.minimum((1 - b) / level, 1), axis=1)

    def residual(self, block: Block, n: mx.array) -> Categorical:
        rejected = mx.take_along_axis(block.tokens, n[:, None], axis=1)[:, 0]
        return given_other(block.target.row(n), given(block.draft, self.id).row(n), rejected)

    def expected_acceptance(self, p: Categorical, q: Categorical | None) -> mx.array:
        """Sum over j of 1 / sum_i max(p_i / p_j, q_i / q_j) (equation 2 there, by one sort a row)."""
        q = given(q, self.id)
        level, _, _ = _levels(p, q)
        drafted = q.aligned(p)
        return block_sum(mx.where(p.probs > 0, drafted * (1 - _share(p.probs, drafted)) / level, 0))


def given_other(p: Categorical, q: Categorical, drafted: mx.array) -> Categorical:
    """Weights [B, V] of argmax(log p + g), given that argmax(log q + g) is `drafted` [B] and that they differ."""
    _, integral, whole = _levels(p, q)
    own = mx.where(p.at(drafted) > 0, p.weighed(integral).at(drafted), whole)
    return p.weighed(p.probs * mx.maximum(own[..., None] - integral, 0))


def _share(p: mx.array, q: mx.array) -> mx.array:
    """The drafter's share b = q / (p + q), 0 where both are 0."""
    return mx.where(p + q > 0, q / (p + q), 0)


def _outside(p: Categorical, q: Categorical) -> mx.array:
    """[...] mass of q on ids that a truncated p does not list."""
    return mx.maximum(q.total() - block_sum(q.aligned(p)), 0)


def _levels(p: Categorical, q: Categorical) -> tuple[mx.array, mx.array, mx.array]:
    """E(b) and F(b) at every id of p's support [..., S], and F(1) [...]."""
    drafted = q.aligned(p)
    order = mx.argsort(_share(p.probs, drafted), axis=-1)
    p_sorted, q_sorted = (mx.take_along_axis(row, order, axis=-1) for row in (p.probs, drafted))
    b = _share(p_sorted, q_sorted)
    # at b, an id further up still counts with q (1 - b), one below it with p b
    level = (1 - b) * (q.total()[..., None] - running_sum(q_sorted)) + b * running_sum(p_sorted)
    edges = mx.concatenate([mx.zeros_like(b[..., :1]), b, mx.ones_like(b[..., :1])], axis=-1)
    levels = mx.concatenate([q.total()[..., None], level, p.total()[..., None]], axis=-1)
    integral = running_sum((edges[..., 1:] - edges[..., :-1]) / (levels[..., 1:] * levels[..., :-1]))
    back = mx.argsort(order, axis=-1)
    level, inner = (mx.take_along_axis(values, back, axis=-1) for values in (level, integral[..., :-1]))
    return level, inner, integral[..., -1]
