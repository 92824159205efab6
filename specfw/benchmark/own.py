"""Arms of specfw: the loop of every run, without a record, and without diagnostics unless they are what is timed."""

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Self, final

from specfw.benchmark.arms import Arm, Clock, Counts, Timed
from specfw.counting import Tally
from specfw.decoder import Decoder
from specfw.diagnostics.base import Diagnostic, Setting
from specfw.diagnostics.tokens import TokenRows
from specfw.generation import Generation
from specfw.prompts.base import Encoded
from specfw.types import Batch, Outcome

import numpy as np


@final
@dataclass(frozen=True, kw_only=True)
class Own(Arm):
    """The parts of a run, put together.

    Attributes:
        decoder: its seed is replaced.
        setting: what its diagnostics may know.
        diagnostics: by name; usually none.
    """

    decoder: Decoder
    setting: Setting
    diagnostics: Mapping[str, Diagnostic] = field(default_factory=dict)

    def decode(self, prompt: Encoded, seed: int, clock: Clock) -> Timed:
        observers = [one.open(self.setting) for one in self.diagnostics.values()]
        records = [one for one in observers if isinstance(one, TokenRows)]
        ids, one = np.array([prompt.ids], dtype=np.int64), np.zeros(1, dtype=np.int64)
        generation = Generation(
            decoder=dataclasses.replace(self.decoder, seed=seed, observers=observers),
            batch=Batch(ids, one + prompt.index, one),
        )
        outcomes: list[Outcome] = []
        began = 0.0
        for outcome in generation:
            if not outcomes:
                began = clock()
            outcomes.append(outcome)
            for record in records:
                record.drain()
        seconds = clock() - began
        emitted = tuple(generation.tokens[0, ids.shape[1] : generation.lengths[0]].tolist())
        tokens = len(emitted) - int(outcomes[0].emitted.sum())
        self.require_tokens(tokens)
        return Timed(seconds, tokens, self._counts(outcomes), (emitted,), _phases(outcomes[1:]), len(outcomes) - 1)

    def split(self) -> Self:
        return dataclasses.replace(self, decoder=dataclasses.replace(self.decoder, split=True))

    def _counts(self, outcomes: list[Outcome]) -> Counts:
        tally = Tally(self.stops_at_rejection)
        for outcome in outcomes:
            tally.add(outcome)
        return Counts(tally.rounds, tally.proposed, tally.tested, tally.accepted, tally.emitted_when_drafting)


def _phases(outcomes: list[Outcome]) -> tuple[float, float, float] | None:
    timed = [outcome.phases for outcome in outcomes if outcome.phases is not None]
    if not timed:
        return None
    draft, verify, decide = np.sum(timed, axis=0).tolist()
    return draft, verify, decide
