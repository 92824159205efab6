"""A look at the site that was built: `python docs/check_site.py build/docs`.

Every link and picture must lead to a file, every anchor to a place in it, and nothing that a page loads may come
from the network. Links that a reader may follow to other sites are not asked.
"""
# ruff: noqa: INP001 # a script beside the pages it serves

import re
import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

LOADED = {"script": "src", "img": "src", "iframe": "src", "source": "src", "video": "src"}
SHEETS = re.compile(r"""@import\s+["']([^"']+)|url\(\s*["']?([^"')]+)""")


class Page(HTMLParser):
    """What one page links, loads and can be linked at."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.links: list[str] = []
        self.loaded: list[str] = []
        self.anchors: set[str] = set()
        self.feed(path.read_text())

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value for name, value in attrs if value is not None}
        self.anchors |= {given[name] for name in ("id", "name") if name in given}
        if tag == "a" and "href" in given:
            self.links.append(given["href"])
        if tag == "link" and given.get("rel") in ("stylesheet", "icon", "preload", "shortcut icon"):
            self.loaded.append(given["href"])
        if given.get(LOADED.get(tag, "")):
            self.loaded.append(given[LOADED[tag]])


def main() -> None:
    """Print what is wrong; exit status 1 if anything is."""
    wrong = problems(Path(sys.argv[1]))
    sys.stdout.write("".join(f"{line}\n" for line in wrong) or "every link leads somewhere, nothing is loaded\n")
    sys.exit(bool(wrong))


def problems(site: Path) -> list[str]:
    """One line for each link that leads nowhere and each thing that would be loaded from the network."""
    pages = {path: Page(path) for path in sorted(site.rglob("*.html"))}
    found = [] if pages else [f"{site}: no page"]
    for path, page in pages.items():
        where = path.relative_to(site)
        found += [f"{where}: {link} leads nowhere" for link in page.links if not leads(link, path, pages)]
        found += [f"{where}: loads {link}" for link in page.loaded if not is_here(link, path)]
    for sheet in sorted(site.rglob("*.css")):
        for link in (one or other for one, other in SHEETS.findall(sheet.read_text())):
            if not link.startswith("data:") and not is_here(link, sheet):
                found.append(f"{sheet.relative_to(site)}: loads {link}")
    return found


def leads(link: str, path: Path, pages: dict[Path, Page]) -> bool:
    """Whether the file is there, and the anchor in it."""
    parts = urlsplit(link)
    if parts.scheme or parts.netloc:
        return True
    there = (path.parent / unquote(parts.path)).resolve() if parts.path else path
    anchors = pages[there].anchors if there in pages else None
    return there.exists() and (not parts.fragment or anchors is None or unquote(parts.fragment) in anchors)


def is_here(link: str, path: Path) -> bool:
    """Whether what is loaded lies beside the page."""
    parts = urlsplit(link)
    if parts.scheme == "data":
        return True
    return not parts.scheme and not parts.netloc and (path.parent / unquote(parts.path)).exists()


if __name__ == "__main__":
    main()
