"""The check of a block before it is decided on: one code for every place, read with the round's numbers.

`u < NaN` is False: without it a broken row would pass for a rejection.
"""

from specfw.distribution import NORMALISATION_TOLERANCE, Categorical
from specfw.types import Block

import mlx.core as mx

ROUNDING = 1e-6
TARGET_ROW, DRAFT_ROW, DRAFT_SUPPORT, SURVIVAL = 1, 2, 4, 8


def faults(block: Block, survival: mx.array) -> mx.array:
    """[B, K+1] int32, 0 where all is well, else a sum of the codes above.

    Checks that target and draft rows are finite and normalised (two-level sum, 1e-5), that q > 0 at every
    draft token, and that survival lies in [0, 1] and does not increase. Places beyond a row's own length count
    for the target's row at that length only.
    """
    count = block.tokens.shape[1]
    place, lengths = mx.arange(count + 1), block.lengths[:, None]
    codes = mx.where((place <= lengths) & _broken(block.target), TARGET_ROW, 0)
    if not count:
        return codes
    before = mx.concatenate([mx.ones_like(survival[:, :1]), survival[:, :-1]], axis=1)
    # a product taken by a parallel scan may round an equal value up
    bounded = (survival >= 0) & (survival <= before * (1 + ROUNDING))
    own = mx.where(bounded, 0, SURVIVAL)
    if block.draft is not None:
        own = own + mx.where(_broken(block.draft), DRAFT_ROW, 0)
        own = own + mx.where(block.draft.at(block.tokens) > 0, 0, DRAFT_SUPPORT)
    own = mx.where(place[:count] < lengths, own, 0)
    return codes + mx.pad(own, [(0, 0), (0, 1)])


def _broken(rows: Categorical) -> mx.array:
    # a sum is finite and near 1 only if every entry is finite, as none can be negative infinity
    return mx.logical_not(mx.abs(rows.total() - 1) <= NORMALISATION_TOLERANCE)


def describe(code: int) -> str:
    """Words for the most basic fault in `code`."""
    if code & TARGET_ROW:
        return "the target's row is not a distribution"
    if code & DRAFT_ROW:
        return "the drafter's row is not a distribution"
    if code & DRAFT_SUPPORT:
        return "the drafter reports q = 0 at the token it proposed"
    return "the rule's survival leaves [0, 1] or increases"


def explain(block: Block, logits: mx.array, code: int, row: int, place: int) -> str:
    """What is wrong at one place, in words; called after a fault was read, so it may compute.

    Args:
        block: the block that failed.
        logits: [B, K+1, V] of the target, before the chain.
        code: its code there.
        row: batch row.
        place: index of the row in the block.
    """
    words = describe(code)
    if code & TARGET_ROW and mx.any(mx.isnan(logits[row, place])).item():
        return f"{words}: the model's logits contain NaN"
    broken = block.target if code & TARGET_ROW else block.draft if code & DRAFT_ROW else None
    if broken is None:
        return words
    total = broken.total()[row, place].item()
    if total != total:  # noqa: PLR0124 - NaN is the only value unequal to itself
        return f"{words}: no token is left after the sampler chain, or a logit is NaN"
    return f"{words}: it sums to {total:.8g}"
