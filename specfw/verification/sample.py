"""Many tokens of the real loop, with what each must follow: the raw material of every statistical check."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple, final

from specfw.acceptance.base import AcceptanceRule
from specfw.decoder import Decoder
from specfw.diagnostics.base import Floats, Observer
from specfw.distribution import Categorical, stacked
from specfw.errors import FailedCheckError
from specfw.generation import Generation
from specfw.randomness import Stream, keys, uniforms
from specfw.types import Batch, Block, Ints, Outcome, Round

import mlx.core as mx
import numpy as np


class Sample(NamedTuple):
    """B sequences of T emitted tokens after one prompt.

    Attributes:
        tokens: [B, T].
        previous: [B, T] the token before each.
        place: [B, T] how many tokens of its round came before it.
        p: [B, T] its probability under the target's filtered row, or the one that a lossy rule declares.
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

    Raises:
        FailedCheckError: a cache did not hold what it must after a round.
        ValueError: a lossy rule that declares no row to be held against.
    """
    seen = _Seen(decoder.rule, samples, decoder.max_tokens, len(prompt))
    whole = replace(decoder, eos_ids=frozenset(), observers=(seen, *observers))
    generations = list(_generations(whole, prompt, samples))
    for generation in generations:
        seen.cache_checks += _decoded(generation)
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


def _decoded(generation: Generation) -> int:
    """Run to the end with an eye on the caches; the number of rounds."""
    rounds = 0
    try:
        for _ in generation:
            rounds += 1
            _require_rewound(generation)
    except AssertionError as error:  # the loop looks too, unless python -O took its assertions away
        raise FailedCheckError(f"cache lengths: {error}") from error
    return rounds


def _require_rewound(generation: Generation) -> None:
    target, drafter = generation.cache_lengths
    committed = generation.lengths
    if (target != committed - 1).any() or (drafter is not None and (drafter >= committed).any()):
        raise FailedCheckError(f"cache lengths: target {target}, drafter {drafter} of {committed} committed tokens")


def _uniforms(seed: int, samples: int, length: int, *, start: int) -> Floats:
    """[B, T] uniforms of the audit's own stream."""
    rows, positions = np.arange(samples)[:, None], start + np.arange(length)
    return np.array(uniforms(keys(seed, Stream.AUDIT, 0, rows, positions), 1)[..., 0])


def followed(rule: AcceptanceRule, block: Block) -> Categorical:
    """[B, K+1] the rows that `rule` says its text follows: the target's, or those it declares in their place."""
    if rule.preserves_target:
        return block.target
    count = block.tokens.shape[1]
    bonus = _declared(rule, block.target.tail(count), None)
    if not count:
        return bonus
    drafted, within = block.target.head(count), mx.arange(count) < block.lengths[:, None]
    return stacked([_declared(rule, drafted, block.draft).where(within, _declared(rule, drafted, None)), bonus])


def _declared(rule: AcceptanceRule, p: Categorical, q: Categorical | None) -> Categorical:
    row = rule.surrogate(p, q)
    if row is None:
        raise ValueError(f"acceptance must be a rule that says which law its text follows, got {rule.id}")
    return row


@final
class _Seen(Observer):
    """Where every emitted token stood in its round, and its place under its row."""

    def __init__(self, rule: AcceptanceRule, samples: int, length: int, start: int) -> None:
        self._rule, self._start = rule, start
        self.place = np.zeros((samples, length), dtype=np.int64)
        self.p = np.zeros((samples, length))
        self.before = np.zeros((samples, length))
        self.accepted: list[Ints] = []
        self.cache_checks = 0

    def trace(self, graph: Round) -> tuple[mx.array, ...]:
        rows = followed(self._rule, graph.block)
        return rows.at(graph.emitted), rows.transform(graph.emitted)

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
