"""An audit's outcome: every number, the verdict, the line."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

NONE = "none"


@dataclass(frozen=True, kw_only=True)
class Audited:
    """A finished audit.

    Attributes:
        numbers: everything measured, as in audit.json.
        folder: where that stands, None when it was not written.
    """

    numbers: Mapping[str, Any] = field(repr=False)
    folder: Path | None = None

    @property
    def verdict(self) -> str:
        """`passed`, `failed`, or `unchecked` when there was no token."""
        return str(self.numbers["verdict"])

    @property
    def passed(self) -> bool:
        """Whether nothing speaks against the claim."""
        return self.verdict != "failed"

    @property
    def line(self) -> str:
        """One line with the numbers that matter."""
        return str(self.numbers["line"])

    @classmethod
    def from_numbers(cls, numbers: Mapping[str, Any]) -> Self:
        """Add the verdict and the line: a text fails as soon as a fault is named."""
        verdict = "failed" if numbers["named"] != NONE else "passed" if numbers["tokens"] else "unchecked"
        judged = {"verdict": verdict, **numbers}
        return cls(numbers={**judged, "line": _line(judged)})


def _line(numbers: Mapping[str, Any]) -> str:
    """The smallest p-value, Bonferroni-corrected for all orders, and the largest z; nan where nothing was sampled."""
    orders = list(numbers["uniformity"].values())
    ks_p = min(1.0, len(orders) * min((one["ks_p"] for one in orders), default=math.nan))
    lag1_z = max((one["lag1_z"] for one in orders), key=abs, default=math.nan)
    return (
        f"[Audit] verdict={numbers['verdict']} tokens={numbers['tokens']} log10_e={numbers['log10_e_value']:.2f} "
        f"named={numbers['named']} edge_tokens={numbers['edge_tokens']} ks_p={ks_p:.4f} lag1_z={lag1_z:.2f}"
    )
