"""The same draft length in every round."""

from dataclasses import dataclass
from typing import final

from specfw.drafting.controllers.base import Controller, DraftLength
from specfw.registry import register, require
from specfw.types import Outcome


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
        require("num_draft_tokens", 0 <= self.num_draft_tokens <= 64, "in [0, 64]", self.num_draft_tokens)  # noqa: PLR2004

    def open(self) -> DraftLength:
        return _Constant(self.num_draft_tokens)


@final
class _Constant(DraftLength):
    def __init__(self, count: int) -> None:
        self._count = count

    def next(self) -> int:
        return self._count

    def observe(self, outcome: Outcome) -> None:
        pass
