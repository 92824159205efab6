"""The round and the loop: draft, verify, decide, one evaluation, cut, rewind. Nothing else.

Of n committed tokens the target's cache holds n - 1 before a round and n + e - 1 after it, e tokens emitted;
the drafter's holds at most n - 2, and n + e - 2 after a round it ran in. Both are rewound by K + 1 - e.
"""

import itertools
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from specfw.acceptance._guard import SURVIVAL, TARGET_ROW, explain
from specfw.counting import Decided, cut, is_end
from specfw.decoder import Decoder
from specfw.drafting.base import Judge
from specfw.errors import FailedCheckError
from specfw.models.base import Progress, unheard
from specfw.rounds import Built, Pass, Rounds
from specfw.types import Batch, Ints, Outcome, Round

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
        self._rounds = Rounds(self.decoder, self.batch)
        self._controller = self.decoder.controller.open(size)
        self._ahead: Built | None = None
        self._ended = 0.0

    @property
    def cache_lengths(self) -> tuple[Ints, Ints | None]:
        """[B] tokens held by the target's (less that of a pass begun ahead) and by the drafter's own cache."""
        return self._rounds.cache.lengths - (self._ahead is not None), self._rounds.session.lengths()

    def __iter__(self) -> Iterator[Outcome]:
        if not self.finished.all():
            self._prefill()
        self._ended, number = time.perf_counter(), 0
        while not self.finished.all():
            outcome = self._round(number)
            self._controller.observe(outcome)
            yield outcome
            number += 1

    def _prefill(self) -> None:
        began = time.perf_counter()
        for owed, (role, chunks) in enumerate(self._rounds.prefill().items(), start=1):
            for taken in chunks:
                self.host_syncs += 1
                self.prefill_s = time.perf_counter() - began  # an interrupted prompt has taken its time too
                self.progress(role, taken, self.batch.prompts.shape[1] - owed)

    def _round(self, number: int) -> Outcome:
        rounds = self._rounds
        built, self._ahead = self._ahead or rounds.built(self._begin(number)), None
        under_way, graph, wanted, traces = built
        if self._may_begin_ahead():
            self._ahead = rounds.follow(built)
        # a cache that the next pass writes to is evaluated with that pass
        mx.eval(wanted, traces, [] if self._ahead else (rounds.cache.arrays(), rounds.session.arrays()))
        under_way.phases.mark()
        decided, codes = wanted.read(under_way.own)
        self._refuse_broken(graph, np.where(self.finished[:, None], 0, codes))
        outcome = self._outcome(number, decided)
        now = time.perf_counter()
        outcome = outcome._replace(seconds=now - self._ended, phases=under_way.phases.seconds())
        self._ended = now
        for observer, trace in zip(self.decoder.observers, traces, strict=True):
            observer.observe(outcome, [np.array(array) for array in trace])
        self.host_syncs += 1 + under_way.phases.syncs
        return outcome

    def _begin(self, number: int) -> Pass:
        budget = self.decoder.max_tokens - (self.lengths - self._prompt_lengths) - 1
        counts = self._controller.next() if self.decoder.drafting.proposes else 0
        own = np.where(self.finished, 0, np.minimum(counts, budget))
        committed = tuple(row[:length] for row, length in zip(self.tokens, self.lengths, strict=True))
        return self._rounds.begin(number, committed, own, self._judge(own))

    def _may_begin_ahead(self) -> bool:
        """Whether a next round is likely to come, and is known to draft nothing and to look at nothing."""
        decoder, emitted = self.decoder, self.lengths - self._prompt_lengths
        plain = not (decoder.drafting.proposes or decoder.chain.needs_history or decoder.split)
        return plain and len(emitted) == 1 and int(emitted[0]) + 1 < decoder.max_tokens

    def _judge(self, own: Ints) -> Judge | None:
        """Asks the controller which rows draft on, where it stops inside a block; own K ends a row as well."""
        if not self._controller.stops_inside:
            return None
        wanted = itertools.count(2)

        def judge(q: mx.array) -> npt.NDArray[np.bool_]:
            self.host_syncs += 1
            return self._controller.goes_on(np.array(q)) & (own >= next(wanted))

        return judge

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
        ended = is_end(last, self.decoder.eos_ids) & (emitted > 0)
        full = self.lengths - self._prompt_lengths >= self.decoder.max_tokens
        self.finished = self.finished | ended | full | stopped
        self._rewind(places.shape[1] - 1, emitted)

    def _rewind(self, count: int, emitted: Ints) -> None:
        """Rewind every cache that ran by K + 1 - e and hold it to the contract."""
        if self._ahead and self.finished.all():  # fed to no purpose
            self._rounds.cache.rewind(np.ones_like(emitted))
            self._ahead = None
        self._rounds.rewind(count + 1 - emitted, drafted=bool(count))
        target, drafter = self.cache_lengths
        assert (target == self.lengths - 1).all(), f"target caches hold {target}, committed {self.lengths}"
        if drafter is not None:
            owed = self.lengths - drafter
            assert (owed == 2).all() if count else (owed >= 1).all(), f"drafter caches owe {owed}"  # noqa: PLR2004
