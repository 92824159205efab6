"""Three rules in plain numpy, from logits to the accepted length and the next token; what a direct port costs.

Written from the papers and not from our rules. Draws follow the same scheme as ours (two uniforms, one for a block of
512 ids and one for the id in it; exponential noise), so that equal uniforms must give equal decisions.
"""

from collections.abc import Callable
from typing import NamedTuple, Protocol, TypeAlias

from specfw.benchmark.deciding.arrays import Arrays, Floats

import numpy as np
import numpy.typing as npt

BLOCK = 512


class Decision(NamedTuple):
    """n accepted draft tokens, and the token after them."""

    accepted: int
    token: int


class Draws(Protocol):
    """Where a rule's uniforms and noise come from."""

    def accept(self) -> float:
        """The uniform that decides how many draft tokens stand."""
        ...

    def residual(self) -> tuple[float, float]:
        """The uniforms that draw the next token."""
        ...

    def target(self, rows: int, vocab_size: int) -> Floats:
        """[rows, V] exponential noise of the target's own draws."""
        ...


Rule: TypeAlias = Callable[[Arrays, Draws], Decision]


class Random:
    """Draws of numpy's own generator."""

    def __init__(self, seed: int) -> None:
        self._rng = np.random.default_rng(seed)

    def accept(self) -> float:
        return self._rng.random()

    def residual(self) -> tuple[float, float]:
        block, inside = self._rng.random(2)
        return float(block), float(inside)

    def target(self, rows: int, vocab_size: int) -> Floats:
        uniform = np.maximum(self._rng.random((rows, vocab_size), dtype=np.float32), np.float32(2.0**-33))
        return -np.log1p(-uniform)


def stochastic(arrays: Arrays, draws: Draws) -> Decision:
    """Modified rejection sampling: n counts u < prod r_j, the next token from (p - q)+ or the last row."""
    p, q = softmax(arrays.target), softmax(arrays.draft)
    ratios = np.minimum(_at(p[:-1], arrays.tokens) / _at(q, arrays.tokens), 1)
    accepted = int((draws.accept() < np.cumprod(ratios)).sum())
    residual = p[accepted] if accepted == len(q) else np.maximum(p[accepted] - q[accepted], 0)
    return Decision(accepted, draw(residual, draws.residual()))


def block(arrays: Arrays, draws: Draws) -> Decision:
    """Block verification: h_i = Z_i / (Z_i + 1 - P_i), S_i = 1 - prod_{j>=i} (1 - h_j), Z_i = sum (P_i p - q)+."""
    p, q = softmax(arrays.target), softmax(arrays.draft)
    weights = [np.float32(1)]
    for ratio in _at(p[:-1], arrays.tokens) / _at(q, arrays.tokens):
        weights.append(np.minimum(weights[-1] * ratio, 1))
    stops = [weights[-1]]
    for place in reversed(range(1, len(q))):
        rest = np.maximum(weights[place] * p[place] - q[place], 0).sum()
        room = rest + 1 - weights[place]
        stops.append(rest / room if room > 0 else np.float32(1))
    survival = 1 - np.cumprod(1 - np.array(stops))  # from the last place to the first
    accepted = int((draws.accept() < survival).sum())
    if accepted == len(q):
        return Decision(accepted, draw(p[accepted], draws.residual()))
    residual = np.maximum(weights[accepted] * p[accepted] - q[accepted], 0)
    return Decision(accepted, draw(residual, draws.residual()))


def sampler_match(arrays: Arrays, draws: Draws) -> Decision:
    """Accept while the target's own draw, argmax(p / E), is the draft token."""
    p = softmax(arrays.target)
    drawn = np.argmax(p / draws.target(*p.shape), axis=-1)
    accepted = int(np.cumprod(drawn[:-1] == arrays.tokens).sum())
    return Decision(accepted, int(drawn[accepted]))


RULES: dict[str, Rule] = {"stochastic": stochastic, "block": block, "sampler_match": sampler_match}


def softmax(logits: Floats) -> Floats:
    """Rows of probabilities; numpy sums pairwise, so float32 is enough."""
    weights = np.exp(logits - logits.max(axis=-1, keepdims=True))
    return np.asarray(weights / weights.sum(axis=-1, keepdims=True))


def draw(weights: Floats, uniforms: tuple[float, float]) -> int:
    """The block whose cumulative weight passes the first uniform, then the id in it that passes the second."""
    blocks = np.pad(weights, (0, -len(weights) % BLOCK)).reshape(-1, BLOCK)
    chosen = _first_above(blocks.sum(axis=-1), uniforms[0])
    return chosen * BLOCK + _first_above(blocks[chosen], uniforms[1])


def _first_above(weights: Floats, uniform: float) -> int:
    cumulative = np.cumsum(weights)
    return int(np.searchsorted(cumulative, np.float32(uniform) * cumulative[-1], side="right"))


def _at(rows: Floats, tokens: npt.NDArray[np.int32]) -> Floats:
    return np.asarray(rows[np.arange(len(tokens)), tokens])
