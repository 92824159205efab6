"""How much of a drafter's own row lies on the tokens it may draft: Z of q' = q / Z under drafting=intersection.

What is left out is never drafted, so no rule accepts more than the target's own probability of what is kept; a small Z
says that the two vocabularies are the reason of a low acceptance.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, final

from specfw.counting import rate
from specfw.diagnostics.base import Diagnostic, Floats, Observer, Setting
from specfw.models.base import LanguageModel
from specfw.registry import register
from specfw.types import Outcome, Round

import mlx.core as mx
import numpy as np


@final
@register("diagnostic")
@dataclass(frozen=True, kw_only=True)
class KeptMass(Diagnostic):
    """Mean and least Z at the first draft token of each round, under the drafter's raw logits."""

    def open(self, setting: Setting) -> Observer:
        return _Kept(setting.drafter)


@final
class _Kept(Observer):
    def __init__(self, drafter: LanguageModel | None) -> None:
        self._drafter = drafter
        self._sum, self._rounds, self._least = 0.0, 0, np.inf

    def trace(self, graph: Round) -> tuple[mx.array, ...]:
        if self._drafter is None or not graph.block.tokens.shape[1]:
            return ()
        kept = self._drafter.kept_mass()
        return () if kept is None else (kept,)

    def observe(self, outcome: Outcome, trace: Sequence[Floats]) -> None:
        for kept in trace:
            drafted = kept[outcome.lengths > 0]
            self._sum += float(drafted.sum(dtype=np.float64))
            self._rounds += len(drafted)
            self._least = min(self._least, *drafted.tolist())

    def numbers(self) -> dict[str, Any]:
        least = self._least if self._rounds else np.nan
        return {"mean": rate(self._sum, self._rounds), "least": least, "rounds": self._rounds}
