"""Docstrings as autodoc is to read them: they are written to be read in the code."""

import re

FULL = {"FailedCheckError": "specfw.errors.FailedCheckError"}
"""Names of ours that stand alone in docstrings."""

INDENTED = re.compile(r"^ {4}\S")


def literal_blocks(lines: list[str]) -> None:
    """Mark what stands apart and is indented, formulas and sketches, as literal; in place."""
    marked: list[str] = []
    inside = False
    for before, line in zip(["", *lines], lines, strict=False):
        if inside and line and not line.startswith(" "):
            inside = False
        elif not inside and not before.strip() and INDENTED.match(line) and not line.lstrip().startswith((">>>", "..")):
            inside = True
            marked += ["::", ""]
        marked.append(line)
    lines[:] = marked


def full_names(lines: list[str]) -> None:
    """Give the names of `Raises:` that are ours their modules, in place."""
    for place, line in enumerate(lines):
        name = line.strip().partition(":")[0]
        if name in FULL:
            lines[place] = line.replace(name, f"~{FULL[name]}", 1)
