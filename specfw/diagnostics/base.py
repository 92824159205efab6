"""What a diagnostic is: a lazy trace that joins the round's one evaluation, and sums kept on the host.

A diagnostic that is not enabled is never asked, so it costs nothing.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from specfw.acceptance.base import AcceptanceRule
from specfw.models.base import LanguageModel
from specfw.types import Outcome, Round

import mlx.core as mx
import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.floating[Any]]


class Check(NamedTuple):
    """A comparison of what happened with what the law says.

    Attributes:
        observed: sum of what was observed.
        expected: sum of what the law says of it.
        terms: how many.
        variance: sum V of the law's variances.
        z: M / sqrt(V), None where the law is deterministic; it decides nothing.
        log_e_value: natural logarithm of the e-value; infinite when a deterministic law was broken.
    """

    observed: float
    expected: float
    terms: int
    variance: float
    z: float | None
    log_e_value: float


class Setting(NamedTuple):
    """What a diagnostic may know of the run.

    Attributes:
        rule: the active rule.
        point_mass: whether every proposal row is a point mass.
        drafter: the model that drafts, where one does and a diagnostic may ask it.
    """

    rule: AcceptanceRule
    point_mass: bool
    drafter: LanguageModel | None = None


class Observer(ABC):
    """A diagnostic at work on one run."""

    def trace(self, graph: Round) -> tuple[mx.array, ...]:
        """Lazy arrays of this round that `observe` wants as numbers."""
        return ()

    @abstractmethod
    def observe(self, outcome: Outcome, trace: Sequence[Floats]) -> None:
        """Take in a finished round, `trace` as numpy arrays."""

    @abstractmethod
    def numbers(self) -> dict[str, Any]:
        """What goes into the record, plain values."""

    def checks(self) -> dict[str, Check]:
        """What the verdict reads."""
        return {}


@dataclass(frozen=True, kw_only=True)
class Diagnostic(ABC):
    """A component that makes an `Observer`.

    Attributes:
        enabled: whether the run asks it at all.
    """

    enabled: bool = True

    @abstractmethod
    def open(self, setting: Setting) -> Observer:
        """Start afresh for one run."""
