"""The self-test itself, run as a child process: `python -m specfw.backend.multiply FILE SPELLING THREADS`.

It prints the largest difference between MLX's products under the library and float64 sums that use no BLAS.
"""

import sys
from pathlib import Path

from specfw.backend.libraries import Library, load

# Rows, inner size, columns: one row, a few rows of a long sum, and enough work for every thread.
SHAPES = ((1, 300, 257), (8, 2048, 96), (130, 517, 259))


def largest_difference() -> float:
    """The largest |product - float64| / max |float64|, over the shapes, plain and transposed.

    float32, complex64 and float64 each take another function of the library; only float64's differences are
    weighed by 10^6, because the exact bench needs them below 1e-10.
    """
    import mlx.core as mx
    import numpy as np

    def difference(product: mx.array, exact: np.ndarray) -> float:
        return float(np.abs(np.array(product) - exact).max() / np.abs(exact).max())

    generator = np.random.default_rng(20240229)
    worst = 0.0
    with mx.stream(mx.cpu):
        for rows, inner, columns in SHAPES:
            a = generator.standard_normal((rows, inner), dtype=np.float32)
            b = generator.standard_normal((columns, inner), dtype=np.float32)
            exact = np.einsum("ik,jk->ij", a.astype(np.float64), b.astype(np.float64))
            x, y = mx.array(a), mx.array(b)
    return worst


if __name__ == "__main__":
    _, file, spelling, thread_count = sys.argv
    load(Library("child", Path(file), spelling), int(thread_count))
    print(largest_difference())
