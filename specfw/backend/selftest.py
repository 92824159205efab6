"""Whether a library multiplies rightly under MLX: measured once in a child process, then remembered."""

import json
import os
import subprocess
import sys
from contextlib import suppress

from specfw.backend.cache import cache_folder, digest, identity
from specfw.backend.forwarding import UnavailableError
from specfw.backend.libraries import Library
from specfw.backend.machine import mlx_version

LIMIT = 1e-4
_TIMEOUT_S = 120


def check(library: Library, threads: int, processor: str, *, run: bool) -> float | None:
    """The largest difference from float64, relative to the largest entry; None where never measured.

    Only what passes is remembered, by library file, MLX, processor, kernels asked for and threads: a failure
    may have been a passing trouble, so it is tried again.

    Args:
        library: what to test.
        threads: how many threads multiply.
        processor: this machine's.
        run: measure when nothing is remembered.

    Raises:
        UnavailableError: the difference is above 1e-4, or the child process did not end well.
    """
    assert library.path is not None
    facts = {
        "library": identity(library.path),
        "mlx": mlx_version(),
        "processor": processor,
        "core_type": os.environ.get("OPENBLAS_CORETYPE"),
        "threads": threads,
    }
    name = f"selftest-{digest(facts)}.json"
    difference = _recall(name)
    if difference is None and run:
        difference = _measure(library, threads)
        if not difference <= LIMIT:
            raise UnavailableError(f"{library.path} is {difference:.0e} off float64, above the limit {LIMIT:.0e}")
        _remember(name, {**facts, "difference": difference})
    return difference


def _measure(library: Library, threads: int) -> float:
    command = ["-P", "-m", "specfw.backend.multiply", str(library.path), library.spelling, str(threads)]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(map(os.path.abspath, sys.path))}
    try:
        child = subprocess.run(
            [sys.executable, *command],
            env=environment,
            capture_output=True,
            text=True,
            check=False,
            timeout=_TIMEOUT_S,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise UnavailableError(f"the self-test of {library.path} could not run: {error}") from error
    if child.returncode:
        last = (child.stderr.strip().splitlines() or [f"status {child.returncode}"])[-1]
        raise UnavailableError(f"the self-test of {library.path} failed: {last}")
    return float(child.stdout)


def _recall(name: str) -> float | None:
    with suppress(OSError, ValueError, KeyError, TypeError):
        return float(json.loads((cache_folder() / name).read_text())["difference"])
    return None


def _remember(name: str, facts: dict[str, object]) -> None:
    with suppress(OSError):  # a cache that cannot be written costs a second at every start, nothing else
        path = cache_folder() / name
        unfinished = path.with_suffix(f".{os.getpid()}")
        unfinished.write_text(json.dumps(facts, indent=1))
        unfinished.replace(path)
