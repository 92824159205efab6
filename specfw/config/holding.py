"""One process at a time writes into a sweep's folder. Imports no MLX."""

import fcntl
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

LOCK = ".sweep.lock"


@contextmanager
def held(folder: Path, key: str) -> Iterator[None]:
    """Hold a sweep's folder, which is made where there is none.

    The system lets go of it when this process ends, however it ends: programs it starts do not inherit the file.

    Args:
        folder: of the sweep.
        key: that named it.

    Raises:
        ValueError: another sweep runs in it.
    """
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / LOCK).open("a") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            allowed = "a folder that no sweep runs in (wait until it has ended)"
            raise ValueError(f"{key} must be {allowed}, got {str(folder)!r}") from error
        except OSError:  # a file system without locks, on which sweeps run as well
            pass
        yield
