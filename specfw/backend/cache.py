"""What the backend keeps between processes, and the names under which it is found again."""

import hashlib
import os
from pathlib import Path


def cache_folder() -> Path:
    """`$XDG_CACHE_HOME/specfw`, else `~/.cache/specfw`, made if need be and readable by its owner alone.

    Raises:
        OSError: it cannot be made.
    """
    root = os.environ.get("XDG_CACHE_HOME", "")
    folder = (Path(root) if Path(root).is_absolute() else Path("~/.cache").expanduser()) / "specfw"
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    return folder


def identity(path: Path) -> tuple[str, int, int]:
    """Path, size in bytes and time of change in nanoseconds: what tells one library file from another."""
    status = path.stat()
    return str(path), status.st_size, status.st_mtime_ns


def digest(*parts: object) -> str:
    """Sixteen hexadecimal digits that stand for the parts."""
    return hashlib.sha256(repr(parts).encode()).hexdigest()[:16]
