"""The same draft length in every round."""

from dataclasses import dataclass
from typing import final

from specfw.drafting.controllers.base import Controller, DraftLength
from specfw.registry import register, require
from specfw.types import Ints, Outcome

import numpy as np

MOST = 64


@final
@register("controller")
@dataclass(frozen=True, kw_only=True)
class Constant(Controller):
    """Draft `num_draft_tokens` tokens, fewer only where less than that may still be emitted.

    Attributes:
        num_draft_tokens: K, 0 decodes without drafting by the rule's own draw.
    """

    num_draft_tokens: int = 4

    def __post_init__(self) -> None:
        require("num_draft_tokens", 0 <= self.num_draft_tokens <= MOST, f"in [0, {MOST}]", self.num_draft_tokens)

    @property
    def longest(self) -> int:
        return self.num_draft_tokens

    def open(self, rows: int) -> DraftLength:
        return _Constant(np.full(rows, self.num_draft_tokens))


@final
class _Constant(DraftLength):
    def __init__(self, counts: Ints) -> None:
        self._counts = counts

    def next(self) -> Ints:
        return self._counts

    def observe(self, outcome: Outcome) -> None:
        pass
