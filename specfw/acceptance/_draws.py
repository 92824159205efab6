"""Rules that emit the target's own draw: a draft token stands if it equals what the target drew at its place.

The deciding step makes those draws for real, so the text is that of plain decoding at the same seed. That the
decisions follow the law is tested apart.
"""

from specfw.acceptance.base import AcceptanceRule
from specfw.distribution import Categorical, point_mass
from specfw.randomness import Noise
from specfw.types import Block, Verdict

import mlx.core as mx


class TargetDrawRule(AcceptanceRule):
    """Accept while the draft tokens agree with the target's draws; emit the target's draw in any case."""

    def target_draws(self, block: Block, noise: Noise) -> mx.array:
        """[B, K+1] int32: the target's draw at every place, on its position-keyed noise."""
        return block.target.race(noise.target(range(block.tokens.shape[1] + 1)))

    def decide(self, block: Block, noise: Noise) -> Verdict:
        """Decide by agreement, so that no draw of the rule's own is made."""
        drawn = self.target_draws(block, noise)
        nothing = mx.zeros(block.lengths.shape, dtype=mx.int32)
        never = nothing.astype(mx.bool_)
        if not block.tokens.shape[1]:
            return Verdict(nothing, drawn[:, 0], self.law(block), never)
        within = mx.arange(block.tokens.shape[1]) < block.lengths[:, None]
        agree = (drawn[:, :-1] == block.tokens) & within
        accepted = mx.cumprod(agree.astype(mx.int32), axis=1).sum(axis=1).astype(mx.int32)
        token = mx.take_along_axis(drawn, accepted[:, None], axis=1)[:, 0]
        return Verdict(accepted, token, self.law(block), never)


class MatchRule(TargetDrawRule):
    """The target samples: S_i = prod_{j<=i} p_j(x_j); a recovered token follows p without the rejected one."""

    def survival(self, block: Block) -> mx.array:
        return mx.cumprod(block.target.head(block.tokens.shape[1]).at(block.tokens), axis=1)

    def residual(self, block: Block, n: mx.array) -> Categorical:
        rejected = mx.take_along_axis(block.tokens, n[:, None], axis=1)[:, 0]
        return block.target.row(n).excess(point_mass(rejected, block.target.probs.dtype))

    def expected_acceptance(self, p: Categorical, q: Categorical | None) -> mx.array:
        """Sum of p q, which is p(x) for a point mass at x."""
        return mx.full(p.probs.shape[:-1], mx.nan) if q is None else p.product(q)


class ArgmaxRule(TargetDrawRule):
    """The target takes its argmax: S_i = prod_{j<=i} 1[x_j = argmax p_j], and so is every other token."""

    deterministic = True

    def target_draws(self, block: Block, noise: Noise) -> mx.array:
        return block.target.argmax()

    def survival(self, block: Block) -> mx.array:
        agree = block.target.head(block.tokens.shape[1]).argmax() == block.tokens
        return mx.cumprod(agree.astype(block.target.probs.dtype), axis=1)

    def residual(self, block: Block, n: mx.array) -> Categorical:
        return block.target.row(n).mode()

    def bonus(self, block: Block, n: mx.array) -> Categorical:
        return block.target.row(n).mode()

    def expected_acceptance(self, p: Categorical, q: Categorical | None) -> mx.array:
        """The proposal's mass at the target's argmax."""
        return mx.full(p.probs.shape[:-1], mx.nan) if q is None else q.at(p.argmax())
