"""Arms of specfw: the loop of every run, without a record, and without diagnostics unless they are what is timed."""

import dataclasses
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Self, final

from specfw.benchmark.arms import Arm, Clock, Counts, Timed
from specfw.counting import Tally
from specfw.decoder import Decoder
from specfw.diagnostics.base import Diagnostic, Setting
from specfw.diagnostics.tokens import TokenRows
from specfw.drafting.controllers.base import Controller
from specfw.drafting.controllers.constant import Constant
from specfw.generation import Generation
from specfw.prompts.base import Encoded
from specfw.registry import name_of
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
        counted = outcomes[1:]
        lengths = tuple(int(outcome.lengths[0]) for outcome in counted) if self.controller else ()
        return Timed(seconds, tokens, self._counts(outcomes), (emitted,), _phases(counted), len(counted), lengths)

    def split(self) -> Self:
        return dataclasses.replace(self, decoder=dataclasses.replace(self.decoder, split=True))

    def knowing(self, learn: Callable[[Controller], Controller]) -> Self:
        """The same arm, its controller having learnt what it must know of the machine."""
        if self.controller is None:
            return self
        learnt = learn(self.decoder.controller)
        decoder = dataclasses.replace(self.decoder, controller=learnt)
        return dataclasses.replace(self, decoder=decoder, controller=described(learnt))

    def _counts(self, outcomes: list[Outcome]) -> Counts:
        tally = Tally(self.stops_at_rejection)
        for outcome in outcomes:
            tally.add(outcome)
        return Counts(tally.rounds, tally.proposed, tally.tested, tally.accepted, tally.emitted_when_drafting)


def described(controller: Controller) -> dict[str, Any] | None:
    """Name and fields of a controller that changes K; None of one that does not."""
    if isinstance(controller, Constant):
        return None
    return {"name": name_of(type(controller), "controller"), **vars(controller)}


def _phases(outcomes: list[Outcome]) -> tuple[float, float, float] | None:
    timed = [outcome.phases for outcome in outcomes if outcome.phases is not None]
    if not timed:
        return None
    draft, verify, decide = np.sum(timed, axis=0).tolist()
    return draft, verify, decide
