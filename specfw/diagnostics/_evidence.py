"""Sums of observed minus expected, and what they prove: an e-value that holds at any length of run.

For increments X <= 1 with conditional mean 0 and variances summing to V, exp(lambda M - (e^lambda - 1 - lambda) V)
is a supermartingale for every lambda > 0 (Freedman 1975), so its mean over a grid of lambdas and both signs
exceeds 10^6 in at most one right run in a million (Ville).
"""

import math
from typing import Any

from specfw.diagnostics.base import Check, Floats

import numpy as np

LAMBDAS = np.array([0.05, 0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 6.4])
E_VALUE_LIMIT = 1e6


def log_mean_exp(logs: Floats) -> float:
    """Logarithm of the mean of exp(logs)."""
    top = float(np.max(logs))
    return top if math.isinf(top) else top + math.log(float(np.mean(np.exp(logs - top))))


def log_e_value(excess: float, variance: float) -> float:
    """The natural logarithm of the e-value of M = `excess` under summed variance V = `variance`."""
    cost = (np.expm1(LAMBDAS) - LAMBDAS) * variance
    return log_mean_exp(np.concatenate([LAMBDAS * excess - cost, -LAMBDAS * excess - cost]))


class Evidence:
    """Running sums of one check."""

    def __init__(self) -> None:
        self._observed = self._expected = self._variance = 0.0
        self._count = 0
        self._broken = False

    def add(self, observed: Floats, expected: Floats, variance: Floats, counted: Any) -> None:
        """Take in the terms where `counted` holds; all arrays of one shape."""
        self._observed += float(np.sum(observed, where=counted, dtype=np.float64))
        self._expected += float(np.sum(expected, where=counted, dtype=np.float64))
        self._variance += float(np.sum(np.maximum(variance, 0), where=counted, dtype=np.float64))
        self._count += int(np.sum(counted))

    def require(self, held: Any, counted: Any) -> None:
        """Note that something certain must hold where `counted`; one failure is proof."""
        self._broken |= bool(np.any(counted & ~np.asarray(held)))

    def equal(self, observed: Floats, expected: Floats, counted: Any) -> None:
        """Take in terms of a deterministic law: equality, no variance."""
        self.add(observed, expected, np.zeros_like(expected), counted)
        self.require(observed == expected, counted)

    def check(self) -> Check:
        """The sums so far as a check; z is None where nothing could vary."""
        excess = self._observed - self._expected
        deterministic = self._variance == 0
        z = None if deterministic else excess / math.sqrt(self._variance)
        log_e = math.inf if self._broken else 0.0 if deterministic else log_e_value(excess, self._variance)
        return Check(self._observed, self._expected, self._count, self._variance, z, log_e)
