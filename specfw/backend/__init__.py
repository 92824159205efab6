"""Which BLAS multiplies under MLX, bound before MLX is imported; standard library only.

On Linux MLX's wheel multiplies float32 with a reference BLAS on one thread: K + 1 rows cost K + 1 times one
row, and speculation cannot pay. An OpenBLAS put into the process's global scope first is used instead. On
macOS and on GPUs there is nothing to bind.
"""

import os
import sys
from collections.abc import Sequence
from typing import NamedTuple, NoReturn

from specfw.backend import selftest
from specfw.backend.forwarding import UnavailableError
from specfw.backend.libraries import Library, Source, in_process, load, system, wheel
from specfw.backend.machine import computes_on_gpu, processor
from specfw.backend.request import BLAS_VARIABLE, CHOICES, THREADS_VARIABLE, Request, read

__all__ = ["SOURCES", "Backend", "bind", "bound", "processor", "restart_with", "system", "wheel"]

SOURCES: tuple[Source, ...] = (system, wheel)
_SLOW = "MLX's reference BLAS multiplies, many times slower"
_RESTARTED = "SPECFW_REEXECUTED"
_bound: list["Backend"] = []


class Backend(NamedTuple):
    """What multiplies in this process.

    Attributes:
        blas: `openblas`, `reference`, `other` (an unknown one already in the process), `accelerate` (macOS)
            or `none` (a GPU).
        source: where it came from: `system`, `scipy`, `process` (LD_PRELOAD or the caller) or `mlx`.
        threads: how many threads multiply; None where the library decides.
        processor: the model of this machine's processor.
        reason: why this one, as one clause.
        library: the file that was loaded.
        version: what the library says of itself: version, kernels, largest number of threads.
        difference: the self-test's largest difference from float64, relative; None where not measured.
        warnings: what the user should be told, for the record to log.
    """

    blas: str
    source: str
    threads: int | None
    processor: str
    reason: str
    library: str | None = None
    version: str | None = None
    difference: float | None = None
    warnings: tuple[str, ...] = ()

    def satisfies(self, blas: str, threads: int | None) -> bool:
        """Whether a composed `backend.blas` and `backend.threads` (None: any number) ask for just this."""
        if self.blas in ("accelerate", "none"):
            return True
        return blas in ("auto", self.blas) and (self.blas != "openblas" or threads in (None, self.threads))


def bind(
    blas: str | None = None,
    threads: int | str | None = None,
    *,
    self_test: bool = True,
    sources: Sequence[Source] = SOURCES,
) -> Backend:
    """Binds the BLAS, once in a process: later calls return what the first one bound.

    The choice is exported to the environment, so that workers make the same one or fail.

    Args:
        blas: `auto`, `openblas` or `reference`; None reads SPECFW_BLAS, then means `auto`.
        threads: 1 or more; None reads SPECFW_BLAS_THREADS, then means the cores.
        self_test: test a library no earlier process has tested; False trusts it (for --help).
        sources: where to look for an OpenBLAS, in this order.

    Raises:
        ValueError: a value is not allowed, or `openblas` was asked for and none can be had.
    """
    if not _bound:
        request = read(blas, threads)
        backend = _choose(request, sources, self_test=self_test)
        os.environ[BLAS_VARIABLE] = backend.blas if backend.blas in CHOICES else request.blas
        threads_of_workers = backend.threads if backend.blas == "openblas" else request.threads_or_cores
        os.environ[THREADS_VARIABLE] = str(threads_of_workers)
        _bound.append(backend)
    return _bound[0]


def bound() -> Backend | None:
    """What was bound; None before `bind`."""
    return _bound[0] if _bound else None


def restart_with(blas: str, threads: int | None, argv: Sequence[str] | None = None) -> NoReturn:
    """Starts this command again under another BLAS, in its own process; for the command line only.

    Args:
        blas: what SPECFW_BLAS is to say.
        threads: what SPECFW_BLAS_THREADS is to say; None means the cores.
        argv: what follows the interpreter; None repeats the command as it was given.

    Raises:
        RuntimeError: this process is such a second start already.
    """
    process = str(os.getpid())  # exec keeps it, so children that inherit the variable may still restart once
    if os.environ.get(_RESTARTED) == process:
        wanted = f"backend.blas={blas} backend.threads={threads}"
        raise RuntimeError(f"{wanted} was not bound by a second start either, which has {bound()}")
    os.environ |= {_RESTARTED: process, BLAS_VARIABLE: blas, THREADS_VARIABLE: str(threads or "")}
    sys.stdout.flush()
    sys.stderr.flush()
    os.execv(sys.executable, [sys.executable, *(sys.orig_argv[1:] if argv is None else argv)])  # noqa: S606


def _choose(request: Request, sources: Sequence[Source], *, self_test: bool) -> Backend:
    if sys.platform != "linux" or computes_on_gpu():
        return _nothing_to_bind(request)
    if present := in_process():
        return _use(present, request, self_test=self_test)
    if "mlx.core" in sys.modules:
        return _reference("mlx imported first", f"MLX was imported before specfw: {_SLOW}")
    if request.blas == "reference":
        return _reference("asked for")
    refusals = []
    for source in sources:
        try:
            return _use(source(), request, self_test=self_test)
        except (UnavailableError, OSError) as refusal:
            refusals.append(str(refusal))
    reason = "no OpenBLAS: " + "; ".join(refusals)
    if request.blas == "openblas":
        raise ValueError(f"backend.blas=openblas cannot be had ({reason}): use auto or reference")
    return _reference(reason, f"{_SLOW} ({reason}); install libopenblas0-pthread or a C compiler")


def _use(library: Library, request: Request, *, self_test: bool) -> Backend:
    threads, model = request.threads_or_cores, processor()
    difference = selftest.check(library, threads, model, run=self_test) if library.path else None
    loaded = load(library, threads)
    if request.threads and loaded.threads < request.threads:
        allowed = f"[1, {loaded.threads}] for {loaded.version}"
        raise ValueError(f"backend.threads must be in {allowed}, got {request.threads}")
    blas = "openblas" if loaded.version else "other"
    if request.blas not in ("auto", blas):
        raise ValueError(f"backend.blas must be auto while another BLAS is in the process, got {request.blas!r}")
    return Backend(
        blas=blas,
        source=library.source,
        threads=loaded.threads if loaded.version else None,
        processor=model,
        reason=f"found by {library.source}" if library.path else "in the process already",
        library=str(library.path) if library.path else None,
        version=loaded.version,
        difference=difference,
    )


def _reference(reason: str, *warnings: str) -> Backend:
    return Backend("reference", "mlx", 1, processor(), reason, warnings=warnings)


def _nothing_to_bind(request: Request) -> Backend:
    blas, where = ("accelerate", "macOS") if sys.platform == "darwin" else ("none", "a GPU or another system")
    reason = f"MLX brings what multiplies on {where}"
    ignored = f"backend.blas={request.blas} changes nothing: {reason}"
    warnings = (ignored,) if request.blas == "openblas" else ()
    return Backend(blas, "mlx", None, processor(), reason, warnings=warnings)
