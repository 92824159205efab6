"""Files of a record: how they are called, and that they are there whole or not at all. Standard library only."""

from pathlib import Path

EVENTS, TOKENS, SUMMARY, CONFIG = "events.jsonl", "tokens.jsonl", "summary.json", "config.yaml"
SWEEP, JOB, ERROR = "sweep.json", "job.json", "error.txt"
"""Of a sweep, and of each of its jobs: how it was begun, that it finished, what went wrong."""


def write_whole(path: Path, text: str) -> None:
    """Write a file under another name and rename it, so that a reader finds all of it or nothing.

    What UTF-8 has no place for, half of a character or a byte of a path that is none, is escaped.
    """
    part = path.with_name(f".{path.name}.part")
    part.write_text(text, encoding="utf-8", errors="backslashreplace")
    part.replace(path)
