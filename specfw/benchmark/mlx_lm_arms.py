"""Arms of mlx-lm: its own generators on the modules of our models, under its own sampler, caches and draws."""

from collections.abc import Generator, Mapping
from contextlib import closing
from dataclasses import dataclass
from typing import Any, final

from specfw.benchmark.arms import Arm, Clock, Counts, Timed
from specfw.prompts.base import Encoded

import mlx.core as mx
from mlx_lm.generate import generate_step, generation_stream, speculative_generate_step
from mlx_lm.sample_utils import make_sampler


@dataclass(frozen=True, kw_only=True)
class MlxLm(Arm):
    """What both generators are given.

    Attributes:
        model: mlx-lm's module of the target, its weights read.
        sampler: arguments of make_sampler.
        max_tokens: emitted at most.
        eos_ids: that end a text; empty to ignore them.
        prefill_chunk: tokens of a prompt fed at once.
    """

    model: Any
    sampler: Mapping[str, Any]
    max_tokens: int
    eos_ids: frozenset[int]
    prefill_chunk: int

    def _options(self, seed: int) -> dict[str, Any]:
        mx.random.seed(seed)
        return {
            "sampler": make_sampler(**self.sampler),
            "max_tokens": self.max_tokens,
            "prefill_step_size": self.prefill_chunk,
        }


@final
@dataclass(frozen=True, kw_only=True)
class MlxLmPlain(MlxLm):
    """generate_step: one token a pass, the next one under way while this one is handed over."""

    def decode(self, prompt: Encoded, seed: int, clock: Clock) -> Timed:
        steps = generate_step(mx.array(prompt.ids), self.model, **self._options(seed))
        emitted: list[int] = []
        began = 0.0
        with closing(steps):
            for token, _ in steps:
                if not emitted:
                    began = clock()
                emitted.append(int(token))
                if emitted[-1] in self.eos_ids:
                    break
            seconds = clock() - began
        _settle()
        self.require_tokens(len(emitted) - 1)
        return Timed(seconds, len(emitted) - 1, Counts(), (tuple(emitted),), None, len(emitted) - 1)


@final
@dataclass(frozen=True, kw_only=True)
class MlxLmSpeculative(MlxLm):
    """speculative_generate_step: a draft token stands if it is what the target's sampler drew.

    Attributes:
        drafter: mlx-lm's module of the drafter.
    """

    drafter: Any

    def decode(self, prompt: Encoded, seed: int, clock: Clock) -> Timed:
        steps: Generator[tuple[Any, Any, bool], None, None] = speculative_generate_step(
            mx.array(prompt.ids),
            self.model,
            self.drafter,
            num_draft_tokens=self.num_draft_tokens,
            **self._options(seed),
        )
        emitted: list[int] = []
        drafted: list[bool] = []
        began = 0.0
        with closing(steps):
            for token, _, from_draft in steps:
                if not emitted:
                    began = clock()
                emitted.append(int(token))
                drafted.append(from_draft)
                if emitted[-1] in self.eos_ids:
                    break
            seconds = clock() - began
        _settle()
        rounds = rounds_of(drafted)
        tokens = len(emitted) - rounds[0]
        self.require_tokens(tokens)
        counts = counted(rounds, drafted, self.num_draft_tokens, self.max_tokens)
        return Timed(seconds, tokens, counts, (tuple(emitted),), None, len(rounds) - 1)


def rounds_of(drafted: list[bool]) -> list[int]:
    """Tokens of each round: a token that was not drafted ends one, and so does the end of the text."""
    ends = [place + 1 for place, from_draft in enumerate(drafted) if not from_draft]
    if not ends or ends[-1] < len(drafted):
        ends.append(len(drafted))
    return [end - start for start, end in zip([0, *ends], ends, strict=False)]


def counted(rounds: list[int], drafted: list[bool], draft_tokens: int, max_tokens: int) -> Counts:
    """What these rounds drafted, tested and accepted; each drafts what may still be emitted, at most K."""
    counts, done = Counts(), 0
    for tokens in rounds:
        proposed = min(draft_tokens, max_tokens - done)
        accepted = sum(drafted[done : done + tokens])
        counts = counts.plus(Counts(1, proposed, min(accepted + 1, proposed), accepted, tokens))
        done += tokens
    return counts


def _settle() -> None:
    """Wait for the token after the last, which the generator began and nobody takes."""
    mx.synchronize(generation_stream)
