"""Files that are there whole or not at all. Standard library only."""

from pathlib import Path


def write_whole(path: Path, text: str) -> None:
    """Write a file under another name and rename it, so that a reader finds all of it or nothing.

    What UTF-8 has no place for, half of a character or a byte of a path that is none, is escaped.
    """
    part = path.with_name(f".{path.name}.part")
    part.write_text(text, encoding="utf-8", errors="backslashreplace")
    part.replace(path)
