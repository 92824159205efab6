"""How one factor of a rule is replaced, in its law and in a live run."""

import dataclasses
from collections.abc import Callable
from typing import Any

from specfw.acceptance.base import AcceptanceRule
from specfw.randomness import Noise
from specfw.types import Block, Verdict


def replaced(rule: AcceptanceRule, **methods: Callable[..., Any]) -> AcceptanceRule:
    """The rule with other methods; everything that is derived from them follows."""
    fields = {field.name: getattr(rule, field.name) for field in dataclasses.fields(rule)}  # type: ignore[arg-type]
    altered: AcceptanceRule = type(type(rule).__name__, (type(rule),), methods)(**fields)
    return altered


def unnoticed(right: AcceptanceRule, wrong: AcceptanceRule) -> AcceptanceRule:
    """A rule that decides like `wrong` and reports the law of `right`: how a fault runs in production."""

    def decide(self: AcceptanceRule, block: Block, noise: Noise) -> Verdict:
        return wrong.decide(block, noise)._replace(survival=right.law(block))

    return replaced(right, decide=decide, needs=wrong.needs)  # type: ignore[arg-type]
