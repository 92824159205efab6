"""The parts of a run, put together: what the loop is given."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import final

from specfw.acceptance.base import AcceptanceRule
from specfw.diagnostics.base import Observer
from specfw.drafting.base import Drafting
from specfw.drafting.controllers.base import Controller
from specfw.models.base import LanguageModel
from specfw.sampling.chain import SamplerChain


@final
@dataclass(frozen=True, kw_only=True)
class Decoder:
    """The parts of a run, put together.

    Attributes:
        target: the model that decides.
        drafter: the model that drafts, if one does.
        chain: the target's sampler chain.
        draft_chain: the drafter's.
        drafting: how drafts are made.
        rule: the active acceptance rule.
        controller: of the draft length.
        seed: of the run.
        max_tokens: emitted tokens a sequence at most.
        eos_ids: ids that end a sequence; empty to ignore them.
        prefill_chunk: tokens of a prompt evaluated at once.
        observers: the enabled diagnostics.
        split: time draft, verify and decide apart, at two more evaluations a round.
    """

    target: LanguageModel
    drafter: LanguageModel | None
    chain: SamplerChain
    draft_chain: SamplerChain
    drafting: Drafting
    rule: AcceptanceRule
    controller: Controller
    seed: int
    max_tokens: int
    eos_ids: frozenset[int]
    prefill_chunk: int = 512
    observers: Sequence[Observer] = ()
    split: bool = False
