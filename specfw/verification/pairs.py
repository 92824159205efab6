"""Small pairs to enumerate: random rows, rows with zeros, one-hot rows, rows with ties, truncated rows."""

from collections.abc import Callable, Iterator

from specfw.verification.exact import Doubles, Pair

import numpy as np

Draw = Callable[[np.random.Generator, tuple[int, ...]], Doubles]


def dense_rows(rng: np.random.Generator, shape: tuple[int, ...]) -> Doubles:
    """Rows from a Dirichlet law, flat or peaked."""
    return rng.dirichlet(np.full(shape[-1], rng.choice([0.3, 1.0, 3.0])), size=shape[:-1])


def rows_with_zeros(rng: np.random.Generator, shape: tuple[int, ...]) -> Doubles:
    """Rows of which about a third of the entries is 0, one id of each level never."""
    rows = np.where(rng.random(shape) < 0.35, 0, dense_rows(rng, shape))  # noqa: PLR2004
    rows[..., rng.integers(shape[-1])] += 1e-3
    return np.asarray(rows / rows.sum(-1, keepdims=True))


def one_hot_rows(rng: np.random.Generator, shape: tuple[int, ...]) -> Doubles:
    """Rows of a greedy model."""
    return np.asarray(np.eye(shape[-1])[rng.integers(shape[-1], size=shape[:-1])])


def rows_with_ties(rng: np.random.Generator, shape: tuple[int, ...]) -> Doubles:
    """Rows of few different values, so that p = q at many ids."""
    rows = rng.integers(1, 3, size=shape).astype(np.float64)
    return np.asarray(rows / rows.sum(-1, keepdims=True))


def truncated_rows(rng: np.random.Generator, shape: tuple[int, ...]) -> Doubles:
    """Rows of two ids, as a truncation leaves them."""
    kept = rng.permuted(np.broadcast_to(np.arange(shape[-1]), shape), axis=-1) < 2  # noqa: PLR2004
    rows = np.where(kept, dense_rows(rng, shape) + 1e-3, 0)
    return np.asarray(rows / rows.sum(-1, keepdims=True))


SAMPLING: tuple[Draw, ...] = (dense_rows, rows_with_zeros, one_hot_rows, rows_with_ties, truncated_rows)


def random_pair(seed: int, draw: Draw = dense_rows, target_draw: Draw | None = None) -> Pair:
    """A context-dependent pair of 2 to 4 ids and 1 to 3 draft tokens.

    Args:
        seed: of everything.
        draw: what makes rows.
        target_draw: what makes the target's, by default the same.
    """
    rng = np.random.default_rng(seed)
    size, count = int(rng.integers(2, 5)), int(rng.integers(1, 4))
    shapes = [(size,) * (j + 1) for j in range(count + 1)]
    p = tuple((target_draw or draw)(rng, shape) for shape in shapes)
    return Pair(p, tuple(draw(rng, shape) for shape in shapes[:-1]))


def pairs(count: int, *, greedy_target: bool = False) -> Iterator[Pair]:
    """`count` pairs of every kind in turn, the same at every call; one-hot targets for greedy rules."""
    for seed in range(count):
        yield random_pair(seed, SAMPLING[seed % len(SAMPLING)], one_hot_rows if greedy_target else None)
