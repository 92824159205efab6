"""Modified rejection sampling: Leviathan, Kalman, Matias 2211.17192; Chen et al. 2302.01318 (letters swapped).

Accept x_i with probability min(1, p_i(x_i) / q_i(x_i)); after the first rejection draw from (p - q)+.
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
class Stochastic(AcceptanceRule):
    """S_i = prod_{j<=i} min(1, p_j(x_j) / q_j(x_j)), residual (p - q)+; optimal for one token.

    Attributes:
        strict: refuse a drafter that reports no proposal distribution, instead of running sampler match.
    """

    strict: bool = False

    id = "stochastic"
    label = "stochastic (modified rejection sampling)"
    preserves_target = True
    needs = Needs.PROPOSAL_DISTRIBUTION

    def survival(self, block: Block) -> mx.array:
        q = given(block.draft, self.id)
        p_drafted = block.target.head(block.tokens.shape[1]).at(block.tokens)
        q_drafted = q.at(block.tokens)
        # a token outside the target's support must not stand, however small the mass that proposed it
        ratio = mx.where(p_drafted > 0, mx.minimum(p_drafted / q_drafted, 1), 0)
        return mx.cumprod(ratio, axis=1)

    def residual(self, block: Block, n: mx.array) -> Categorical:
        return block.target.row(n).excess(given(block.draft, self.id).row(n))

    def expected_acceptance(self, p: Categorical, q: Categorical | None) -> mx.array:
        """Sum of min(p, q)."""
        return p.overlap(given(q, self.id))
