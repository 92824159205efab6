"""Texts on the command line."""

from dataclasses import dataclass
from typing import final

from specfw.prompts.base import Listed, Prompts
from specfw.registry import register


@final
@register("prompts")
@dataclass(frozen=True, kw_only=True)
class Texts(Prompts):
    """Several prompts.

    Attributes:
        texts: they.
    """

    texts: tuple[str, ...]

    def all(self) -> Listed:
        return [(f"prompts.texts[{place}]", text) for place, text in enumerate(self.texts)]
