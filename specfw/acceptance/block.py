"""Block verification (Sun et al. 2403.10444): the block is judged as a whole, and longer prefixes may stand.

With r_i = p_i(x_i) / q_i(x_i), P_0 = 1 and P_i = min(P_(i-1) r_i, 1):

    Z_i = sum (P_i p_(i+1) - q_(i+1))+      h_i = Z_i / (Z_i + 1 - P_i)  (0/0 is 1),      h_K = P_K
    n   = the largest i whose own coin falls below h_i; a failed place does not end the search
    recovered token after n < K from (P_n p_(n+1) - q_(n+1))+
"""

from dataclasses import dataclass
from typing import final

from specfw.acceptance.base import AcceptanceRule, Needs, given
from specfw.distribution import Categorical
from specfw.registry import register
from specfw.types import Block

import mlx.core as mx


@final
@register("acceptance")
@dataclass(frozen=True, kw_only=True)
class BlockVerification(AcceptanceRule):
    """S_i = 1 - prod_{j>=i} (1 - h_j); its mean over what follows x_1 .. x_i is P_i."""

    id = "block"
    label = "block verification"
    preserves_target = True
    stops_at_rejection = False
    needs = Needs.PROPOSAL_DISTRIBUTION

    def survival(self, block: Block) -> mx.array:
        chances = stop_chances(block)
        survival = [mx.zeros_like(chances[:, 0])]
        for i in reversed(range(chances.shape[1])):
            survival.append(survival[-1] + chances[:, i] * (1 - survival[-1]))
        return mx.stack(survival[:0:-1], axis=1)

    def residual(self, block: Block, n: mx.array) -> Categorical:
        ahead = mx.pad(prefix_weights(block), [(0, 0), (1, 0)], constant_values=1)
        weight = mx.take_along_axis(ahead, n[:, None], axis=1)[:, 0]
        return block.target.row(n).excess(given(block.draft, self.id).row(n), weight)

    def expected_acceptance(self, p: Categorical, q: Categorical | None) -> mx.array:
        """Sum of min(p, q), at the first place of a block."""
        return p.overlap(given(q, self.id))


def stop_chances(block: Block) -> mx.array:
    """h_i [B, K]: that the search from the end stops at place i; 0 beyond a row's own K."""
    count = block.tokens.shape[1]
    weights, place = prefix_weights(block), mx.arange(1, count + 1)
    chances = weights
    if count > 1:
        inner, q = weights[:, :-1], given(block.draft, BlockVerification.id)
        rest = block.target.head(count).tail(1).excess(q.tail(1), inner).total()
        room = rest + (1 - inner)  # in this order it never rounds below rest
        before = mx.pad(mx.where(room > 0, rest / room, 1), [(0, 0), (0, 1)])
        chances = mx.where(place < block.lengths[:, None], before, weights)
    return mx.where(place <= block.lengths[:, None], chances, 0)


def prefix_weights(block: Block) -> mx.array:
    """P_i [B, K] = min(P_(i-1) r_i, 1), capped step by step: no logarithm, no product that overflows."""
    p = block.target.head(block.tokens.shape[1]).at(block.tokens)
    q = given(block.draft, BlockVerification.id).at(block.tokens)
    weights, weight = [], mx.ones_like(p[:, 0])
    for i in range(block.tokens.shape[1]):
        scaled = weight * p[:, i]
        # a token outside the target's support must not stand, however small the mass that proposed it
        weight = mx.where(scaled > 0, mx.minimum(scaled / q[:, i], 1), 0)
        weights.append(weight)
    return mx.stack(weights, axis=1)
