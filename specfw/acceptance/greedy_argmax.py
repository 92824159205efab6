"""Greedy: the target takes its argmax, and a draft token stands if it is that argmax. No draw is made.

Lossless for a greedy target only, whose rows are point masses.
"""

from dataclasses import dataclass
from typing import final

from specfw.acceptance._draws import ArgmaxRule
from specfw.registry import register


@final
@register("acceptance")
@dataclass(frozen=True, kw_only=True)
class GreedyArgmax(ArgmaxRule):
    """Accept iff the draft token is the argmax of a greedy target."""

    id = "greedy-argmax"
    label = "greedy argmax"
    preserves_target = True
    domain = "greedy_target"
