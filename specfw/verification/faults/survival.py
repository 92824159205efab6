"""Wrong answers to how many draft tokens stand."""

from specfw.acceptance.argmax_against_argmax import ArgmaxAgainstArgmax
from specfw.acceptance.base import AcceptanceRule
from specfw.acceptance.block import stop_chances
from specfw.distribution import stacked
from specfw.types import Block
from specfw.verification.faults.factors import replaced

import mlx.core as mx

ZERO = 2.0**-32
"""The chance that a uniform float32 draw of MLX is exactly 0, so that `u <= 0` holds."""


def ratios(rule: AcceptanceRule, block: Block) -> mx.array:
    """[B, K] S_i / S_(i-1): the chance that place i is accepted once it is tested."""
    survival = rule.survival(block)
    before = mx.concatenate([mx.ones_like(survival[:, :1]), survival[:, :-1]], axis=1)
    return mx.where(before > 0, survival / before, 0)


def scalar_uniform(rule: AcceptanceRule) -> AcceptanceRule:
    """One u is compared with every place's own ratio: S_i becomes min_j<=i instead of the product."""
    return replaced(rule, survival=lambda _, block: mx.cummin(ratios(rule, block), axis=1))


def accept_all(rule: AcceptanceRule) -> AcceptanceRule:
    """The coin is always 0."""
    return replaced(rule, survival=lambda _, block: mx.ones_like(block.target.head(block.tokens.shape[1]).total()))


def same_or_coin(rule: AcceptanceRule) -> AcceptanceRule:
    """Accept if the target's own draw agrees, or else by the coin."""

    def survival(self: AcceptanceRule, block: Block) -> mx.array:
        same = block.target.head(block.tokens.shape[1]).at(block.tokens)
        return mx.cumprod(same + (1 - same) * ratios(rule, block), axis=1)

    return replaced(rule, survival=survival)


def no_support_guard(rule: AcceptanceRule) -> AcceptanceRule:
    """Accept where u <= p / q, which u = 0 satisfies at p = 0."""
    return replaced(rule, survival=lambda _, block: mx.cumprod(mx.maximum(ratios(rule, block), ZERO), axis=1))


def break_at_first_failure(rule: AcceptanceRule) -> AcceptanceRule:
    """Block verification's coins, read from the front: the first failed place ends the search."""
    return replaced(rule, survival=lambda _, block: mx.cumprod(stop_chances(block), axis=1))


def argmax_text(rule: AcceptanceRule) -> AcceptanceRule:
    """A draft token stands if it is the target's argmax, and the argmax is emitted, at any temperature."""
    return replaced(ArgmaxAgainstArgmax(), preserves_target=True)  # type: ignore[arg-type]


def rows_one_late(rule: AcceptanceRule) -> AcceptanceRule:
    """Every place but the first is verified against the row before its own."""

    def late(block: Block) -> Block:
        rows = block.target
        return block._replace(target=stacked([rows.head(1), rows.head(block.tokens.shape[1])]))

    return replaced(
        rule,
        survival=lambda _, block: rule.survival(late(block)),
        residual=lambda _, block, n: rule.residual(late(block), n),
        bonus=lambda _, block, n: rule.bonus(late(block), n),
        decide=lambda _, block, noise: rule.decide(late(block), noise),
    )
