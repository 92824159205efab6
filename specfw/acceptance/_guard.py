"""The check of a block before it is decided on: one code for every place, from what is read with the round's numbers.

`u < NaN` is False: without it a broken row would pass for a rejection.
"""

from typing import Any, NamedTuple, Self

from specfw.distribution import NORMALISATION_TOLERANCE
from specfw.types import Block, Ints

import mlx.core as mx
import numpy as np
import numpy.typing as npt

ROUNDING = 1e-6
TARGET_ROW, DRAFT_ROW, DRAFT_SUPPORT, SURVIVAL = 1, 2, 4, 8


class Facts(NamedTuple):
    """What the check looks at: arrays of MLX until the round is evaluated, of numpy after `read`.

    Attributes:
        target: [B, K+1] totals of the target's rows, in two levels.
        survival: [B, K].
        draft: [B, K] totals of the draft rows, None where none are reported.
        drafted: [B, K] q at the draft tokens, None likewise.
    """

    target: Any
    survival: Any
    draft: Any = None
    drafted: Any = None

    @classmethod
    def of(cls, block: Block, survival: mx.array) -> Self:
        """What there is to check of a block."""
        if block.draft is None:
            return cls(block.target.total(), survival)
        return cls(block.target.total(), survival, block.draft.total(), block.draft.at(block.tokens))

    def read(self) -> Self:
        """The same as numpy arrays."""
        return type(self)(*(None if one is None else np.array(one) for one in self))

    def faults(self, lengths: Ints) -> Ints:
        """[B, K+1], 0 where all is well, else a sum of the codes above.

        Target and draft rows must be finite and normalised (1e-5), q > 0 at every draft token, and survival in
        [0, 1] and not increasing. Places beyond a row's own length count for the target's row at that length only.

        Args:
            lengths: [B] each row's own number of draft tokens.
        """
        place, own_length = np.arange(self.target.shape[1]), lengths[:, None]
        codes = (_broken(self.target) & (place <= own_length)) * TARGET_ROW
        survival, before = self.survival, np.ones_like(self.survival)
        before[:, 1:] = survival[:, :-1]
        # a product taken by a parallel scan may round an equal value up
        own = np.logical_not((survival >= 0) & (survival <= before * (1 + ROUNDING))) * SURVIVAL
        if self.draft is not None:
            own |= _broken(self.draft) * DRAFT_ROW | np.logical_not(self.drafted > 0) * DRAFT_SUPPORT
        codes[:, :-1] |= (place[:-1] < own_length) * own
        return codes


def _broken(totals: npt.NDArray[Any]) -> npt.NDArray[np.bool_]:
    # a sum is finite and near 1 only if every entry is finite, as none can be negative infinity
    return np.asarray(np.logical_not(np.abs(totals - 1) <= NORMALISATION_TOLERANCE))


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
