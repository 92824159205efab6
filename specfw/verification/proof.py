"""One configuration put to the proof: enumerated, sampled, tried token by token, and tried with every fault."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple, final

from specfw.decoder import Decoder
from specfw.diagnostics.base import Floats
from specfw.models.cycle import Cycle
from specfw.models.iid import Iid
from specfw.models.markov import Markov
from specfw.parts import Models, Plan
from specfw.sampling.chain import SamplerChain
from specfw.verification.asking import contexts, draft_tokens, pair_of, rows_after
from specfw.verification.exact import Enumerated, Pair, declared, enumerate_rule, honest, joint, total_variation
from specfw.verification.faults import FAULTS, Fault
from specfw.verification.fits import Tested, degrees, examined, rows_by_last_token
from specfw.verification.power import Count, FirstSeen, Seen, exact_effects, rejecting, would_need
from specfw.verification.promises import Promise, promises
from specfw.verification.sample import Sample, draw

import numpy as np

EXACT = 1e-9
RUN_TOKENS, RUN_SEQUENCES = 4096, 8
"""Of the small run in which it is seen how soon a run's own verdict notices a fault."""


class Exact(NamedTuple):
    """The exact bench on this pair.

    Attributes:
        draft_tokens: K that was enumerated.
        total_variation: of K + 1 emitted tokens from the law they must follow, the largest over the contexts.
        impossible: largest probability of a text that the target cannot write.
        expected_accepted: mean accepted draft tokens of a round after the prompt.
    """

    draft_tokens: int
    total_variation: float
    impossible: float
    expected_accepted: float

    @property
    def held(self) -> bool:
        """Whether the law is the target's, to rounding."""
        return self.total_variation < EXACT and self.impossible == 0


class Proof(NamedTuple):
    """Everything that was tried.

    Attributes:
        rule: id of the rule that ran.
        fault: name of the injected fault, None in a right run.
        alpha: of all statistical checks together.
        exact: the exact bench, None where it cannot enumerate.
        tests: the statistical checks.
        promises: what is equal or not.
        run: tokens after which each part of a run's own verdict passed 10^6, for those that did.
        power: the faults that were tried.
        tokens: of the sample.
        mean_accepted_len: over the sample.
    """

    rule: str
    fault: str | None
    alpha: float
    exact: Exact | None
    tests: tuple[Tested, ...]
    promises: tuple[Promise, ...]
    run: dict[str, int]
    power: tuple[Seen, ...]
    tokens: int
    mean_accepted_len: float

    @property
    def rejected_by(self) -> tuple[str, ...]:
        """The names of everything that did not hold."""
        broken = tuple(one.name for one in self.promises if not one.held)
        enumerated = ("exact bench",) if self.exact and not self.exact.held else ()
        return (*enumerated, *rejecting(self.tests, self.alpha), *broken, *(f"run: {name}" for name in self.run))

    @property
    def passed(self) -> bool:
        """Whether everything held."""
        return not self.rejected_by


@final
@dataclass(frozen=True, kw_only=True)
class Bench:
    """A loaded configuration on which proofs are made.

    Attributes:
        planned: its components.
        decoder: its parts, put together.
        prompt: ids of the prompt.
        samples: sequences of a sample.
        alpha: of all statistical checks of one sample together.
        greedy: the target's chain at temperature 0.
        rows: [V, V] the target's rows by the last token, None where more decides.
        pairs: what is enumerated, by context: after the prompt, and after each token that may follow it.
    """

    planned: Plan
    decoder: Decoder
    prompt: Sequence[int]
    samples: int
    alpha: float
    greedy: SamplerChain
    rows: Floats | None = field(init=False)
    pairs: Mapping[tuple[int, ...], Pair] = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "rows", self._rows())
        object.__setattr__(self, "pairs", self._pairs())

    def prove(self, fault: Fault | None, *, power: bool) -> Proof:
        """Everything about the configuration, or about it with a fault."""
        decoder = fault.inject(self.decoder) if fault else self.decoder
        sample, tests, follower = self._sampled(decoder, fault)
        return Proof(
            rule=self.decoder.rule.id,
            fault=fault and fault.name,
            alpha=self.alpha,
            exact=self._exact(fault),
            tests=tuple(tests),
            promises=tuple(promises(decoder, self.prompt, sample, self.greedy)),
            run=follower.after,
            power=tuple(self._tried(one) for one in self._fitting()) if power and not fault else (),
            tokens=sample.size,
            mean_accepted_len=float(np.mean(sample.accepted)) if len(sample.accepted) else float("nan"),
        )

    def _fitting(self) -> Iterator[Fault]:
        """The faults that this rule, this drafting and these chains can have."""
        decoder = self.decoder
        for fault in FAULTS.values():
            if (
                fault.fits(decoder.rule)
                and fault.fits_drafting(decoder.drafting)
                and fault.fits_chain(decoder.draft_chain)
            ):
                yield fault

    def _sampled(self, decoder: Decoder, fault: Fault | None) -> tuple[Sample, list[Tested], FirstSeen]:
        follower = FirstSeen(self.planned.setting)
        sample = draw(decoder, self.prompt, self.samples, [follower])
        stops = self.decoder.rule.stops_at_rejection
        return sample, examined(sample, self.rows, stops, overlapping=bool(fault and fault.overlapping)), follower

    def _tried(self, fault: Fault) -> Seen:
        """One fault of the power arm: in a few sequences, as a run sees it, and in the whole sample."""
        decoder = fault.inject(self.decoder)
        alone = FirstSeen(self.planned.setting)
        draw(replace(decoder, max_tokens=RUN_TOKENS // RUN_SEQUENCES), self.prompt, RUN_SEQUENCES, [alone])
        sample, tests, follower = self._sampled(decoder, fault)
        found = {} if fault.overlapping else {at: self._enumerated(fault, at).emitted for at in self.pairs}
        return Seen(
            fault=fault.name,
            what=fault.what,
            by=(*rejecting(tests, self.alpha), *(["support"] if (sample.p <= 0).any() else [])),
            by_run={**follower.after, **alone.after},
            tokens=sample.size,
            would_need=would_need(self._counts(found, sample, tests), self.alpha / len(tests)),
            exact=max((total_variation(law, joint(self.pairs[at].p)) for at, law in found.items()), default=None),
        )

    def _counts(self, found: Mapping[tuple[int, ...], Floats], sample: Sample, tests: Sequence[Tested]) -> list[Count]:
        """The first tokens of rounds and the pairs; the prompt's own context is one that hardly any round starts in."""
        starts = np.bincount(sample.previous[sample.place == 0], minlength=len(self.pairs) - 1)
        effects = [exact_effects(law, self.pairs[at]) for at, law in found.items()][1:]
        if not effects:
            return []
        means = np.average(effects, axis=0, weights=starts)
        seen = [next(one for one in tests if one.name.startswith(name)).observations for name in ("first", "pairs")]
        sized = zip(means, degrees(self.rows), seen, strict=True)
        return [Count(float(mean), freedom, sample.size / count) for mean, freedom, count in sized]

    def _enumerated(self, fault: Fault | None, context: tuple[int, ...]) -> Enumerated:
        """The rule, with a fault, after a context; what a drafter wrongly reports is what its own chain says."""
        rule, drafter, pair = self.decoder.rule, self.decoder.drafter, self.pairs[context]
        if fault is None:
            return enumerate_rule(rule, pair)
        law = fault.proposed(pair)
        if fault.reported is not None and drafter is not None:
            reported = rows_after(drafter, fault.reported(self.decoder.draft_chain), context, pair.draft_tokens)
            law = honest(pair)._replace(rows=reported)
        return fault.enumerate(rule, pair, law)

    def _exact(self, fault: Fault | None) -> Exact | None:
        if not self.pairs:
            return None
        rule = self.decoder.rule
        found = {at: self._enumerated(fault, at) for at in self.pairs}
        laws = {at: joint(declared(rule, pair)) for at, pair in self.pairs.items()}
        first = tuple(self.prompt)
        return Exact(
            draft_tokens=self.pairs[first].draft_tokens,
            total_variation=max(total_variation(found[at].emitted, law) for at, law in laws.items()),
            impossible=max(float(found[at].emitted[law == 0].max(initial=0.0)) for at, law in laws.items()),
            expected_accepted=found[first].expected_accepted,
        )

    def _rows(self) -> Floats | None:
        chain, target = self.decoder.chain, self.planned.target
        last = isinstance(target, Iid | Cycle) or (isinstance(target, Markov) and target.order == 1)
        if not last or chain.needs_history or chain.needs_coin or not self.decoder.rule.preserves_target:
            return None
        return rows_by_last_token(self.decoder.target, chain)

    def _pairs(self) -> dict[tuple[int, ...], Pair]:
        count = draft_tokens(self.decoder, self.decoder.controller.longest) if self.decoder.drafter else 0
        after = contexts(self.prompt, self.decoder.target.vocab_size) if count else []
        return {tuple(at): pair_of(self.decoder, at, count) for at in after}


def bench(config: Mapping[str, Any], planned: Plan, models: Models, decoder: Decoder, **sizes: Any) -> Bench:
    """The bench of a configuration.

    Args:
        config: plain, resolved.
        planned: its components.
        models: loaded.
        decoder: its parts, put together.
        sizes: `samples` and `alpha` of `Bench`.
    """
    order = list(config["sampler"]["order"])
    cold = {
        **config["sampler"],
        "order": order if "temperature" in order else [*order, "temperature"],
        "temperature": {"value": 0.0},
        "xtc": {**config["sampler"].get("xtc", {}), "probability": 0.0},
    }
    prompt = planned.prompts.encode(models.target)[0].ids
    return Bench(
        planned=planned,
        decoder=replace(decoder, observers=(), split=False),
        prompt=prompt,
        greedy=SamplerChain.from_config(cold, "sampler"),
        **sizes,
    )
