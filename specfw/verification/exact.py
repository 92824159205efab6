"""The exact bench: the joint law of K + 1 emitted tokens, enumerated in float64 from a rule's own functions.

Three factors make it: the law of the block, survival, and the row of the next token. It runs the very code of
production on small pairs and must give the target's own joint law to rounding.
"""

import itertools
from collections.abc import Sequence
from typing import NamedTuple

from specfw.acceptance.base import AcceptanceRule
from specfw.distribution import Categorical, Dense, Survivors
from specfw.types import Block

import mlx.core as mx
import numpy as np
import numpy.typing as npt

Doubles = npt.NDArray[np.float64]


class Pair(NamedTuple):
    """Two models whose every row is known.

    Attributes:
        p: K + 1 arrays; p[j] [V, ..., V] holds the target's row after each prefix of j tokens.
        q: K arrays of the drafter's rows.
    """

    p: tuple[Doubles, ...]
    q: tuple[Doubles, ...]

    @property
    def vocab_size(self) -> int:
        """V."""
        return int(self.p[0].shape[-1])

    @property
    def draft_tokens(self) -> int:
        """K."""
        return len(self.q)


class Proposed(NamedTuple):
    """The proposal law of a pair: how blocks come about, and what the rule is told about them.

    Attributes:
        weights: [V^K] probability of each block, in the order of `itertools.product`.
        rows: K arrays like `Pair.q`: the rows that are reported.
        lengths: [V^K] draft tokens of each block that are proposed, where a controller ends it early.
    """

    weights: Doubles
    rows: tuple[Doubles, ...]
    lengths: npt.NDArray[np.int64]


class Enumerated(NamedTuple):
    """Everything about one rule on one pair.

    Attributes:
        emitted: [V] * (K+1), the joint law of the first K + 1 emitted tokens.
        accepted: [K+1], the law of the number of accepted draft tokens.
        survival: [V^K, K] S_i of each block, in the order of `itertools.product`.
        blocks: [V^K] probability of each block.
    """

    emitted: Doubles
    accepted: Doubles
    survival: Doubles
    blocks: Doubles

    @property
    def expected_accepted(self) -> float:
        """Mean number of accepted draft tokens."""
        return float(self.accepted @ np.arange(len(self.accepted)))


def iid(p: Sequence[float], q: Sequence[float], draft_tokens: int) -> Pair:
    """The pair that ignores its context."""

    def rows(row: Sequence[float], length: int) -> Doubles:
        return np.broadcast_to(np.array(row, dtype=np.float64), (len(row),) * (length + 1))

    return Pair(
        tuple(rows(p, j) for j in range(draft_tokens + 1)),
        tuple(rows(q, j) for j in range(draft_tokens)),
    )


def markov(
    p: tuple[Sequence[float], Sequence[Sequence[float]]],
    q: tuple[Sequence[float], Sequence[Sequence[float]]],
    draft_tokens: int,
) -> Pair:
    """The pair of order one; each model is its first row and its rows after each token."""

    def rows(model: tuple[Sequence[float], Sequence[Sequence[float]]], length: int) -> Doubles:
        first, after = (np.array(part, dtype=np.float64) for part in model)
        return first if not length else np.broadcast_to(after, (len(first),) * (length - 1) + after.shape)

    return Pair(
        tuple(rows(p, j) for j in range(draft_tokens + 1)),
        tuple(rows(q, j) for j in range(draft_tokens)),
    )


def joint(rows: Sequence[Doubles]) -> Doubles:
    """[V] * len(rows): the joint law of a sequence with these rows."""
    law: Doubles = np.ones(())
    for row in rows:
        law = law[..., None] * row
    return law


def total_variation(one: Doubles, other: Doubles) -> float:
    """Half the summed difference of two laws."""
    return float(np.abs(one - other).sum() / 2)


def declared(rule: AcceptanceRule, pair: Pair) -> tuple[Doubles, ...]:
    """The rows that `rule` says its text follows: the target's, or those of the surrogate it declares.

    Raises:
        ValueError: a lossy rule that declares none.
    """
    if rule.preserves_target:
        return pair.p
    followed = []
    with mx.stream(mx.cpu):
        for j, p in enumerate(pair.p):
            q = Dense(float64(pair.q[j])) if j < pair.draft_tokens else None
            row = rule.surrogate(Dense(float64(p)), q)
            if row is None:
                raise ValueError(f"{rule.id} declares no surrogate")
            followed.append(np.array(row.probs))
    return tuple(followed)


def honest(pair: Pair) -> Proposed:
    """Every block drawn from the rows that are reported, and proposed whole."""
    weights = joint(pair.q).reshape(-1)
    return Proposed(weights, pair.q, np.full(len(weights), pair.draft_tokens))


def all_blocks(pair: Pair) -> npt.NDArray[np.int64]:
    """[V^K, K] every block there is."""
    return np.array(list(itertools.product(range(pair.vocab_size), repeat=pair.draft_tokens)))


def enumerate_rule(
    rule: AcceptanceRule, pair: Pair, *, survivors: int | None = None, proposed: Proposed | None = None
) -> Enumerated:
    """Enumerate every block of `pair` under `rule`.

    Args:
        rule: whose `law` and `next_token` are asked, in float64.
        pair: of K draft tokens, K >= 1.
        survivors: hand the rows over as their `survivors` largest entries, in survivor form.
        proposed: the proposal law, by default the pair's own.
    """
    count, size, blocks = pair.draft_tokens, pair.vocab_size, all_blocks(pair)
    weights, reported, lengths = proposed or honest(pair)
    with mx.stream(mx.cpu):
        block = Block(
            _rows(pair.p, blocks, survivors),
            _rows(reported, blocks, survivors),
            mx.array(blocks.astype(np.int32)),
            mx.array(lengths.astype(np.int32)),
        )
        survival = np.array(rule.law(block))
        following = [_dense(rule, block, n, size) for n in range(count + 1)]
    stops = _stops(survival) * weights[:, None]
    return Enumerated(_emitted(blocks, stops, following, declared(rule, pair)), stops.sum(axis=0), survival, weights)


def _emitted(
    blocks: npt.NDArray[np.int64], stops: Doubles, following: Sequence[Doubles], rows: Sequence[Doubles]
) -> Doubles:
    """[V] * (K+1): n tokens of the block, the next one, and what the rule's own rows say of those after it."""
    size, count = following[0].shape[-1], blocks.shape[1]
    emitted = np.zeros((size,) * (count + 1))
    for n, row in enumerate(following):
        prefixes = blocks[:, :n] @ size ** np.arange(n)[::-1]
        begun = np.zeros((size**n, size))
        np.add.at(begun, prefixes, stops[:, n, None] * row)
        begun = begun.reshape((size,) * (n + 1))
        for later in rows[n + 1 :]:
            begun = begun[..., None] * later
        emitted += begun
    return emitted


def _stops(survival: Doubles) -> Doubles:
    """[blocks, K+1]: the probability of exactly n accepted, S_n - S_(n+1)."""
    edges = [(0, 0), (1, 1)]
    padded = np.pad(survival, edges)
    padded[:, 0] = 1
    return -np.diff(padded, axis=1)


def _rows(rows: Sequence[Doubles], blocks: npt.NDArray[np.int64], survivors: int | None) -> Categorical:
    dense = np.stack([row[tuple(blocks[:, :j].T)] if j else _tile(row, len(blocks)) for j, row in enumerate(rows)], 1)
    if survivors is None:
        return Dense(float64(dense))
    ids = np.sort(np.argsort(-dense, axis=-1, kind="stable")[..., :survivors], axis=-1)
    return Survivors(mx.array(ids.astype(np.int32)), float64(np.take_along_axis(dense, ids, axis=-1)))


def _tile(row: Doubles, count: int) -> Doubles:
    return np.broadcast_to(row, (count, row.shape[-1]))


def float64(values: Doubles) -> mx.array:
    """The values as an MLX array of float64; use it inside `mx.stream(mx.cpu)`."""
    # from a numpy array of float64 MLX silently makes float32
    return mx.array(values.tolist(), dtype=mx.float64)


def _dense(rule: AcceptanceRule, block: Block, n: int, size: int) -> Doubles:
    row, _ = rule.next_token(block, mx.full((block.tokens.shape[0],), n, dtype=mx.int32))
    whole = row.aligned(Dense(mx.zeros((block.tokens.shape[0], size), dtype=mx.float64)))
    # a rule is never in a state that its own survival rules out, whatever row it would state there
    return np.asarray(np.nan_to_num(np.array(whole)))
