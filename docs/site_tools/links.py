"""Links of a page that lead out of docs/, so that on the site they lead to where the same thing stands there."""

import os
import re
from collections.abc import Callable, Collection
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"

COPIED = {
    ROOT / "specfw/zoo/README.md": "shipped-pair",
    ROOT / "specfw/zoo/target/README.md": "shipped-target",
    ROOT / "specfw/zoo/drafter/README.md": "shipped-drafter",
}
"""Pages that lie elsewhere for a reason and are shown on the site too, by the name they have there."""

GENERATED = DOCS / "generated"
SUFFIX = ".markdown"
"""Of generated Markdown; a page that is kept ends in .md."""

LINK = re.compile(r"(?P<image>!?)\[(?P<words>[^\]]*)\]\((?P<path>[^)#\s:]+)(?P<anchor>#[^)\s]*)?\)")
FENCE = re.compile(r"(```.*?```)", re.DOTALL)


def outside_fences(text: str, change: Callable[[str], str]) -> str:
    """`text` with `change` made to everything but fenced code."""
    return "".join(part if part.startswith("```") else change(part) for part in FENCE.split(text))


def mapped(text: str, page: Path, shown_in: Path, documented: Collection[str]) -> str:
    """The links of `page` as the site has them.

    Args:
        text: of the page.
        page: the file it is.
        shown_in: the folder it is shown in, which differs for pages that are copied.
        documented: names of modules that have an entry in the reference.
    """

    def relative(there: Path, anchor: str) -> str:
        return f"{os.path.relpath(there, shown_in)}{anchor}"

    def link(found: re.Match[str]) -> str:
        there, anchor, words = (page.parent / found["path"]).resolve(), found["anchor"] or "", found["words"]
        module = _module(there)
        if there in COPIED:
            return f"[{words}]({relative(GENERATED / f'{COPIED[there]}{SUFFIX}', anchor)})"
        if there == ROOT / "README.md":
            return f"[{words}]({relative(DOCS / 'index.md', '')})"
        if module in documented:
            return f"{{py:mod}}`{words.strip('`')} <{module}>`"
        return f"{found['image']}[{words}]({relative(there, anchor)})"

    return outside_fences(text, lambda part: LINK.sub(link, part))


def _module(path: Path) -> str | None:
    """The name of the module in `path`, None if it is none of ours."""
    if path.suffix != ".py" or not path.is_relative_to(ROOT / "specfw"):
        return None
    return ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")
