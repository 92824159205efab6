"""transformers' speculative sampling on the same arrays, run as a child process: torch brings threads of its own.

    python -m specfw.benchmark.deciding.in_torch '{"sizes": [[32000, 4]], "seed": 0, "repeats": 3, "threads": 2}'

It prints seconds by size as JSON.
"""

import json
import subprocess
import sys
from collections.abc import Mapping, Sequence
from importlib import import_module
from importlib.util import find_spec
from time import perf_counter
from typing import Any

from specfw.benchmark.deciding.arrays import arrays

MISSING = "torch is not installed"


def seconds(sizes: Sequence[tuple[int, int]], seed: int, repeats: int, threads: int) -> list[list[float]] | str:
    """Seconds of every repeat, by size, or why there are none.

    Args:
        sizes: pairs of V and K.
        seed: of the arrays.
        repeats: that count, after one that does not.
        threads: of torch.
    """
    if find_spec("torch") is None:
        return MISSING
    asked = json.dumps({"sizes": sizes, "seed": seed, "repeats": repeats, "threads": threads})
    command = [sys.executable, "-m", __spec__.name, asked]
    child = subprocess.run(command, capture_output=True, text=True, check=False)
    if child.returncode:
        last = (child.stderr.strip().splitlines() or ["no words"])[-1]
        return f"the child process failed: {last}"
    found: list[list[float]] = json.loads(child.stdout)
    return found


def measured(asked: Mapping[str, Any]) -> list[list[float]]:
    """What the child process does."""
    torch, utils = import_module("torch"), import_module("transformers.generation.utils")
    torch.set_num_threads(asked["threads"])
    torch.manual_seed(asked["seed"])
    return [_one(torch, utils, size, asked) for size in asked["sizes"]]


def _one(torch: Any, utils: Any, size: Sequence[int], asked: Mapping[str, Any]) -> list[float]:
    made = arrays(size[0], size[1], asked["seed"])
    target, draft = (torch.from_numpy(rows)[None] for rows in (made.target, made.draft))
    ids = torch.from_numpy(made.tokens.astype("int64"))[None]
    found = []
    for _ in range(1 + asked["repeats"]):
        start = perf_counter()
        utils._speculative_sampling(ids, draft, size[1], target)  # noqa: SLF001 # it is what is compared with
        found.append(perf_counter() - start)
    return found[1:]


if __name__ == "__main__":
    sys.stdout.write(json.dumps(measured(json.loads(sys.argv[1]))))
