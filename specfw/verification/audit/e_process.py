"""Evidence against a claim that holds at any length of text.

For every alternative k with rows a_k that depend on the past alone, M_k = prod_t a_k(x_t) / p(x_t) is a martingale
that starts at 1 if the x_t follow p, and so is the mean of all M_k: it ever reaches 1 / alpha with probability at
most alpha (Ville 1939). The alternative with the largest product names the fault.

Claimed row and alternatives are mixed with EDGE of one row r (see rows.py), so that a token at a filter's edge costs
a bounded factor and every ratio stays one of probabilities.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from specfw.verification.audit.rows import Scores
from specfw.verification.exact import Doubles

import numpy as np

EDGE = 1e-6
FLOOR = EDGE**2
"""What stands for probability 0: the text has failed, and its products go on to say which alternative explains it."""

BLOCKS = (2, 3, 4, 5, 6, 7, 8)
CUT_SHORT = (1.25, 1.5)
"""Mean lengths of verified blocks where most draft tokens are rejected."""


class Evidence(NamedTuple):
    """What the texts together prove.

    Attributes:
        log_mean: [N] natural logarithm of the mean of the products, after each token.
        logs: by name, logarithm of each product at `at`.
        at: place of the largest mean, -1 where there is no token.
        crossed: place of the first token at which the mean reached 1 / alpha, None if it never did.
    """

    log_mean: Doubles
    logs: Mapping[str, float]
    at: int
    crossed: int | None

    @property
    def log_e_value(self) -> float:
        """The largest mean's logarithm; 0 before the first token."""
        return max(0.0, float(self.log_mean[self.at])) if len(self.log_mean) else 0.0

    @property
    def strongest(self) -> str | None:
        """The alternative with the largest product there."""
        return max(self.logs, key=self.logs.__getitem__) if self.logs else None


def paths(scores: Scores, xtc: float) -> dict[str, Doubles]:
    """[T] the logarithm of each alternative's product over one text, after each of its tokens.

    Args:
        scores: of the text.
        xtc: probability of XTC's coin, 0 where there is none.
    """
    log_p = _mixed(scores.p, scores.edge)
    found = {name: np.cumsum(_mixed(row, scores.edge) - log_p) for name, row in scores.others.items()}
    if 0 < xtc < 1:
        branches = _mixed(scores.branches, scores.edge)
        coins = {length: renewed(branches, xtc, 1 / length) for length in CUT_SHORT}
        coins |= {length: shared_coin(branches, xtc, length) for length in BLOCKS}
        found |= {f"xtc_coin_of_{length}": path - np.cumsum(log_p) for length, path in coins.items()}
    return found


def shared_coin(branches: Doubles, xtc: float, length: int) -> Doubles:
    """[T] log-probability of a text whose XTC coin holds for several tokens, after each of them.

    Half of it on blocks of `length` with the first boundary anywhere, half on blocks that end after every token with
    probability 1 / length: verified blocks are not of one length.

    Args:
        branches: [2, T] log-probability of each token with XTC and without.
        xtc: probability of the coin.
        length: tokens of a block, at least 2.
    """
    aligned = np.logaddexp.reduce([_blocks(branches, xtc, length, offset) for offset in range(length)], axis=0)
    anywhere = renewed(branches, xtc, 1 / length)
    return np.asarray(np.logaddexp(aligned - math.log(length), anywhere) - math.log(2))


def combine(texts: Iterable[Mapping[str, Doubles]], lengths: Sequence[int], alpha: float) -> Evidence:
    """The evidence of texts one after the other.

    Args:
        texts: what `paths` found of each.
        lengths: tokens of each; an alternative that a text does not have leaves its product as it was.
        alpha: chance that a right text is ever rejected.
    """
    found = list(texts)
    names = list(dict.fromkeys(name for text in found for name in text))
    total = sum(lengths)
    if not names or not total:
        return Evidence(np.zeros(0), {}, -1, None)
    whole = np.array([_joined([text.get(name) for text in found], lengths) for name in names])
    log_mean = np.logaddexp.reduce(whole, axis=0) - math.log(len(names))
    at = int(np.argmax(log_mean))
    reached = log_mean >= -math.log(alpha)
    crossed = int(np.argmax(reached)) if reached.any() else None
    return Evidence(log_mean, dict(zip(names, whole[:, at].tolist(), strict=True)), at, crossed)


def _mixed(row: Doubles, edge: Doubles) -> Doubles:
    return np.asarray(np.log(np.maximum((1 - EDGE) * row + EDGE * edge, FLOOR)))


def _blocks(branches: Doubles, xtc: float, length: int, offset: int) -> Doubles:
    """[T] the same for blocks of exactly `length`, the first of which is `offset` tokens short."""
    place = np.arange(branches.shape[1]) + offset
    cumulative = np.cumsum(branches, axis=1)
    begins = np.maximum(place // length * length - offset, 0)
    before = np.where(begins > 0, cumulative[:, begins - 1], 0)
    within = _coin(cumulative - before, xtc)
    ends = place % length == length - 1
    complete = np.cumsum(np.where(ends, within, 0)) - np.where(ends, within, 0)
    return np.asarray(complete + within)


def renewed(branches: Doubles, xtc: float, renewal: float) -> Doubles:
    """[T] the same for a coin tossed anew before each token with probability `renewal`: a hidden Markov chain."""
    likelihood = np.exp(branches - branches.max(axis=0))
    touched, predicted = xtc, np.empty(branches.shape[1])
    for place, (with_xtc, without) in enumerate(likelihood.T.tolist()):
        predicted[place] = touched * with_xtc + (1 - touched) * without
        touched = (1 - renewal) * touched * with_xtc / predicted[place] + renewal * xtc
    return np.asarray(np.cumsum(np.log(predicted) + branches.max(axis=0)))


def _coin(branches: Doubles, xtc: float) -> Doubles:
    return np.asarray(np.logaddexp(math.log(xtc) + branches[0], math.log1p(-xtc) + branches[1]))


def _joined(parts: Sequence[Doubles | None], lengths: Sequence[int]) -> Doubles:
    """[N] paths one after the other, each from where the last one ended."""
    joined, level = [], 0.0
    for part, length in zip(parts, lengths, strict=True):
        path = np.zeros(length) if part is None else part
        joined.append(level + path)
        level += float(path[-1]) if length else 0.0
    return np.concatenate(joined)
