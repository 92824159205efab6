"""Sampler match: the target draws at every place, and a draft token stands if it is what the target drew.

Lossless for any drafter, filter or penalty: what is emitted is the target's own draw.
"""

from dataclasses import dataclass
from typing import final

from specfw.acceptance._draws import MatchRule
from specfw.registry import register


@final
@register("acceptance")
@dataclass(frozen=True, kw_only=True)
class SamplerMatch(MatchRule):
    """Accept iff the target's own draw equals the draft token."""

    id = "sampler-match"
    label = "sampler match"
    preserves_target = True
