"""What a forward pass costs by the number of rows it is fed: what a round of speculation has to be paid with."""

from collections.abc import Sequence
from statistics import median
from time import perf_counter

from specfw.models.base import Cache, LanguageModel, prefill
from specfw.registry import require
from specfw.types import Ints

import mlx.core as mx
import numpy as np

_CHUNK = 512


def forward_cost(model: LanguageModel, rows: Sequence[int], context: int, repeats: int) -> dict[int, float]:
    """Seconds of one forward pass over each of `rows` tokens after a context, from tokens to logits.

    The counts take turns, so that whatever else the machine does meets all of them alike; a first turn of each
    is not counted. After every pass the cache is rewound, outside the time.

    Args:
        model: fed one sequence.
        rows: numbers of tokens fed at once, each at least 1.
        context: tokens in the cache before every pass, at least 1.
        repeats: passes of each count, at least 1.

    Returns:
        The median of the passes in seconds, by count.

    Raises:
        ValueError: no rows, or a number below 1.
    """
    require("rows", len(rows) > 0 and min(rows) >= 1, "one or more counts of at least 1", list(rows))
    require("context", context >= 1, "at least 1", context)
    require("repeats", repeats >= 1, "at least 1", repeats)
    model.read()
    cache = model.new_cache(1)
    for _ in prefill(model, cache, _ids(model, context), _CHUNK):
        pass
    seconds: dict[int, list[float]] = {count: [] for count in rows}
    for _ in range(1 + repeats):
        for count, passes in seconds.items():
            passes.append(_timed(model, cache, count))
    return {count: median(passes[1:]) for count, passes in seconds.items()}


def _timed(model: LanguageModel, cache: Cache, count: int) -> float:
    tokens = mx.array(_ids(model, count).astype(np.int32))
    mx.eval(tokens)
    start = perf_counter()
    mx.eval(model.forward(tokens, cache), cache.arrays())
    elapsed = perf_counter() - start
    cache.rewind(np.array([count]))
    return elapsed


def _ids(model: LanguageModel, count: int) -> Ints:
    """[1, count] ids, different as far as there are enough."""
    return np.arange(count)[None] % model.vocab_size
