"""The statistical checks of a sample: each says what law a set of its tokens must follow.

Where the target's row depends on the last token alone, tokens are counted by id and by the token before; elsewhere
their transforms are counted in equal bins. A token at a later place of a round follows its row only under rules that
stop at a rejection: under one that looks further, reaching that place says something about the token.
"""

from collections.abc import Callable, Iterator
from typing import NamedTuple

from specfw.diagnostics.base import Floats
from specfw.distribution import Dense
from specfw.models.base import LanguageModel
from specfw.sampling.chain import SamplerChain
from specfw.verification.sample import Sample
from specfw.verification.statistics import Fit, chi_square, combined, g_test

import mlx.core as mx
import numpy as np
import numpy.typing as npt

BINS, PAIR_BINS = 20, 8
LARGEST_VOCABULARY = 8
PARTS, TOKENS_OF_A_PART = 2000, 500

Mask = npt.NDArray[np.bool_]
Tester = Callable[[npt.ArrayLike, npt.ArrayLike], Fit]


class Tested(NamedTuple):
    """One check of a sample.

    Attributes:
        name: what was counted.
        p_value: chance of something at least as far off under the law.
        statistic: what was computed, chi-square, G, or a z.
        degrees: of freedom, 0 where it has none.
        observations: how many.
    """

    name: str
    p_value: float
    statistic: float
    degrees: int
    observations: int


def degrees(rows: Floats | None) -> tuple[int, int]:
    """Of freedom of the checks of single tokens and of pairs, where nothing is pooled."""
    if rows is None:
        return BINS - 1, PAIR_BINS**2 - 1
    possible = rows > 0
    pairs = possible[:, :, None] & possible[None] if len(rows) <= LARGEST_VOCABULARY else np.ones(PAIR_BINS**2)
    starts = len(rows) if len(rows) <= LARGEST_VOCABULARY else 1
    return int(possible.sum()) - len(rows), int(pairs.sum()) - starts


def rows_by_last_token(target: LanguageModel, chain: SamplerChain) -> Floats:
    """[V, V] the target's row after each token; for models that look at no other."""
    tokens = mx.arange(target.vocab_size, dtype=mx.int32)[:, None]
    rows = chain.distribution(target.forward(tokens, target.new_cache(target.vocab_size)), None, None)
    dense = np.array(rows.aligned(Dense(mx.zeros((target.vocab_size, 1, target.vocab_size)))), dtype=np.float64)[:, 0]
    return np.asarray(dense / dense.sum(axis=-1, keepdims=True))


def examined(
    sample: Sample, rows: Floats | None, stops_at_rejection: bool, *, overlapping: bool = False
) -> list[Tested]:
    """Every check that this sample allows.

    Args:
        sample: what was drawn.
        rows: [V, V] rows by the last token, None where more decides.
        stops_at_rejection: of the rule that ran.
        overlapping: count every two neighbours as a pair, as if they were independent; a fault.
    """
    first = sample.place == 0
    counted = {"first tokens of rounds": first}
    if stops_at_rejection:
        deepest = int(sample.place.max())
        counted |= {f"place {place} of rounds": sample.place == place for place in range(1, deepest + 1)}
    counted["all tokens"] = np.ones_like(first)
    found = [
        _named(f"{name}, {words}", _single(sample, rows, mask, tester))
        for name, mask in counted.items()
        for words, tester in (("chi-square", chi_square), ("G", g_test))
    ]
    starts = _overlapping(first) if overlapping else _disjoint(first)
    found += [
        _named(f"pairs, {words}", _pairs(sample, rows, starts, tester))
        for words, tester in (("chi-square", chi_square), ("G", g_test))
    ]
    return [*found, *_false_alarms(sample, rows, starts), _lag_one(sample)]


def _named(name: str, fit: Fit) -> Tested:
    return Tested(name, fit.p_value, fit.statistic, fit.degrees, fit.observations)


def _single(sample: Sample, rows: Floats | None, mask: Mask, tester: Tester) -> Fit:
    if rows is None:
        bins = np.histogram(sample.transform[mask], bins=BINS, range=(0, 1))[0]
        return tester(bins, np.full(BINS, 1 / BINS))
    size = len(rows)
    table = np.bincount(sample.previous[mask] * size + sample.tokens[mask], minlength=size**2).reshape(size, size)
    return combined([tester(counts, row) for counts, row in zip(table, rows, strict=True) if counts.any()])


def _pairs(sample: Sample, rows: Floats | None, starts: Mask, tester: Tester) -> Fit:
    """Two tokens from each start on, the second one wherever it came from."""
    row, column = np.nonzero(starts[:, :-1])
    if rows is None or len(rows) > LARGEST_VOCABULARY:
        one, two = sample.transform[row, column], sample.transform[row, column + 1]
        bins = np.histogram2d(one, two, bins=PAIR_BINS, range=[(0, 1), (0, 1)])[0]
        return tester(bins, np.full(PAIR_BINS**2, PAIR_BINS**-2))
    size, law = len(rows), rows[:, :, None] * rows[None]
    start, tokens = sample.previous[row, column] * size**2, sample.tokens
    cells = np.bincount(start + tokens[row, column] * size + tokens[row, column + 1], minlength=size**3)
    cells = cells.reshape(size, -1)
    return combined([tester(counts, law[id_].ravel()) for id_, counts in enumerate(cells) if counts.any()])


def _disjoint(first: Mask) -> Mask:
    """Starts of rounds, each at least two tokens after the start chosen before it."""
    chosen = np.zeros_like(first)
    latest = np.full(len(first), -2)
    for column in range(first.shape[1]):
        chosen[:, column] = first[:, column] & (latest <= column - 2)
        latest = np.where(chosen[:, column], column, latest)
    return chosen


def _overlapping(first: Mask) -> Mask:
    return np.ones_like(first)


def _false_alarms(sample: Sample, rows: Floats | None, starts: Mask) -> Iterator[Tested]:
    """Whether the pairs' p-values over parts of the sample are uniform, as those of a right test are."""
    from scipy.stats import kstest

    parts = min(PARTS, sample.size // TOKENS_OF_A_PART, len(sample.tokens))
    if parts < 20:  # noqa: PLR2004
        return
    values = []
    for part in np.array_split(np.arange(len(sample.tokens)), parts):
        some = sample._replace(
            tokens=sample.tokens[part], previous=sample.previous[part], transform=sample.transform[part]
        )
        values.append(_pairs(some, rows, starts[part], chi_square).p_value)
    result = kstest(values, "uniform")
    yield Tested("p-values of pairs, Kolmogorov-Smirnov", float(result.pvalue), float(result.statistic), 0, parts)


def _lag_one(sample: Sample) -> Tested:
    """Correlation of neighbouring transforms, which are independent in law."""
    from scipy.stats import norm

    one, two = sample.transform[:, :-1] - 0.5, sample.transform[:, 1:] - 0.5
    z = float((one * two).sum() / np.sqrt(one.size / 144))
    return Tested("neighbours, lag-1 correlation", float(2 * norm.sf(abs(z))), z, 0, one.size)
