"""What a job takes along into whichever process a launcher runs it in, so that it says there what it would say here."""

import os
import time
from functools import cache
from threading import Thread
from typing import NamedTuple

from specfw import backend
from specfw.backend.request import BLAS_VARIABLE, THREADS_VARIABLE
from specfw.config.failures import INTERRUPTED
from specfw.resolution import VARIABLE

_LOOK_EVERY_S = 0.5


class Origin(NamedTuple):
    """The process that began a sweep, as far as its jobs depend on it.

    Attributes:
        blas: what multiplies there.
        threads: on how many threads; None where the library decides.
        stochastic_accept: SPECFW_STOCHASTIC_ACCEPT there, None where not set.
        process: its number.
    """

    blas: str
    threads: int | None
    stochastic_accept: str | None
    process: int

    def is_here(self) -> bool:
        """Whether this is that process."""
        return os.getpid() == self.process


def origin() -> Origin:
    """This process."""
    bound = backend.bind()
    return Origin(bound.blas, bound.threads, os.environ.get(VARIABLE), os.getpid())


def settle(began: Origin) -> None:
    """Make this process, a new worker, a reused one or the one that began, give what `began` would give.

    A worker that `began` started itself ends with it, so that nobody goes on writing into a sweep that was killed.

    Raises:
        ValueError: another BLAS, or another number of its threads, was bound here.
    """
    bound = backend.bind()
    if (bound.blas, bound.threads) != (began.blas, began.threads):
        raise ValueError(
            f"a worker must multiply as the command does (blas={began.blas} threads={began.threads}), got "
            f"blas={bound.blas} threads={bound.threads}: hand {BLAS_VARIABLE}={began.blas} and "
            f"{THREADS_VARIABLE}={began.threads} to it"
        )
    if began.stochastic_accept is None:
        os.environ.pop(VARIABLE, None)
    else:
        os.environ[VARIABLE] = began.stochastic_accept
    if os.getppid() == began.process:
        _end_with(began.process)


@cache
def _end_with(parent: int) -> None:
    """Leave when `parent` is no longer this process's parent; what was being written keeps its temporary name."""

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(_LOOK_EVERY_S)
        os._exit(INTERRUPTED)

    Thread(target=watch, daemon=True).start()
