"""95 % intervals of an acceptance: over prompts or samples where the record compared some, else Wilson's."""

import math
from collections.abc import Mapping
from typing import Any

from specfw.study.gathered import Interval
from specfw.study.values import at, number, require

NORMAL = 1.959963984540054
"""The 97.5 % point of the normal distribution."""


def of_record(numbers: Mapping[str, Any], name: str) -> Interval | None:
    """What the diagnostic `population` says of `name`: over all prompts, or over the samples of the only one.

    Raises:
        ValueError: it is none of ours.
    """
    over_prompts = _interval(at(numbers, "diagnostics.population"), name, "prompts")
    prompts = at(numbers, "diagnostics.population.prompts") or []
    require("diagnostics.population.prompts", isinstance(prompts, list), "a list", prompts)
    if over_prompts is not None or len(prompts) != 1:
        return over_prompts
    return _interval(prompts[0], name, "samples")


def wilson(accepted: int, tested: int) -> Interval | None:
    """Wilson's score interval (Wilson 1927), which takes tokens as independent; None of nothing."""
    if not tested:
        return None
    rate, weight = accepted / tested, NORMAL**2 / tested
    centre = (rate + weight / 2) / (1 + weight)
    half = math.sqrt(rate * (1 - rate) * weight + weight**2 / 4) / (1 + weight)
    return Interval(max(0.0, centre - half), min(1.0, centre + half), "wilson")


def _interval(tree: Any, name: str, kind: str) -> Interval | None:
    low, high = (number(tree, f"intervals.{name}.{end}") for end in ("low", "high"))
    return None if low is None or high is None else Interval(low, high, kind)
