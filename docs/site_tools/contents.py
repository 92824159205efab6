"""The sections of index.md, which are the site's table of contents; a forge shows the same lists of links."""

import re

SECTION = re.compile(r"^## (?P<title>.+)\n(?P<body>(?:(?!## ).*\n?)*)", re.MULTILINE)
ENTRY = re.compile(r"^- \[[^\]]+\]\((?P<page>[\w./-]+)\.md\)", re.MULTILINE)


def sections(index: str) -> dict[str, list[str]]:
    """The pages of each section, without their suffix, in order."""
    return {found["title"]: ENTRY.findall(found["body"]) for found in SECTION.finditer(index)}


def with_toctrees(index: str) -> str:
    """The page with a hidden toctree for each section that lists pages."""
    trees = [
        "\n".join(["```{toctree}", f":caption: {title}", ":hidden:", "", *pages, "```", ""])
        for title, pages in sections(index).items()
        if pages
    ]
    return "\n".join([index, *trees])
