"""The randomised probability integral transform: independent and uniform if the text follows its rows.

u_t = F(before x_t) + v_t p(x_t) with v_t uniform (Dunn and Smyth 1996 use it for residuals), in some order of the ids.
Each order sees other faults; dependence between neighbours shows in their correlation.
"""

import math
from collections.abc import Sequence
from typing import NamedTuple

from specfw.verification.exact import Doubles

import numpy as np


class Uniformity(NamedTuple):
    """How uniform the transforms are; it is printed to be read, and decides nothing.

    Attributes:
        ks: Kolmogorov-Smirnov distance from the uniform law.
        ks_p: its p-value.
        lag1: correlation of neighbours within a text.
        lag1_z: the same in standard deviations, nan without neighbours.
    """

    ks: float
    ks_p: float
    lag1: float
    lag1_z: float


def uniformity(texts: Sequence[Doubles]) -> Uniformity:
    """Test the transforms of all texts, [T] each."""
    from scipy.stats import kstest

    fit = kstest(np.concatenate(texts), "uniform")
    # 12 (u - 1/2)(u' - 1/2) has mean 0 and variance 1 for independent uniform u
    products = np.concatenate([12 * (text[:-1] - 0.5) * (text[1:] - 0.5) for text in texts])
    if not len(products):
        return Uniformity(float(fit.statistic), float(fit.pvalue), math.nan, math.nan)
    mean = float(products.mean())
    return Uniformity(float(fit.statistic), float(fit.pvalue), mean, mean * math.sqrt(len(products)))
