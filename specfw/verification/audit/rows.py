"""Teacher-forced replay: every emitted token's probability under the claimed row and under the alternatives.

    p     the claimed row, XTC as the mixture over its coin
    r     half p, half the row of the chain with relaxed thresholds: where tokens at a filter's edge still live

Only numbers at emitted tokens are kept, so a long text never holds its rows.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple

from specfw.distribution import NORMALISATION_TOLERANCE, Dense
from specfw.errors import FailedCheckError
from specfw.models.base import LanguageModel, prefill
from specfw.randomness import Stream, keys, uniforms
from specfw.sampling.chain import SamplerChain
from specfw.summation import block_sum
from specfw.types import History, Ints
from specfw.verification.audit.claim import coin_probability, relaxed
from specfw.verification.audit.source import Case
from specfw.verification.audit.text import Text
from specfw.verification.exact import Doubles

import mlx.core as mx
import numpy as np

MOST_ENTRIES = 2**22
MOST_POSITIONS = 256
"""Bounds of a chunk: probabilities of one array, and positions."""

RATIO_BOUND = 1e3
LEAST_Q = 1e-6
"""q / p is clipped to [1e-3, 1e3] and q to at least 1e-6 where they tilt, so that no alternative gives up an id."""


class Scores(NamedTuple):
    """Numbers of T emitted tokens, float64.

    Attributes:
        p: [T] under the claimed row.
        edge: [T] under r.
        others: [T] under each alternative row, by name.
        branches: [2, T] under the row with and without XTC; equal where the chain has none.
        transforms: [T] the randomised probability integral transform, by the order of ids it was taken in.
    """

    p: Doubles
    edge: Doubles
    others: Mapping[str, Doubles]
    branches: Doubles
    transforms: Mapping[str, Doubles]


def joined(parts: Sequence[Scores]) -> Scores:
    """Parts of one text, one at least, put together."""

    def by_name(mappings: Sequence[Mapping[str, Doubles]]) -> dict[str, Doubles]:
        return {name: np.concatenate([one[name] for one in mappings]) for name in mappings[0]}

    return Scores(
        np.concatenate([part.p for part in parts]),
        np.concatenate([part.edge for part in parts]),
        by_name([part.others for part in parts]),
        np.concatenate([part.branches for part in parts], axis=1),
        by_name([part.transforms for part in parts]),
    )


def scores(case: Case, text: Text, others: Mapping[str, SamplerChain], seed: int) -> Iterator[Scores]:
    """The scores of one text, chunk by chunk.

    Args:
        case: the models.
        text: whose claim is not greedy.
        others: alternative chains by name.
        seed: of the transform's own draws.

    Raises:
        FailedCheckError: a row that is no distribution.
    """
    target, drafter = case.models
    chunk = chunk_of(target)
    drafts = None if drafter is None else replay(drafter, text, chunk, case.prefill_chunk)
    for start, logits in replay(target, text, chunk, case.prefill_chunk):
        part = Part(text, start, logits.shape[1])
        draft_logits = None if drafts is None else next(drafts)[1]
        yield _scores(part, logits, _draft_row(part, draft_logits, case.greedy_drafts), others, seed)


def chunk_of(model: LanguageModel) -> int:
    """How many positions of the model's rows are held at once."""
    return max(1, min(MOST_POSITIONS, MOST_ENTRIES // model.vocab_size))


def replay(model: LanguageModel, text: Text, chunk: int, prefill_chunk: int) -> Iterator[tuple[int, mx.array]]:
    """The model's logits [1, C, V] before every emitted token, by chunks, each with its first place in the text."""
    cache = model.new_cache(1)
    ids = np.array([text.ids + text.emitted[:-1]], dtype=np.int64)
    owed = len(text.ids) - 1
    for _ in prefill(model, cache, ids[:, :owed], prefill_chunk):
        pass
    for start in range(0, len(text.emitted), chunk):
        feed = ids[:, owed + start : owed + min(start + chunk, len(text.emitted))]
        logits = model.forward(mx.array(feed.astype(np.int32)), cache)
        mx.eval(logits, cache.arrays())
        yield start, logits


def row_of(chain: SamplerChain, logits: mx.array, history: History) -> mx.array:
    """[1, C, V] the chain's rows, the mixture over its coin."""
    return _over_coin(chain, branches_of(chain, logits, history))


def branches_of(chain: SamplerChain, logits: mx.array, history: History) -> tuple[mx.array, mx.array]:
    """[1, C, V] the rows with XTC and without it; the same row twice where the chain has no coin."""
    whole = Dense(mx.zeros(logits.shape))
    if not chain.needs_coin:
        row = chain.distribution(logits, history, None).aligned(whole)
        return row, row
    # coin < probability touches a position: 0 is below every probability that acts, 1 below none
    coins = (mx.full(logits.shape[:2], coin) for coin in (0.0, 1.0))
    touched, untouched = (chain.distribution(logits, history, coin).aligned(whole) for coin in coins)
    return touched, untouched


def _over_coin(chain: SamplerChain, branches: tuple[mx.array, mx.array]) -> mx.array:
    touched, untouched = branches
    probability = coin_probability(chain)
    return probability * touched + (1 - probability) * untouched if chain.needs_coin else touched


class Part:
    """C emitted tokens of a text, from place `start` on.

    Attributes:
        tokens: [1, C] int32.
        history: what the chain may look back at before each of them.
        positions: [C] their indices in prompt + output.
    """

    def __init__(self, text: Text, start: int, count: int) -> None:
        self.text, self.start = text, start
        self.tokens = mx.array([text.emitted[start : start + count]], dtype=mx.int32)
        before = np.array(text.ids + text.emitted[:start], dtype=np.int64)
        self.history = History((before,), np.array([len(text.ids)]), self.tokens[:, :-1])
        self.positions: Ints = len(before) + np.arange(count)

    def at(self, name: str, row: mx.array) -> Doubles:
        """[C] what `row` gives the tokens, after a look whether it is a distribution."""
        found, total = Dense(row).at(self.tokens), block_sum(row)
        mx.eval(found, total)
        broken = ~(np.abs(np.array(total)[0] - 1) < NORMALISATION_TOLERANCE)
        if broken.any():
            place = int(np.argmax(broken))
            raise FailedCheckError(
                f"prompt {self.text.prompt}, sample {self.text.sample}, position {self.positions[place]}: the row of "
                f"{name} sums to {float(total[0, place])}"
            )
        return np.asarray(np.array(found)[0], dtype=np.float64)

    def transform(self, row: mx.array, order: mx.array | None, seed: int) -> Doubles:
        """[C] F(before x) + v p(x), with v from the stream AUDIT."""
        key = keys(seed, Stream.AUDIT, self.text.prompt, self.text.sample, self.positions)
        middle, own = Dense(row).transform(self.tokens, order), Dense(row).at(self.tokens)
        within = uniforms(key, 1)[None, :, 0] - 0.5
        return np.asarray(np.array(middle + within * own)[0], dtype=np.float64)


def _draft_row(part: Part, logits: mx.array | None, greedy: bool) -> mx.array | None:
    if logits is None:
        return None
    row = row_of(part.text.claim.draft_chain, logits, part.history)
    return Dense(row).mode().probs if greedy else row


def _scores(part: Part, logits: mx.array, q: mx.array | None, others: Mapping[str, SamplerChain], seed: int) -> Scores:
    chain, history = part.text.claim.chain, part.history
    branches = branches_of(chain, logits, history)
    p = _over_coin(chain, branches)
    mx.eval(p)
    loose = part.at("the relaxed chain", row_of(relaxed(chain), logits, history))
    found = {name: part.at(name, row_of(other, logits, history)) for name, other in others.items()}
    found |= {name: part.at(name, tilt(p)) for name, tilt in POWERS.items()}
    orders: dict[str, mx.array | None] = {"ids": None, "falling_p": -p}
    if chain.needs_coin:
        orders["xtc"] = mx.where(p > 0, branches[0] / p, 0)
    if q is not None:
        mx.eval(q)
        found |= {name: part.at(name, tilt(p, q)) for name, tilt in TILTS.items()}
        orders["q_over_p"] = mx.where(p > 0, q / p, 0)
    at_p = part.at("the claimed chain", p)
    return Scores(
        p=at_p,
        edge=(at_p + loose) / 2,
        others=found,
        branches=np.stack([part.at("the claimed chain", branch) for branch in branches]),
        transforms={name: part.transform(p, order, seed) for name, order in orders.items()},
    )


def _power(exponent: float) -> Callable[[mx.array], mx.array]:
    return lambda p: Dense(mx.power(p, exponent)).normalised().probs


def _ratio_power(exponent: float) -> Callable[[mx.array, mx.array], mx.array]:
    def tilt(p: mx.array, q: mx.array) -> mx.array:
        ratio = mx.clip(q / mx.maximum(p, 1e-30), 1 / RATIO_BOUND, RATIO_BOUND)
        return Dense(p * mx.power(ratio, exponent)).normalised().probs

    return tilt


def _q_power(exponent: float) -> Callable[[mx.array, mx.array], mx.array]:
    return lambda p, q: Dense(p * mx.power(mx.maximum(q, LEAST_Q), exponent)).normalised().probs


def _share(share: float) -> Callable[[mx.array, mx.array], mx.array]:
    return lambda p, q: (1 - share) * p + share * q


POWERS = {f"p_power_{exponent}": _power(exponent) for exponent in (1.1, 0.9)}
TILTS = {
    **{f"ratio_power_{exponent:+}": _ratio_power(exponent) for exponent in (0.1, -0.1, 0.3, -0.3)},
    "q_power_-0.1": _q_power(-0.1),
    **{f"q_share_{share}": _share(share) for share in (0.1, 0.3)},
}
"""Alternatives made of the rows p and q themselves."""
