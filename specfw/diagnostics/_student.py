"""Student's t for a whole number of degrees of freedom, which has a finite series: no library is loaded for it."""

import math

import numpy as np

_HALVINGS = 60


def quantile(degrees: int, mass: float) -> float:
    """The t for which |T| <= t has probability `mass`, by bisection of its angle, t = sqrt(degrees) tan(angle)."""
    low, high = 0.0, math.pi / 2
    for _ in range(_HALVINGS):
        angle = (low + high) / 2
        low, high = (angle, high) if _within(angle, degrees) < mass else (low, angle)
    return math.sqrt(degrees) * math.tan(low)


def _within(angle: float, degrees: int) -> float:
    """P(|T| <= sqrt(degrees) tan(angle)); Abramowitz and Stegun 26.7.3 (odd) and 26.7.4 (even)."""
    odd = degrees % 2
    steps = np.arange(1, degrees // 2)
    ratios = (2 * steps - 1 + odd) / (2 * steps + odd) * math.cos(angle) ** 2
    series = 1 + float(np.cumprod(ratios).sum())
    if not odd:
        return math.sin(angle) * series
    product = math.sin(angle) * math.cos(angle) * series if degrees > 1 else 0.0
    return 2 / math.pi * (angle + product)
