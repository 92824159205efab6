"""Wrong draws of the token after the accepted ones."""

from specfw.acceptance.base import AcceptanceRule, given
from specfw.acceptance.gumbel import given_other
from specfw.acceptance.stochastic import Stochastic
from specfw.distribution import Categorical
from specfw.randomness import Noise, Stream, exponentials, keys
from specfw.summation import block_sum, running_sum
from specfw.types import Block, Verdict
from specfw.verification.faults.factors import replaced

import mlx.core as mx


def resample_from_target(rule: AcceptanceRule) -> AcceptanceRule:
    """The recovered token is drawn from p, not from the residual; acceptance stays perfect."""
    return replaced(rule, residual=lambda _, block, n: block.target.row(n))


def softmax_residual(rule: AcceptanceRule) -> AcceptanceRule:
    """softmax((p - q)+) in place of (p - q)+ over its sum."""

    def residual(self: AcceptanceRule, block: Block, n: mx.array) -> Categorical:
        row = rule.residual(block, n)
        return row.weighed(mx.expm1(row.probs) + 1)

    return replaced(rule, residual=residual)


def token_residual(rule: AcceptanceRule) -> AcceptanceRule:
    """Block verification that redraws from (p - q)+, without the prefix's weight."""
    return replaced(rule, residual=Stochastic.residual)


def shared_uniform(rule: AcceptanceRule) -> AcceptanceRule:
    """The u that rejected a draft token also picks the recovered one from the residual's cumulative sum.

    Given n accepted, u lies in [S_(n+1), S_n): only that stretch of the cumulative sum can be hit.
    """

    def residual(self: AcceptanceRule, block: Block, n: mx.array) -> Categorical:
        row = _residual(rule, block, n)
        survival = mx.pad(rule.law(block), [(0, 0), (1, 0)], constant_values=1)
        high = mx.take_along_axis(survival, n[:, None], axis=1)
        low = mx.take_along_axis(survival, n[:, None] + 1, axis=1)
        upper = running_sum(row.probs)
        stretch = mx.minimum(upper, high) - mx.maximum(upper - row.probs, low)
        return row.weighed(mx.maximum(stretch, 0))

    def decide(self: AcceptanceRule, block: Block, noise: Noise) -> Verdict:
        made = rule.decide(block, noise)
        row, _ = rule.next_token(block, made.accepted)
        uniform = noise.accept()[:, None]
        repeated = row.draw(mx.concatenate([uniform, uniform], axis=1))
        return made._replace(token=mx.where(made.accepted < block.lengths, repeated, made.token))

    return replaced(rule, residual=residual, decide=decide)


def shared_noise(rule: AcceptanceRule) -> AcceptanceRule:
    """The recovered token races on the noise that proposed the rejected one."""

    def residual(self: AcceptanceRule, block: Block, n: mx.array) -> Categorical:
        rejected = mx.take_along_axis(block.tokens, n[:, None], axis=1)[:, 0]
        return given_other(_residual(rule, block, n), given(block.draft, rule.id).row(n), rejected)

    def decide(self: AcceptanceRule, block: Block, noise: Noise) -> Verdict:
        made = rule.decide(block, noise)
        if not block.tokens.shape[1]:
            return made
        row, _ = rule.next_token(block, made.accepted)
        rejected = made.accepted < block.lengths
        proposed = mx.stack([proposing(noise, offset) for offset in range(block.tokens.shape[1])], axis=1)
        place = mx.where(rejected, made.accepted, 0)[:, None, None]
        reused = mx.take_along_axis(proposed, place, axis=1)[:, 0]
        return made._replace(token=mx.where(rejected, row.race(reused), made.token))

    return replaced(rule, residual=residual, decide=decide)


def proposing(noise: Noise, offset: int) -> mx.array:
    """[B, V] the noise on which a draft token of this fault races, fresh in every round."""
    key = keys(noise.seed, Stream.DRAFT, noise.prompt, noise.sample, noise.position + offset, noise.round)
    return exponentials(key, noise.vocab_size)


def _residual(rule: AcceptanceRule, block: Block, n: mx.array) -> Categorical:
    """The right residual, normalised; the target's row where it has no mass."""
    row = rule.residual(block, n)
    return row.where(block_sum(row.probs) > 0, block.target.row(n)).normalised()
