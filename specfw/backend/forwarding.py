"""A library that gives the OpenBLAS of a wheel the names MLX calls, compiled once into the user's cache."""

import os
import subprocess
from pathlib import Path

from specfw.backend.cache import cache_folder, digest, identity

_COMPILERS = ("cc", "gcc", "clang")
_TYPES = {"s": ("float", "float"), "d": ("double", "double"), "c": ("const void *", "void")}
_FUNCTION = """
void {target}(int, int, int, {size}, {size}, {size}, {scalar},
    const {entry} *, {size}, const {entry} *, {size}, {scalar}, {entry} *, {size});
void {name}(int order, int transpose_a, int transpose_b, int m, int n, int k, {scalar} alpha,
    const {entry} *a, int lda, const {entry} *b, int ldb, {scalar} beta, {entry} *c, int ldc)
{{
    {target}(order, transpose_a, transpose_b, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc);
}}
"""


class UnavailableError(Exception):
    """Why a library is not used, as one clause for the log."""


def source_code(spelling: str) -> str:
    """The C text; a `64_` at the end of the spelling means that sizes are 64-bit integers there."""
    size = "long long" if spelling.endswith("64_") else "int"
    functions = (
        _FUNCTION.format(name=name, target=spelling.format(name), size=size, scalar=scalar, entry=entry)
        for name, (scalar, entry) in ((f"cblas_{letter}gemm", types) for letter, types in _TYPES.items())
    )
    return "".join(functions)


def forwarding_library(target: Path, spelling: str) -> Path:
    """The compiled library for `target`; its name is a digest of its text and of the target's identity.

    Raises:
        UnavailableError: there is no C compiler, it failed, or the cache cannot be written.
    """
    source = source_code(spelling)
    try:
        path = cache_folder() / f"forward-{digest(source, *identity(target))}.so"
        if not path.exists():
            _compile(source, target, path)
    except OSError as error:
        raise UnavailableError(f"no forwarding library for {target.name}: {error}") from error
    return path


def _compile(source: str, target: Path, path: Path) -> None:
    from shutil import which

    compiler = next(filter(None, map(which, _COMPILERS)), None)
    if compiler is None:
        raise UnavailableError(f"no C compiler ({', '.join(_COMPILERS)}) to forward to {target.name}")
    unfinished = path.with_suffix(f".{os.getpid()}")
    flags = ["-shared", "-fPIC", "-O2", "-x", "c", "-", "-x", "none", str(target), "-o", str(unfinished)]
    linker = ["-Xlinker", "--no-undefined", "-Xlinker", "-rpath", "-Xlinker", str(target.parent)]
    done = subprocess.run([compiler, *flags, *linker], input=source, capture_output=True, text=True, check=False)
    if done.returncode:
        raise UnavailableError(f"{compiler} could not forward to {target.name}: {done.stderr.strip()}")
    unfinished.replace(path)
