"""Many tokens of the real loop, with what each must follow: the raw material of every statistical check."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple, final

from specfw.decoder import Decoder
from specfw.diagnostics.base import Floats, Observer
from specfw.generation import Generation
from specfw.randomness import Stream, keys, uniforms
from specfw.types import Batch, Ints, Outcome, Round

import mlx.core as mx
import numpy as np


class Sample(NamedTuple):
    """B sequences of T emitted tokens after one prompt.

    Attributes:
        tokens: [B, T].
        previous: [B, T] the token before each.
        place: [B, T] how many tokens of its round came before it.
        p: [B, T] its probability under the target's filtered row.
        transform: [B, T] P(smaller ids) + v p, v uniform of its own: uniform in law, whatever the row.
        accepted: [R] accepted draft tokens of each round that proposed any.
        rounds: how many rounds of a sequence ran.
        cache_checks: how often both caches were held to their contract.
    """

    tokens: Ints
    previous: Ints
    place: Ints
    p: Floats
    transform: Floats
    accepted: Ints
    rounds: int
    cache_checks: int

    @property
    def size(self) -> int:
        """Emitted tokens."""
        return int(self.tokens.size)


def draw(decoder: Decoder, prompt: Sequence[int], samples: int, observers: Sequence[Observer] = ()) -> Sample:
    """Decode `samples` continuations of one prompt to `max_tokens`, ends of sequence ignored.

    Args:
        decoder: as in production; further observers may be attached.
        prompt: its ids, at least one.
        samples: B.
        observers: diagnostics that look on.
    """
    seen = _Seen(samples, decoder.max_tokens, len(prompt))
    whole = replace(decoder, eos_ids=frozenset(), observers=(seen, *observers))
    generations = list(_generations(whole, prompt, samples))
    for generation in generations:
        for _ in generation:
            seen.cache_checks += 1
    tokens = np.concatenate([one.tokens[:, len(prompt) : len(prompt) + decoder.max_tokens] for one in generations])
    before = np.concatenate(
        [one.tokens[:, len(prompt) - 1 : len(prompt) - 1 + decoder.max_tokens] for one in generations]
    )
    coins = _uniforms(decoder.seed, *tokens.shape, start=len(prompt))
    return Sample(
        tokens=tokens,
        previous=before,
        place=seen.place,
        p=seen.p,
        transform=seen.before + coins * seen.p,
        accepted=np.concatenate(seen.accepted) if seen.accepted else np.zeros(0, dtype=np.int64),
        rounds=int((seen.place == 0).sum()),
        cache_checks=seen.cache_checks,
    )


def _generations(decoder: Decoder, prompt: Sequence[int], samples: int) -> Iterator[Generation]:
    models = [model for model in (decoder.target, decoder.drafter) if model is not None]
    width = samples if all(model.batched for model in models) else 1
    for first in range(0, samples, width):
        rows = np.arange(first, first + width)
        ids = np.tile(np.array(prompt, dtype=np.int64), (width, 1))
        yield Generation(decoder=decoder, batch=Batch(ids, np.zeros(width, dtype=np.int64), rows))


def _uniforms(seed: int, samples: int, length: int, *, start: int) -> Floats:
    """[B, T] uniforms of the audit's own stream."""
    rows, positions = np.arange(samples)[:, None], start + np.arange(length)
    return np.array(uniforms(keys(seed, Stream.AUDIT, 0, rows, positions), 1)[..., 0])


@final
class _Seen(Observer):
    """Where every emitted token stood in its round, and its place under its row."""

    def __init__(self, samples: int, length: int, start: int) -> None:
        self._start = start
        self.place = np.zeros((samples, length), dtype=np.int64)
        self.p = np.zeros((samples, length))
        self.before = np.zeros((samples, length))
        self.accepted: list[Ints] = []
        self.cache_checks = 0

    def trace(self, graph: Round) -> tuple[mx.array, ...]:
        return graph.block.target.at(graph.emitted), graph.block.target.transform(graph.emitted)

    def observe(self, outcome: Outcome, trace: Sequence[Floats]) -> None:
        p, middle = trace
        rows, places = np.nonzero(np.arange(p.shape[1]) < outcome.emitted[:, None])
        where = outcome.sample[rows], outcome.position[rows] - self._start + places
        self.place[where] = places
        self.p[where] = p[rows, places]
        self.before[where] = middle[rows, places] - p[rows, places] / 2
        self.accepted.append(outcome.accepted[outcome.proposed > 0])

    def numbers(self) -> dict[str, int]:
        return {"tokens": self.p.size}
