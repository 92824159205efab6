"""The self-test itself, a child process: `python -m specfw.backend.multiply FILE SPELLING THREADS`.

It prints the largest difference between MLX's products under the library and float64 sums that use no BLAS.
"""

import sys
from pathlib import Path

from specfw.backend.libraries import Library, load

# Rows, inner size, columns: one row; a few rows of a long sum; enough work for every thread.
SHAPES = ((1, 300, 257), (8, 2048, 96), (130, 517, 259))
# Float64 products feed the exact bench, which needs 1e-10 of them where 1e-4 does for the others.
FLOAT64_WEIGHT = 1e6


def largest_difference() -> float:
    """The largest `max |product - exact| / max |exact|` over shapes, types and transposition."""
    import mlx.core as mx
    import numpy as np

    generator = np.random.default_rng(1979)
    differences = []
    with mx.stream(mx.cpu):
        for rows, inner, columns in SHAPES:
            x = generator.standard_normal((rows, inner), dtype=np.float32)
            y = generator.standard_normal((inner, columns), dtype=np.float32)
            z = 1j * generator.standard_normal((inner, columns), dtype=np.float32) + y
            for dtype, weight, right in (
                (mx.float32, 1, y),
                (mx.complex64, 1, z),
                (mx.float64, FLOAT64_WEIGHT, y),
            ):
                a, b = mx.array(x).astype(dtype), mx.array(right).astype(dtype)
                exact = np.einsum("ik,kj->ij", x.astype(np.float64), right.astype(np.complex128))
                for product in (a @ b, a @ mx.contiguous(b.T).T):
                    error = np.abs(np.array(product) - exact).max() / np.abs(exact).max()
                    differences.append(weight * error)
    return float(np.max(differences))


if __name__ == "__main__":
    _, file, spelling, thread_count = sys.argv
    version = load(Library("self-test", Path(file), spelling), int(thread_count)).version or ""
    if ("USE64BITINT" in version) != spelling.endswith("64_"):
        sys.exit(f"{version} and the spelling {spelling} differ in the size of integers")
    sys.stdout.write(f"{largest_difference()}\n")
