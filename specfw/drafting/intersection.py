"""A language model with another tokenizer drafts the tokens that both vocabularies have."""

from dataclasses import dataclass
from typing import final

from specfw.drafting.model import Autoregressive
from specfw.models.base import LanguageModel
from specfw.models.intersection import intersected
from specfw.registry import register


@final
@register("drafting")
@dataclass(frozen=True, kw_only=True)
class IntersectionDrafting(Autoregressive):
    """Token-level intersection (TLI, Timor et al. 2502.05202, algorithm 4).

    Drafts are drawn from q', the drafter's row on the shared tokens, renormalised; a ratio rule that is given q'
    accepts the first draft token with probability sum min(p, q'). It decodes one sequence at a time.
    """

    def fit(self, drafter: LanguageModel, target: LanguageModel) -> LanguageModel:
        return intersected(drafter, target)
