"""What holds token by token: equality with plain decoding where it is promised, the seed, the caches."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple

from specfw.acceptance._draws import TargetDrawRule
from specfw.acceptance._plain import Plain
from specfw.acceptance.greedy_argmax import GreedyArgmax
from specfw.decoder import Decoder
from specfw.drafting.none import NoDrafting
from specfw.randomness import SEED_LIMIT
from specfw.sampling.chain import SamplerChain
from specfw.types import Ints
from specfw.verification.sample import Sample, draw

import mlx.core as mx
import numpy as np

SEQUENCES, LENGTH = 4, 48
UNLIKELY = 1e-9
"""Two seeds are compared where equal texts are less likely than this."""


class Promise(NamedTuple):
    """Something that is equal or not.

    Attributes:
        name: what.
        held: whether it is.
        words: what was compared, or where it differs.
    """

    name: str
    held: bool
    words: str


def promises(decoder: Decoder, prompt: Sequence[int], sample: Sample, greedy: SamplerChain) -> Iterator[Promise]:
    """Every promise that this rule makes, tried on a few short texts.

    Args:
        decoder: as in production.
        prompt: its ids.
        sample: the large sample, for its support and cache checks.
        greedy: the target's chain at temperature 0.
    """
    impossible = int((sample.p <= 0).sum())
    yield Promise("support", impossible == 0, f"{impossible} of {sample.size} tokens have p = 0")
    yield _greedy(replace(decoder, chain=greedy, rule=GreedyArgmax()), prompt)
    yield from _seed(decoder, prompt, sample)
    if isinstance(decoder.rule, TargetDrawRule) and decoder.rule.preserves_target and not decoder.chain.is_greedy:
        yield _same("equality with plain decoding at the same seed", _texts(decoder, prompt), _plain(decoder, prompt))
    yield Promise("cache lengths", True, f"both caches were held to their lengths in {sample.cache_checks} rounds")


def _texts(decoder: Decoder, prompt: Sequence[int]) -> Ints:
    return draw(replace(decoder, max_tokens=LENGTH), prompt, SEQUENCES).tokens


def _plain(decoder: Decoder, prompt: Sequence[int]) -> Ints:
    return _texts(replace(decoder, drafter=None, drafting=NoDrafting(), rule=Plain()), prompt)


def _seed(decoder: Decoder, prompt: Sequence[int], sample: Sample) -> Iterator[Promise]:
    """The text is a function of the seed, and no other."""
    one = _texts(decoder, prompt)
    yield _same("the same seed gives the same text", _texts(decoder, prompt), one)
    if float(sample.p.mean()) ** one.size < UNLIKELY:  # E[p] is the chance that two draws of a token agree
        other = _texts(replace(decoder, seed=(decoder.seed + 1) % SEED_LIMIT), prompt)
        words = f"{int((other != one).any(axis=1).sum())} of {len(one)} texts of {LENGTH} tokens differ"
        yield Promise("another seed gives another text", bool((other != one).any()), words)


def _greedy(decoder: Decoder, prompt: Sequence[int]) -> Promise:
    """At temperature 0 the text is plain decoding's; a difference is reported with the gap it fell into."""
    name, found, expected = "equality at temperature 0", _texts(decoder, prompt), _plain(decoder, prompt)
    promise = _same(name, found, expected)
    if promise.held:
        return promise
    row, place = (int(index) for index in np.argwhere(found != expected)[0])
    gap = _top_two_gap(decoder, [*prompt, *expected[row, :place].tolist()])
    return promise._replace(words=f"{promise.words}; the two largest logits there are {gap:.3g} apart")


def _top_two_gap(decoder: Decoder, context: Sequence[int]) -> float:
    target = decoder.target
    logits = target.forward(mx.array([list(context)], dtype=mx.int32), target.new_cache(1))[0, -1]
    second, first = np.sort(np.array(logits.astype(mx.float32)))[-2:]
    return float(first - second)


def _same(name: str, found: Ints, expected: Ints) -> Promise:
    differing = np.argwhere(found != expected)
    if not len(differing):
        return Promise(name, True, f"{len(found)} texts of {found.shape[1]} tokens")
    row, place = differing[0].tolist()
    return Promise(name, False, f"sample {row} differs at token {place}: {found[row, place]}, {expected[row, place]}")
