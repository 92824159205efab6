"""The Sphinx extension: writes the generated pages, and fills in on the way in what a forge cannot show."""

from collections.abc import Callable
from enum import Enum
from pathlib import Path
from typing import Any

from site_tools import api, contents, key_page, links
from site_tools.docstrings import full_names, literal_blocks

from docutils import nodes
from sphinx.application import Sphinx

BUILT: dict[str, Callable[[], str]] = {
    "keys": key_page.body,
    "api": lambda: "\n".join(
        ["```{toctree}", ":maxdepth: 2", "", *(f"generated/{area.name}" for area in api.areas()), "```"]
    ),
}
"""What `<!-- built: name -->` in a page stands for."""


def setup(app: Sphinx) -> dict[str, bool]:
    """Connect what follows."""
    app.connect("builder-inited", write)
    app.connect("env-get-outdated", outdated)
    app.connect("source-read", read)
    app.connect("doctree-read", colons)
    app.connect("autodoc-process-docstring", docstring, priority=400)  # before napoleon sees it
    app.connect("autodoc-skip-member", skip)
    return {"parallel_read_safe": True, "parallel_write_safe": True}


def write(_app: Sphinx) -> None:
    """The generated pages, which are not kept."""
    links.GENERATED.mkdir(exist_ok=True)
    pages = {f"{area.name}.rst": api.page(area) for area in api.areas()}
    for page, name in links.COPIED.items():
        text = links.mapped(page.read_text(), page, links.GENERATED, api.documented())
        pages[f"{name}{links.SUFFIX}"] = f"---\norphan: true\n---\n{text}"
    for path in links.GENERATED.iterdir():
        if path.name not in pages:
            path.unlink()
    for name, text in pages.items():
        path = links.GENERATED / name
        if not path.exists() or path.read_text() != text:
            path.write_text(text)


def outdated(app: Sphinx, *_: Any) -> list[str]:
    """Pages that hold what is built: they are as new as the code."""
    holds = [name for name in app.env.found_docs if "<!-- built: " in Path(app.env.doc2path(name)).read_text()]
    return [*holds, app.config.root_doc]


def read(app: Sphinx, name: str, source: list[str]) -> None:
    """A page of docs/ on its way in."""
    page = Path(app.env.doc2path(name))
    if page.suffix != ".md":
        return
    text = links.mapped(source[0], page, page.parent, api.documented())
    for what, make in BUILT.items():
        text = text.replace(f"<!-- built: {what} -->", make())
    source[0] = contents.with_toctrees(text) if name == app.config.root_doc else text


def colons(_app: Sphinx, tree: nodes.document) -> None:
    """What stands between an argument and its words, two hyphens, as a colon."""
    for dash in list(tree.findall(lambda node: isinstance(node, nodes.Text) and node == " -- ")):
        dash.parent.replace(dash, nodes.Text(": "))


def docstring(_app: Sphinx, what: str, _name: str, _object: Any, _options: Any, lines: list[str]) -> None:
    """A docstring before napoleon reads it."""
    literal_blocks(lines)
    full_names(lines)
    if what in ("attribute", "data", "property"):
        lines[:0] = ["..", ""]  # an empty comment, or napoleon takes words before a colon for a type


def skip(_app: Sphinx, _what: str, _name: str, member: Any, _skip: bool, _options: Any) -> bool | None:
    """Leave out fields of tuples, of which Python says no more than their number; keep every member of an enum."""
    return True if type(member).__name__ == "_tuplegetter" else False if isinstance(member, Enum) else None
