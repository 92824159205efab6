"""What `stochastic` becomes when the drafter reports no proposal distribution, under the origin's id.

The law is sampler match's; the id says that another rule was asked for and could not run.
"""

from dataclasses import dataclass
from typing import final

from specfw.acceptance._draws import MatchRule
from specfw.registry import register


@final
@register("acceptance")
@dataclass(frozen=True, kw_only=True)
class SamplerMatchNoProposalDistribution(MatchRule):
    """Sampler match, in place of a rule that needs q."""

    id = "sampler-match-no-proposal-distribution"
    label = "sampler match, the drafter reports no proposal distribution"
    preserves_target = True
