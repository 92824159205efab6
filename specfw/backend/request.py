"""What was asked for: the arguments, else the environment, else the defaults."""

import os
from typing import NamedTuple

from specfw.backend.machine import cores

BLAS_VARIABLE = "SPECFW_BLAS"
THREADS_VARIABLE = "SPECFW_BLAS_THREADS"
CHOICES = ("auto", "openblas", "reference")
_UNSET = (None, "", "null")


class Request(NamedTuple):
    """A checked request; `threads` None stands for the cores, or fewer where the library takes fewer."""

    blas: str
    threads: int | None

    @property
    def threads_or_cores(self) -> int:
        """How many threads to ask a library for."""
        return self.threads or cores()


def read(blas: str | None, threads: int | str | None) -> Request:
    """Reads and checks a request.

    Args:
        blas: `auto`, `openblas` or `reference`; None reads SPECFW_BLAS, then means `auto`.
        threads: 1 or more; None reads SPECFW_BLAS_THREADS, then means the cores.

    Raises:
        ValueError: a value is none of the allowed ones; the message names the field it came from.
    """
    blas_field, blas_word = _choose("backend.blas", blas, BLAS_VARIABLE)
    threads_field, threads_word = _choose("backend.threads", threads, THREADS_VARIABLE)
    if blas_word and blas_word not in CHOICES:
        raise ValueError(f"{blas_field} must be auto, openblas or reference, got {blas_word!r}")
    if threads_word and not (threads_word.isdecimal() and int(threads_word) >= 1):
        raise ValueError(f"{threads_field} must be an integer in [1, inf), got {threads_word!r}")
    return Request(blas_word or "auto", int(threads_word) if threads_word else None)


def _choose(field: str, value: int | str | None, variable: str) -> tuple[str, str]:
    if value not in _UNSET:
        return field, str(value).strip().lower()
    return variable, os.environ.get(variable, "").strip().lower()
