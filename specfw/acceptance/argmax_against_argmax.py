"""The biased control: argmax verification of a sampled request, as multi-token-prediction paths shipped it.

At temperature > 0 it emits the target's argmax whatever p says; at a one-hot p it is greedy argmax. It follows
exactly the surrogate that puts everything on argmax p.
"""

from dataclasses import dataclass
from typing import final

from specfw.acceptance._draws import ArgmaxRule
from specfw.distribution import Categorical
from specfw.registry import register


@final
@register("acceptance")
@dataclass(frozen=True, kw_only=True)
class ArgmaxAgainstArgmax(ArgmaxRule):
    """Accept iff the draft token is the target's argmax, at any temperature. Changes the distribution."""

    id = "argmax-against-argmax"
    label = "argmax against argmax, changes the distribution"
    preserves_target = False

    def surrogate(self, p: Categorical, q: Categorical | None) -> Categorical:
        """One-hot at argmax p."""
        return p.mode()
