"""The round and the loop: draft, verify, decide, one evaluation, cut, rewind. Nothing else.

Of n committed tokens the target's cache holds n - 1 before a round and n + e - 1 after it, e tokens emitted;
the drafter's holds at most n - 2, and n + e - 2 after a round it ran in. Both are rewound by K + 1 - e.
"""

import itertools
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from specfw.acceptance._guard import SURVIVAL, TARGET_ROW, explain, faults
from specfw.acceptance.base import Needs
from specfw.counting import Decided, cut
from specfw.decoder import Decoder
from specfw.diagnostics._phases import Phases
from specfw.diagnostics.base import Floats
from specfw.drafting.base import DraftSession, Judge, Start
from specfw.errors import FailedCheckError
from specfw.models.base import Progress, prefill, unheard
from specfw.randomness import Noise
from specfw.types import Batch, Block, History, Ints, Outcome, Proposal, Round

import mlx.core as mx
import numpy as np
import numpy.typing as npt


def keep_all(row: int, tokens: Ints) -> tuple[int, bool]:
    """Listener that stops at nothing."""
    return len(tokens), False


@dataclass(kw_only=True)
class Generation:
    """One batch being decoded; iterating runs it and yields each round's `Outcome` after the rewind.

    Attributes:
        decoder: the parts.
        batch: the sequences.
        listen: called with (row, new tokens) in order; returns how many to keep and whether the row ends.
        progress: called once a chunk with (role of the model, tokens of the prompt taken in, all it takes in).
        host_syncs: evaluations so far.
        prefill_s: seconds the prompt took.
    """

    decoder: Decoder
    batch: Batch
    listen: Callable[[int, Ints], tuple[int, bool]] = keep_all
    progress: Progress = unheard
    host_syncs: int = 0
    prefill_s: float = 0.0
    tokens: Ints = field(init=False)
    lengths: Ints = field(init=False)
    finished: npt.NDArray[np.bool_] = field(init=False)

    def __post_init__(self) -> None:
        size, length = self.batch.prompts.shape
        self.tokens = self.batch.prompts.copy()
        self.lengths = np.full(size, length)
        self.finished = np.full(size, self.decoder.max_tokens == 0)
        self._prompt_lengths = self.lengths.copy()
        decoder, shared = self.decoder, self.decoder.rule.needs is Needs.SHARED_NOISE
        self._cache = decoder.target.new_cache(size)
        start = Start(decoder.drafter, decoder.draft_chain, self.batch.prompts, decoder.prefill_chunk, shared)
        self._session: DraftSession = decoder.drafting.open(start)
        self._controller = decoder.controller.open(size)

    @property
    def cache_lengths(self) -> tuple[Ints, Ints | None]:
        """[B] tokens held by the target's and by the drafter's own cache."""
        return self._cache.lengths, self._session.lengths()

    def __iter__(self) -> Iterator[Outcome]:
        if not self.finished.all():
            self._prefill()
        number = 0
        while not self.finished.all():
            outcome = self._round(number)
            self._controller.observe(outcome)
            yield outcome
            number += 1

    def _prefill(self) -> None:
        began = time.perf_counter()
        decoder, prompts = self.decoder, self.batch.prompts
        fed = {
            "target": prefill(decoder.target, self._cache, prompts[:, :-1], decoder.prefill_chunk),
            "drafter": self._session.prefill(),
        }
        for owed, (role, chunks) in enumerate(fed.items(), start=1):
            for taken in chunks:
                self.host_syncs += 1
                self.prefill_s = time.perf_counter() - began  # an interrupted prompt has taken its time too
                self.progress(role, taken, prompts.shape[1] - owed)

    def _round(self, number: int) -> Outcome:
        began = time.perf_counter()
        budget = self.decoder.max_tokens - (self.lengths - self._prompt_lengths) - 1
        counts = self._controller.next() if self.decoder.drafting.proposes else 0
        own = np.where(self.finished, 0, np.minimum(counts, budget))
        phases = Phases(self.decoder.split)
        decided, traces = self._evaluate(self._graph(number, own, phases))
        phases.mark()
        outcome = self._outcome(number, decided)
        outcome = outcome._replace(seconds=time.perf_counter() - began, phases=phases.seconds())
        for observer, trace in zip(self.decoder.observers, traces, strict=True):
            observer.observe(outcome, trace)
        self.host_syncs += 1 + phases.syncs
        return outcome

    def _graph(self, number: int, own: Ints, phases: Phases) -> Round:
        decoder, batch, most = self.decoder, self.batch, int(own.max())
        noise = Noise(
            seed=decoder.seed,
            prompt=batch.prompt,
            sample=batch.sample,
            position=self.lengths,
            round=number,
            vocab_size=decoder.target.vocab_size,
        )
        committed = tuple(row[:length] for row, length in zip(self.tokens, self.lengths, strict=True))
        nothing = Proposal(mx.zeros((len(committed), 0), dtype=mx.int32), None)
        proposal = self._session.propose(committed, most, noise, self._judge(own)) if most else nothing
        (drafts, rows, shorter), count = proposal, proposal.tokens.shape[1]
        phases.mark(drafts)
        newest = mx.array(np.stack([row[-1:] for row in committed]).astype(np.int32))
        logits = decoder.target.forward(mx.concatenate([newest, drafts], axis=1), self._cache)
        # the pass begins while the rest of the round is being built; nothing waits for it
        mx.async_eval(logits)  # type: ignore[no-untyped-call]
        phases.mark(logits)
        coin = noise.coin(range(count + 1)) if decoder.chain.needs_coin else None
        history = History(committed, self._prompt_lengths, drafts)
        target = decoder.chain.distribution(logits, history, coin)
        lengths = mx.array(own.astype(np.int32))
        block = Block(target, rows, drafts, lengths if shorter is None else mx.minimum(lengths, shorter))
        verdict = decoder.rule.decide(block, noise)
        kept = mx.arange(count + 1) < verdict.accepted[:, None]
        emitted = mx.where(kept, mx.pad(drafts, [(0, 0), (0, 1)]), verdict.token[:, None])
        return Round(block, verdict, logits, emitted)

    def _judge(self, own: Ints) -> Judge | None:
        """Asks the controller which rows draft on, where it stops inside a block; own K ends a row as well."""
        if not self._controller.stops_inside:
            return None
        wanted = itertools.count(2)

        def judge(q: mx.array) -> npt.NDArray[np.bool_]:
            self.host_syncs += 1
            return self._controller.goes_on(np.array(q)) & (own >= next(wanted))

        return judge

    def _evaluate(self, graph: Round) -> tuple[Decided, list[list[Floats]]]:
        """The one evaluation of a round."""
        traces = [observer.trace(graph) for observer in self.decoder.observers]
        codes = faults(graph.block, graph.verdict.survival)
        block, verdict = graph.block, graph.verdict
        wanted = (block.lengths, verdict.accepted, graph.emitted, block.tokens, verdict.degenerate, codes)
        mx.eval(wanted, traces, self._cache.arrays(), self._session.arrays())
        *counts, degenerate, code = (np.array(array) for array in wanted)
        self._refuse_broken(graph, np.where(self.finished[:, None], 0, code))
        lengths, accepted, emitted, drafts = (count.astype(np.int64) for count in counts)
        decided = Decided(lengths, accepted, emitted, drafts, degenerate)
        return decided, [[np.array(array) for array in trace] for trace in traces]

    def _refuse_broken(self, graph: Round, codes: Ints) -> None:
        if not codes.any():
            return
        row, place = (int(index) for index in np.argwhere(codes)[0])
        code, decoder = int(codes[row, place]), self.decoder
        model = decoder.target if code & TARGET_ROW else decoder.drafter or decoder.target
        culprit = f"rule {decoder.rule.id}" if code == SURVIVAL else f"model {model.name}"
        raise FailedCheckError(
            f"row {row} (prompt {self.batch.prompt[row]}, sample {self.batch.sample[row]}), "
            f"position {self.lengths[row] + place}, {culprit}: "
            f"{explain(graph.block, graph.logits, code, row, place)}"
        )

    def _outcome(self, number: int, decided: Decided) -> Outcome:
        """Cut the round at the end of sequence and at what the listener wants, commit it, rewind."""
        proposed, accepted, kept = cut(decided, self.decoder.eos_ids)
        kept = np.where(self.finished, 0, kept)
        said = [self.listen(row, decided.emitted[row, :end]) if end else (0, False) for row, end in enumerate(kept)]
        heard, stopped = (np.array(column) for column in zip(*said, strict=True))
        outcome = Outcome(
            round=number,
            position=self.lengths.copy(),
            prompt=self.batch.prompt,
            sample=self.batch.sample,
            lengths=decided.lengths,
            proposed=proposed,
            accepted=accepted,
            emitted=heard,
            tokens=decided.emitted,
            drafts=decided.drafts,
            raw_accepted=decided.accepted,
            degenerate=decided.degenerate,
            active=~self.finished,
            seconds=0.0,
            phases=None,
        )
        self._commit(outcome, stopped)
        return outcome

    def _commit(self, outcome: Outcome, stopped: npt.NDArray[np.bool_]) -> None:
        before, emitted = self.lengths, outcome.emitted
        places = np.arange(outcome.tokens.shape[1]) < emitted[:, None]
        rows, columns = np.nonzero(places)
        if before.max() + places.shape[1] > self.tokens.shape[1]:
            self.tokens = np.pad(self.tokens, [(0, 0), (0, self.tokens.shape[1] + places.shape[1])])
        self.tokens[rows, before[rows] + columns] = outcome.tokens[rows, columns]
        self.lengths = before + emitted
        last = self.tokens[np.arange(len(before)), self.lengths - 1]
        ended = np.isin(last, list(self.decoder.eos_ids)) & (emitted > 0)
        full = self.lengths - self._prompt_lengths >= self.decoder.max_tokens
        self.finished = self.finished | ended | full | stopped
        self._rewind(places.shape[1] - 1, emitted)

    def _rewind(self, count: int, emitted: Ints) -> None:
        """Rewind every cache that ran by K + 1 - e and hold it to the contract."""
        self._cache.rewind(count + 1 - emitted)
        if count:
            self._session.rewind(count + 1 - emitted)
        target, drafter = self.cache_lengths
        assert (target == self.lengths - 1).all(), f"target caches hold {target}, committed {self.lengths}"
        if drafter is not None:
            owed = self.lengths - drafter
            assert (owed == 2).all() if count else (owed >= 1).all(), f"drafter caches owe {owed}"  # noqa: PLR2004
