"""Wrong rules as equipment: each fault replaces one factor of what makes a round, and must be seen.

They are what other decoders shipped or were asked to ship. None can be reached from `task=generate`.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import final

from specfw.acceptance.base import AcceptanceRule, Needs
from specfw.decoder import Decoder
from specfw.drafting.base import Drafting
from specfw.drafting.model import Autoregressive
from specfw.registry import require
from specfw.sampling.chain import SamplerChain
from specfw.verification.exact import Enumerated, Pair, Proposed, enumerate_rule, honest
from specfw.verification.faults import next_token, proposals, survival
from specfw.verification.faults.factors import unnoticed


def _unchanged(rule: AcceptanceRule) -> AcceptanceRule:
    return rule


@final
@dataclass(frozen=True, kw_only=True)
class Fault:
    """One replaced factor.

    Attributes:
        name: how `task.fault` calls it.
        what: what is wrong, in words.
        rule: the rule with the factor replaced.
        proposed: the proposal law of a pair under it, for the exact bench.
        opened: opens the drafter wrongly, for a live run; None leaves it right.
        reported: the chain whose rows the drafter hands over in place of those it drew from.
        only: the one rule that has this factor, by id; None for every rule that needs a proposal distribution.
        anywhere: whether rules that draw from the target can have it as well.
        plain: whether plain decoding can have it.
        overlapping: the decoder is right, and its pairs are counted as if neighbours were independent.
    """

    name: str
    what: str
    rule: Callable[[AcceptanceRule], AcceptanceRule] = _unchanged
    proposed: Callable[[Pair], Proposed] = honest
    opened: proposals.Open | None = None
    reported: Callable[[SamplerChain], SamplerChain] | None = None
    only: str | None = None
    anywhere: bool = False
    plain: bool = False
    overlapping: bool = False

    def fits(self, rule: AcceptanceRule) -> bool:
        """Whether `rule` has the factor at all."""
        ratio = rule.needs is Needs.PROPOSAL_DISTRIBUTION
        return rule.id == self.only if self.only else rule.preserves_target and (ratio or self.anywhere)

    def fits_drafting(self, drafting: Drafting) -> bool:
        """Whether `drafting` can have it: wrong drafts are made by a model, wrong decisions are about drafts."""
        if not drafting.proposes:
            return self.plain
        return isinstance(drafting, Autoregressive) or (self.opened is None and self.reported is None)

    def fits_chain(self, chain: SamplerChain) -> bool:
        """Whether the draft chain has anything that what is wrongly reported leaves out."""
        return self.reported is None or self.reported(chain) != chain

    def enumerate(self, rule: AcceptanceRule, pair: Pair, proposed: Proposed | None = None) -> Enumerated:
        """The exact law of the faulty decoder; `proposed` where the pair's own chains say what is reported."""
        return enumerate_rule(self.rule(rule), pair, proposed=proposed or self.proposed(pair))

    def inject(self, decoder: Decoder) -> Decoder:
        """The decoder with the fault, which goes on reporting the right rule's law."""
        wrong = self.rule(decoder.rule)
        rule = decoder.rule if wrong is decoder.rule else unnoticed(decoder.rule, wrong)
        return replace(decoder, rule=rule, drafting=self._drafting(decoder.drafting))

    def _drafting(self, drafting: Drafting) -> Drafting:
        opened = proposals.scored_by(self.reported) if self.reported else self.opened
        if opened is None:
            return drafting
        assert isinstance(drafting, Autoregressive)
        return proposals.Misdrafting(inner=drafting, opened=opened)


FAULTS = {
    fault.name: fault
    for fault in (
        Fault(
            name="resample_from_target",
            what="the recovered token is drawn from the target, not from the residual",
            rule=next_token.resample_from_target,
        ),
        Fault(
            name="softmax_residual",
            what="softmax of the residual in place of its normalisation",
            rule=next_token.softmax_residual,
        ),
        Fault(
            name="scalar_uniform",
            what="one uniform a block is compared with every place's own ratio",
            rule=survival.scalar_uniform,
            only="stochastic",
        ),
        Fault(
            name="shared_uniform",
            what="the uniform that rejects also picks the recovered token",
            rule=next_token.shared_uniform,
            only="stochastic",
        ),
        Fault(
            name="shared_noise",
            what="the recovered token races on the noise that proposed the rejected one",
            rule=next_token.shared_noise,
            opened=proposals.racing_drafts,
        ),
        Fault(name="accept_all", what="the coin is always 0", rule=survival.accept_all),
        Fault(
            name="same_or_coin",
            what="accept if the target's own draw agrees, or else by the coin",
            rule=survival.same_or_coin,
            only="stochastic",
        ),
        Fault(
            name="no_support_guard",
            what="u <= p / q accepts a token of probability 0 when u is exactly 0",
            rule=survival.no_support_guard,
            only="stochastic",
        ),
        Fault(
            name="block_break_at_first_failure",
            what="the first failed place ends the search",
            rule=survival.break_at_first_failure,
            only="block",
        ),
        Fault(
            name="block_token_residual",
            what="the recovered token comes from (p - q)+ without the prefix's weight",
            rule=next_token.token_residual,
            only="block",
        ),
        Fault(
            name="argmax_text",
            what="drafts stand if they are the argmax, and the argmax is emitted, at any temperature",
            rule=survival.argmax_text,
            anywhere=True,
            plain=True,
        ),
        Fault(
            name="rows_one_late",
            what="every place but the first is verified against the row before its own",
            rule=survival.rows_one_late,
            anywhere=True,
        ),
        Fault(
            name="raw_q",
            what="drafts are drawn after the chain and scored by the model's own softmax",
            proposed=proposals.filtered_draws,
            reported=proposals.raw,
        ),
        Fault(
            name="q_before_filters",
            what="drafts are drawn after the truncations and scored before them",
            proposed=proposals.filtered_draws,
            reported=proposals.unfiltered,
        ),
        Fault(
            name="greedy_draft_soft_q",
            what="drafts are the drafter's argmax, scored by its soft row",
            proposed=proposals.argmax_draws,
            opened=proposals.argmax_drafts,
        ),
        Fault(
            name="discard_low_confidence",
            what="a draft token is thrown away after it was drawn, because it is improbable",
            proposed=proposals.discarded_draws,
            opened=proposals.without_the_unsure,
        ),
        Fault(
            name="overlapping_pairs",
            what="every two neighbours are counted as a pair: in the statistics, the decoder is right",
            anywhere=True,
            plain=True,
            overlapping=True,
        ),
    )
}


def named(name: str) -> Fault:
    """The fault of that name.

    Raises:
        ValueError: there is none.
    """
    require("task.fault", name in FAULTS, f"one of: {', '.join(FAULTS)}", name)
    return FAULTS[name]
