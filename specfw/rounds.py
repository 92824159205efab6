"""The graph of a round: draft, feed the target, decide; nothing of it is computed before it is asked for.

Where nothing is drafted and nothing looks back, the next pass may be fed this round's token before the host has
read it: the graph of a pass is then built while the one before it runs.
"""

from collections.abc import Iterator
from typing import NamedTuple, final

from specfw.acceptance._guard import Facts
from specfw.acceptance.base import Needs
from specfw.counting import Decided
from specfw.decoder import Decoder
from specfw.diagnostics._phases import Phases
from specfw.drafting.base import DraftSession, Judge, Start
from specfw.models.base import prefill
from specfw.randomness import Noise
from specfw.types import Batch, Block, History, Ints, Proposal, Round

import mlx.core as mx
import numpy as np


class Pass(NamedTuple):
    """A target's pass under way.

    Attributes:
        own: [B] draft tokens each row may use.
        noise: the draws of its round.
        proposal: [B, K] draft tokens that it was fed after the newest one.
        history: what its rows may look back at.
        logits: [B, K+1, V].
        phases: the clock of its round.
    """

    own: Ints
    noise: Noise
    proposal: Proposal
    history: History
    logits: mx.array
    phases: Phases


class Wanted(NamedTuple):
    """What the host reads of a round.

    Attributes:
        accepted: [B] int32.
        token: [B] int32.
        degenerate: [B] bool.
        drafts: [B, K] int32.
        facts: for the check of the block.
        lengths: [B] int32 where the drafter ended rows early.
    """

    accepted: mx.array
    token: mx.array
    degenerate: mx.array
    drafts: mx.array
    facts: Facts
    lengths: mx.array | None

    def read(self, own: Ints) -> tuple[Decided, Ints]:
        """The numbers of the round, and the codes [B, K+1] of what is wrong with its block; `own` [B] K."""
        accepted, token, drafts = (np.array(one).astype(np.int64) for one in (self.accepted, self.token, self.drafts))
        lengths = own if self.lengths is None else np.array(self.lengths).astype(np.int64)
        kept = np.arange(drafts.shape[1] + 1) < accepted[:, None]
        extra = token[:, None]
        # `Round.emitted`, without an operation on the device
        emitted = np.where(kept, np.concatenate([drafts, extra], axis=1), extra)
        decided = Decided(lengths, accepted, emitted, drafts, np.array(self.degenerate))
        return decided, self.facts.read().faults(lengths)


class Built(NamedTuple):
    """A round whose whole graph is there.

    Attributes:
        under_way: the target's pass.
        graph: the round.
        wanted: what the host reads of it.
        traces: what each observer reads of it.
    """

    under_way: Pass
    graph: Round
    wanted: Wanted
    traces: list[tuple[mx.array, ...]]


@final
class Rounds:
    """The rounds of one batch on the device: the models' caches, and the draws."""

    def __init__(self, decoder: Decoder, batch: Batch) -> None:
        self._decoder, self._batch = decoder, batch
        size, length = batch.prompts.shape
        self._prompt_lengths = np.full(size, length)
        shared = decoder.rule.needs is Needs.SHARED_NOISE
        start = Start(decoder.drafter, decoder.draft_chain, batch.prompts, decoder.prefill_chunk, shared)
        self.session: DraftSession = decoder.drafting.open(start)
        self.cache = decoder.target.new_cache(size)
        self._noise = Noise(
            seed=decoder.seed,
            prompt=batch.prompt,
            sample=batch.sample,
            position=self._prompt_lengths,
            round=0,
            vocab_size=decoder.target.vocab_size,
        )

    def prefill(self) -> dict[str, Iterator[int]]:
        """By role: takes the prompt in chunk by chunk, and yields how many tokens are in."""
        prompts, decoder = self._batch.prompts, self._decoder
        chunks = prefill(decoder.target, self.cache, prompts[:, :-1], decoder.prefill_chunk)
        return {"target": chunks, "drafter": self.session.prefill()}

    def begin(self, number: int, committed: tuple[Ints, ...], own: Ints, judge: Judge | None) -> Pass:
        """Draft, and feed the target the newest token and the drafts.

        Args:
            number: of the round.
            committed: the tokens of each row.
            own: [B] draft tokens each row may use.
            judge: says which rows draft on, where the controller stops inside a block.
        """
        phases, most = Phases(self._decoder.split), int(own.max())
        noise = self._noise.at(np.array([len(row) for row in committed]), number)
        proposal = self.session.propose(committed, most, noise, judge) if most else self._nothing()
        phases.mark(proposal.tokens)
        newest = mx.array(np.stack([row[-1:] for row in committed]).astype(np.int32))
        fed = mx.concatenate([newest, proposal.tokens], axis=1) if most else newest
        return self._feed(fed, Pass(own, noise, proposal, self._history(committed, proposal), fed, phases))

    def follow(self, built: Built) -> Built:
        """The round after one without drafts, fed with its token, which nobody has read yet; both begin to run."""
        mx.async_eval(built.wanted, built.traces)  # type: ignore[no-untyped-call]
        before, proposal = built.under_way.noise, self._nothing()
        noise = before.at(before.position + 1, before.round + 1)
        ahead = built.under_way._replace(noise=noise, proposal=proposal, history=self._history((), proposal))
        return self.built(self._feed(built.graph.verdict.token[:, None], ahead))

    def built(self, under_way: Pass) -> Built:
        """The rest of the round, not evaluated."""
        graph = self._decide(under_way)
        traces = [observer.trace(graph) for observer in self._decoder.observers]
        return Built(under_way, graph, _wanted(graph, under_way), traces)

    def _decide(self, under_way: Pass) -> Round:
        own, noise, (drafts, rows, shorter), history, logits, _ = under_way
        chain = self._decoder.chain
        coin = noise.coin(range(drafts.shape[1] + 1)) if chain.needs_coin else None
        target = chain.distribution(logits, history, coin)
        lengths = mx.array(own.astype(np.int32))
        block = Block(target, rows, drafts, lengths if shorter is None else mx.minimum(lengths, shorter))
        return Round(block, self._decoder.rule.decide(block, noise), logits)

    def rewind(self, counts: Ints, *, drafted: bool) -> None:
        """Forget the last `counts` [B] tokens, in the drafter's cache too if it ran."""
        self.cache.rewind(counts)
        if drafted:
            self.session.rewind(counts)

    def _feed(self, tokens: mx.array, under_way: Pass) -> Pass:
        logits = self._decoder.target.forward(tokens, self.cache)
        # the pass begins while the rest of the round is being built; nothing waits for it
        mx.async_eval(logits)  # type: ignore[no-untyped-call]
        under_way.phases.mark(logits)
        return under_way._replace(logits=logits)

    def _nothing(self) -> Proposal:
        return Proposal(mx.zeros((len(self._prompt_lengths), 0), dtype=mx.int32), None)

    def _history(self, committed: tuple[Ints, ...], proposal: Proposal) -> History:
        return History(committed, self._prompt_lengths, proposal.tokens)


def _wanted(graph: Round, under_way: Pass) -> Wanted:
    block, verdict = graph.block, graph.verdict
    lengths = None if under_way.proposal.lengths is None else block.lengths
    facts = Facts.of(block, verdict.survival)
    return Wanted(verdict.accepted, verdict.token, verdict.degenerate, block.tokens, facts, lengths)
