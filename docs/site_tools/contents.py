"""The sections of index.md, which are the site's table of contents; a forge shows the same lists of links."""

import re

SECTION = re.compile(r"^## (?P<title>.+)\n(?P<body>(?:(?!## ).*\n?)*)", re.MULTILINE)
ENTRY = re.compile(r"^- \[(?P<words>[^\]]+)\]\((?P<page>[\w./-]+)\.md\)", re.MULTILINE)


def sections(index: str) -> dict[str, dict[str, str]]:
    """The pages of each section, without their suffix, in order, and the words that link them."""
    return {
        found["title"]: {entry["page"]: entry["words"] for entry in ENTRY.finditer(found["body"])}
        for found in SECTION.finditer(index)
    }


def with_toctrees(index: str) -> str:
    """The page with a hidden toctree for each section that lists pages."""
    trees = [
        "\n".join(
            [
                "```{toctree}",
                f":caption: {title}",
                ":hidden:",
                "",
                *(f"{words} <{page}>" for page, words in pages.items()),
                "```",
                "",
            ]
        )
        for title, pages in sections(index).items()
        if pages
    ]
    return "\n".join([index, *trees])
