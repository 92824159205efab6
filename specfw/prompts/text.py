"""Text on the command line."""

from dataclasses import dataclass
from typing import final

from specfw.prompts.base import Listed, Prompts
from specfw.registry import register


@final
@register("prompts")
@dataclass(frozen=True, kw_only=True)
class Text(Prompts):
    """One prompt.

    Attributes:
        text: it; ids separated by spaces for a toy model.
    """

    text: str

    def all(self) -> Listed:
        return [("prompts.text", self.text)]
