"""Files of a record, whoever left them there: read as JSON, or one sentence that names the file."""

import json
import reprlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from stat import S_ISREG
from typing import Any, BinaryIO, NoReturn, cast

from specfw.study.values import require

LARGEST = 64 * 2**20
"""Bytes of a file that is read whole, and of a line."""


def mapping(path: Path) -> dict[str, Any]:
    """The one JSON object in a file.

    Raises:
        ValueError: there is none, or the file is no regular file, too large, or cannot be read.
    """
    with _opened(path) as file:
        return _object(path.name, _within(path.name, file.read(LARGEST + 1)))


def lines(path: Path) -> Iterator[dict[str, Any]]:
    """The JSON objects of a file, one a line.

    Raises:
        ValueError: as `mapping`, at the first line that is none.
    """
    with _opened(path) as file:
        number = 0
        while line := file.readline(LARGEST + 1):
            number += 1
            yield _object(f"{path.name} line {number}", _within(path.name, line))


def words(path: Path) -> str:
    """The last line of a file of words that has any, whatever its bytes."""
    with _opened(path) as file:
        text = file.read(LARGEST).decode("utf-8", "backslashreplace")
    return next((line.strip() for line in reversed(text.splitlines()) if line.strip()), "no words")


def breaks_off(path: Path) -> bool:
    """Whether a file of lines ends within one."""
    with _opened(path) as file:
        size = file.seek(0, 2)
        file.seek(max(size - 1, 0))
        return file.read(1) not in (b"\n", b"")


def is_regular(path: Path) -> bool:
    """Whether a file lies there; a link, a pipe or a device in a record is not followed, read or waited for."""
    try:
        return S_ISREG(path.lstat().st_mode)
    except OSError:
        return False


@contextmanager
def _opened(path: Path) -> Iterator[BinaryIO]:
    try:
        if path.exists() and not is_regular(path):
            raise ValueError(f"{path.name} must be a regular file")
        with path.open("rb") as file:
            yield file
    except OSError as error:
        raise ValueError(f"{path.name} cannot be read: {error.strerror}") from error


def _within(name: str, data: bytes) -> bytes:
    if len(data) > LARGEST:
        raise ValueError(f"{name} must be at most {LARGEST} bytes, in a line where it has lines")
    return data


def _object(name: str, data: bytes) -> dict[str, Any]:
    try:
        found = json.loads(data.decode("utf-8"), parse_constant=_refused)
    except UnicodeDecodeError as error:
        raise ValueError(f"{name} must be UTF-8, but byte {error.start} is not") from error
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{name} must be JSON, got {_shown(data)}") from error
    require(name, isinstance(found, dict), "a JSON object", found)
    return cast("dict[str, Any]", found)


def _refused(word: str) -> NoReturn:
    raise ValueError(f"{word} is no JSON")


def _shown(data: bytes) -> str:
    return reprlib.repr(data[:200].decode("utf-8", "backslashreplace"))
