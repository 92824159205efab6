"""A file of text."""

from dataclasses import dataclass
from typing import final

from specfw.prompts._reading import read
from specfw.prompts.base import Listed, Prompts
from specfw.registry import register


@final
@register("prompts")
@dataclass(frozen=True, kw_only=True)
class File(Prompts):
    """One prompt, the whole of a UTF-8 file, line ends as they are.

    Attributes:
        path: of the file.
    """

    path: str

    def all(self) -> Listed:
        return [("prompts.path", read(self.path))]
