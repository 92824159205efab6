"""Texts of anyone: whatever they say stays text in a terminal, in CSV, in Markdown and in an override."""

import re
from typing import Any

_PLAIN = re.compile(r"[\w.,;:+=/ ()%'…-]+", re.ASCII)
_ACTIVE = re.compile(r"[&<>\\`*_\[\]|~$#!:@{}^]|(?<=www)\.", re.IGNORECASE)
_WORD = re.compile(r"[\w.-]*/[\w./-]*|(?!(?:null|true|false|inf|nan)$)[a-z][\w.-]*", re.ASCII | re.IGNORECASE)
_FORMULA = ("=", "+", "-", "@")
_SECOND_FORMULA = re.compile(r";(?=[\s\"]*[=+@-])")
"""Where a spreadsheet that separates cells by semicolons would begin another."""


def one_line(text: str) -> str:
    """`text` without line breaks, control characters, marks of direction and lone surrogates: their escapes instead."""
    if text.isprintable():
        return text
    return "".join(one if one.isprintable() else one.encode("unicode_escape").decode() for one in text)


def shortened(text: str, length: int) -> str:
    """At most `length` characters, the last an ellipsis where some are missing."""
    return text if len(text) <= length else f"{text[: length - 1]}…"


def csv_cell(text: str) -> str:
    """`text` so that a spreadsheet does not take it for a formula: an apostrophe stands before what begins one."""
    line = _SECOND_FORMULA.sub(";'", one_line(text))
    return f"'{line}" if line.lstrip().startswith(_FORMULA) else line


def markdown(text: str) -> str:
    """`text` as code where that is safe, else with everything that Markdown or HTML may act on as an entity."""
    line = one_line(text).strip()
    if _PLAIN.fullmatch(line):
        return f"`{line}`"
    return _ACTIVE.sub(lambda found: f"&#{ord(found[0])};", line)


def word(value: Any) -> str:
    """`value` as a person would write it in an override: in quotes where it needs them."""
    return str(value) if _WORD.fullmatch(str(value)) else quoted(value)


def quoted(value: Any) -> str:
    """`value` as one word of an override, whatever is in it but an interpolation."""
    # backslashes escape only before a quote
    escaped = re.sub(r"(\\*)('|\Z)", lambda found: found[1] * 2 + ("\\'" if found[2] else ""), str(value))
    return f"'{escaped}'"
