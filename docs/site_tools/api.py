"""The reference of modules: one page for each row of the table of python-api.md, from docstrings."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from specfw import registry
from specfw.config import schemas  # noqa: F401 # registers every component

DOCS = Path(__file__).resolve().parents[1]
PAGE = DOCS / "python-api.md"
ROW = re.compile(r"^\| (?P<title>[^|]+?) \|(?P<modules>[^|]*)\|(?P<groups>[^|]*)\|$", re.MULTILINE)


class Area(NamedTuple):
    """One page of the reference.

    Attributes:
        title: its heading.
        modules: written out in full, in this order.
        groups: of the registry; each of their components follows.
    """

    title: str
    modules: tuple[str, ...]
    groups: tuple[str, ...]

    @property
    def name(self) -> str:
        """Of its file."""
        return f"api-{re.sub(r'[^a-z]+', '-', self.title.lower()).strip('-')}"


def areas() -> tuple[Area, ...]:
    """The rows of python-api.md that link modules."""
    rows = ROW.finditer(PAGE.read_text())
    found = [
        Area(row["title"], tuple(_linked(row["modules"])), tuple(re.findall(r"`(\w+)`", row["groups"]))) for row in rows
    ]
    return tuple(area for area in found if area.modules)


def documented() -> frozenset[str]:
    """Every module that has an entry."""
    return frozenset(module for area in areas() for module in (*area.modules, *_own(area)))


def page(area: Area) -> str:
    """One page, in reStructuredText, the language that autodoc writes."""
    parts = [_heading(area.title, "=")]
    for module in area.modules:
        parts += [_heading(module, "-"), f".. automodule:: {module}\n   :members:\n"]
    for group in area.groups:
        parts.append(_heading(f"Components of {group}", "-"))
        for name in registry.names(group):
            cls = registry.component(group, name)
            if cls.__module__ not in area.modules:
                parts += [_heading(name, "~"), f".. automodule:: {cls.__module__}\n   :no-members:\n"]
                parts.append(f".. autoclass:: {cls.__module__}.{cls.__qualname__}\n   :no-members:\n")
    return "\n".join(parts)


def _own(area: Area) -> Iterator[str]:
    for group in area.groups:
        yield from (registry.component(group, name).__module__ for name in registry.names(group))


def _linked(cell: str) -> list[str]:
    """The modules whose files are linked."""
    paths = re.findall(r"\]\(\.\./(specfw[\w/]*)\.py\)", cell)
    return [path.replace("/", ".").removesuffix(".__init__") for path in paths]


def _heading(words: str, sign: str) -> str:
    return f"{words}\n{sign * len(words)}\n"
