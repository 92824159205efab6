"""Where an OpenBLAS comes from, and how it is put in front of MLX's own BLAS.

MLX's Linux wheel calls `cblas_sgemm`, `cblas_dgemm` and `cblas_cgemm` of the reference BLAS it bundles. The
dynamic linker looks in the process's global scope first: a library loaded there before MLX is used instead.
"""

import ctypes
import os
import subprocess
import sys
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

from specfw.backend.forwarding import UnavailableError, forwarding_library


class Library(NamedTuple):
    """An OpenBLAS: where it was found, its file (None: in the process already), how it spells its symbols."""

    source: str
    path: Path | None
    spelling: str = "{}"


class Loaded(NamedTuple):
    """What a library in the global scope says of itself: version and kernels, and its thread count."""

    version: str | None
    threads: int


Source = Callable[[], Library]


def system(name: str = "libopenblas.so.0") -> Library:
    """The system's OpenBLAS: a path as it is, a name in LD_LIBRARY_PATH, the environment's `lib`, `ldconfig`.

    Raises:
        UnavailableError: there is none.
    """
    folders = [*os.environ.get("LD_LIBRARY_PATH", "").split(":"), str(Path(sys.prefix, "lib"))]
    places = [Path(folder, name) for folder in folders if folder] + _known_to_the_linker(name)
    found = next((path for path in ([Path(name)] if "/" in name else places) if path.is_file()), None)
    if found is None:
        raise UnavailableError(f"the system has no {name}")
    return Library("system", found.resolve())


def wheel(package: str = "scipy") -> Library:
    """The OpenBLAS bundled in a package's wheel, behind a library that forwards to its prefixed symbols.

    Raises:
        UnavailableError: the package bundles none, or it cannot be forwarded to.
    """
    spec = find_spec(package)
    folders = [Path(place) for place in spec.submodule_search_locations or ()] if spec else []
    bundled = [path for place in folders for path in place.with_name(f"{package}.libs").glob("*openblas*.so*")]
    if not bundled:
        raise UnavailableError(f"{package} bundles no OpenBLAS")
    # libscipy_openblas-*.so takes 32-bit sizes, libscipy_openblas64_-*.so takes 64-bit ones.
    spelling = "scipy_{}64_" if "openblas64_" in bundled[0].name else "scipy_{}"
    return Library(package, forwarding_library(bundled[0], spelling), spelling)


def in_process() -> Library | None:
    """A BLAS that is in the global scope already: LD_PRELOAD, or the caller's own doing."""
    return Library("process", None) if hasattr(ctypes.CDLL(None), "cblas_sgemm") else None


IDLE_CYCLES_LOG2 = "14"
"""A thread of OpenBLAS that waits for work sleeps after two to this many cycles."""


def load(library: Library, threads: int) -> Loaded:
    """Puts a library into the global scope and sets its threads.

    Raises:
        OSError: the file is no library for this machine, or lacks one it needs.
    """
    os.environ["OPENBLAS_NUM_THREADS"] = str(threads)
    # OpenBLAS's own threads spin for 2^26 cycles after a product, on the core that MLX's thread or Python needs next
    os.environ.setdefault("OPENBLAS_THREAD_TIMEOUT", IDLE_CYCLES_LOG2)
    handle = ctypes.CDLL(None if library.path is None else str(library.path), mode=ctypes.RTLD_GLOBAL)

    def function(name: str) -> Any:
        return getattr(handle, library.spelling.format(name), None)

    set_threads, get_threads = function("openblas_set_num_threads"), function("openblas_get_num_threads")
    if set_threads:
        set_threads(threads)
    version = function("openblas_get_config")
    if version:
        version.restype = ctypes.c_char_p
    return Loaded(version().decode() if version else None, get_threads() if get_threads else threads)


def _known_to_the_linker(name: str) -> list[Path]:
    try:
        listing = subprocess.run(["/sbin/ldconfig", "-p"], capture_output=True, text=True, check=False).stdout
    except OSError:
        return []
    lines = (line.partition(" => ") for line in listing.splitlines())
    return [Path(path) for entry, _, path in lines if entry.split()[:1] == [name]]
