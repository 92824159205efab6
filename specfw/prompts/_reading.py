"""Files of prompts."""

from pathlib import Path


def read(path: str) -> str:
    """The text of the UTF-8 file `prompts.path`, line ends as they are.

    Raises:
        ValueError: it cannot be read, or is no UTF-8.
    """
    try:
        return Path(path).expanduser().read_bytes().decode("utf-8-sig")
    except OSError as error:
        raise ValueError(f"prompts.path must be a readable file, got {path!r} ({error.strerror})") from error
    except UnicodeDecodeError as error:
        raise ValueError(f"prompts.path must be a UTF-8 file, got {path!r} ({error})") from error
