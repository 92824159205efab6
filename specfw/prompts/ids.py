"""Token ids on the command line."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, final

from specfw.prompts.base import Listed, Prompts
from specfw.registry import register, require


@final
@register("prompts")
@dataclass(frozen=True, kw_only=True)
class Ids(Prompts):
    """Prompts of token ids.

    Attributes:
        ids: one prompt, or a list of prompts.
    """

    ids: tuple[Any, ...]

    def __post_init__(self) -> None:
        super().__post_init__()
        for token in (token for one in self._lists() for token in one):
            whole = isinstance(token, int) and not isinstance(token, bool)
            require("ids", whole, "a list of ids, or a list of lists of ids", self.ids)

    def all(self) -> Listed:
        return [(f"prompts.ids[{place}]", tuple(ids)) for place, ids in enumerate(self._lists())]

    def _lists(self) -> Sequence[Sequence[Any]]:
        nested = [isinstance(one, tuple | list) for one in self.ids]
        return self.ids if nested and all(nested) else [self.ids]
