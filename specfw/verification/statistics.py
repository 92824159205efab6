"""Goodness of fit of emitted tokens: Pearson's chi-square and the likelihood ratio G, rare cells pooled."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

LEAST_EXPECTED = 5.0
Statistic = Callable[[npt.NDArray[np.float64], npt.NDArray[np.float64]], float]


class Fit(NamedTuple):
    """A goodness-of-fit test.

    Attributes:
        statistic: Pearson's chi-square or G; infinite when something impossible was seen.
        degrees: of freedom.
        p_value: chance of at least this statistic under the law.
        observations: how many.
    """

    statistic: float
    degrees: int
    p_value: float
    observations: int


def chi_square(observed: npt.ArrayLike, probs: npt.ArrayLike) -> Fit:
    """Test counts against a law by sum (O - E)^2 / E; cells expecting fewer than 5 are pooled, the smallest first.

    Args:
        observed: [C] counts.
        probs: [C] probabilities; a count where the probability is 0 rejects at once.
    """
    return _fit(observed, probs, lambda seen, expected: float(((seen - expected) ** 2 / expected).sum()))


def g_test(observed: npt.ArrayLike, probs: npt.ArrayLike) -> Fit:
    """The same by G = 2 sum O log(O / E), the logarithm of the likelihood ratio."""

    def statistic(seen: npt.NDArray[np.float64], expected: npt.NDArray[np.float64]) -> float:
        some = seen > 0
        return float(2 * (seen[some] * np.log(seen[some] / expected[some])).sum())

    return _fit(observed, probs, statistic)


def combined(fits: Sequence[Fit]) -> Fit:
    """Independent tests as one: statistics and degrees of freedom add up."""
    from scipy.stats import chi2

    statistic, degrees = sum(fit.statistic for fit in fits), sum(fit.degrees for fit in fits)
    p_value = float(chi2.sf(statistic, degrees)) if degrees else 1.0
    return Fit(statistic, degrees, p_value, sum(fit.observations for fit in fits))


def disjoint_pairs(tokens: npt.NDArray[np.int64], vocab_size: int) -> npt.NDArray[np.int64]:
    """[V, V] counts of (first, second) over pairs that share no token, along the rows of `tokens` [B, T]."""
    even = tokens[:, : tokens.shape[1] // 2 * 2].reshape(-1, 2)
    return np.bincount(even[:, 0] * vocab_size + even[:, 1], minlength=vocab_size**2).reshape(vocab_size, vocab_size)


def noncentrality(degrees: int, alpha: float, power: float) -> float:
    """The lambda at which a chi-square test of size `alpha` has that power; n draws have n sum (o - p)^2 / p."""
    from scipy.optimize import brentq
    from scipy.stats import chi2, ncx2

    limit = chi2.isf(alpha, degrees)
    return float(brentq(lambda shift: ncx2.sf(limit, degrees, shift) - power, 1e-6, 1e5))


def _fit(observed: npt.ArrayLike, probs: npt.ArrayLike, statistic_of: Statistic) -> Fit:
    from scipy.stats import chi2

    counts, law = np.asarray(observed, dtype=np.float64).ravel(), np.asarray(probs, dtype=np.float64).ravel()
    total = counts.sum()
    if (counts[law == 0] > 0).any():
        return Fit(np.inf, 1, 0.0, int(total))
    possible = law > 0
    seen, expected = _pooled(counts[possible], law[possible] / law.sum() * total)
    if len(seen) < 2:  # noqa: PLR2004
        return Fit(0.0, 0, 1.0, int(total))
    statistic = statistic_of(seen, expected)
    return Fit(statistic, len(seen) - 1, float(chi2.sf(statistic, len(seen) - 1)), int(total))


def _pooled(seen: npt.NDArray[np.float64], expected: npt.NDArray[np.float64]) -> tuple[npt.NDArray[np.float64], ...]:
    order = np.argsort(expected)
    seen, expected = seen[order], expected[order]
    rare = int((expected < LEAST_EXPECTED).sum())
    if rare:
        cut = max(rare, int(np.searchsorted(np.cumsum(expected), LEAST_EXPECTED)) + 1)
        seen = np.concatenate([[seen[:cut].sum()], seen[cut:]])
        expected = np.concatenate([[expected[:cut].sum()], expected[cut:]])
    return seen, expected
