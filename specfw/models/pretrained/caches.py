"""The key-value caches of mlx-lm, held to the promise that they rewind.

A rotating cache forgets what left its window, so it cannot go back. Its layers get a plain cache that keeps the
whole context, and the window moves into the attention mask.
"""

from collections.abc import Iterator, Sequence
from typing import Any, final

from specfw.models.base import Cache
from specfw.types import Ints

import mlx.core as mx
import numpy as np
from mlx.nn.layers.base import Module
from mlx_lm.models.cache import CacheList, KVCache, RotatingKVCache, create_attention_mask, make_prompt_cache


@final
class WindowedKVCache(KVCache):
    """A plain cache whose mask lets a token see the last `window` tokens, itself included."""

    def __init__(self, window: int) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.window = window

    def make_mask(self, N: int, window_size: int | None = None, return_array: bool = False) -> Any:  # noqa: N803
        window = window_size or self.window
        limit = window if self.offset + N > window else None
        return create_attention_mask(N, self.offset, return_array, limit)


def rewindable_caches(module: Module, role: str) -> list[Any]:
    """The caches of a model's layers, rotating ones replaced.

    Raises:
        ValueError: a layer's cache cannot rewind; the sentence names the role and the class of the cache.
    """
    return [_rewindable(cache, role) for cache in make_prompt_cache(module)]


def _rewindable(cache: Any, role: str) -> Any:
    if type(cache) is CacheList:
        return CacheList(*(_rewindable(part, role) for part in cache.caches))  # type: ignore[no-untyped-call]
    if type(cache) is RotatingKVCache and not cache.keep:
        return WindowedKVCache(cache.max_size)
    if type(cache) is not KVCache:
        raise ValueError(
            f"{role}.path must be a model whose caches can be rewound, "
            f"got one with {type(cache).__name__} (recurrent, chunked and pinned states keep what was rejected)"
        )
    return cache


@final
class LayerCaches(Cache):
    """The caches of all layers for one sequence.

    Attributes:
        layers: what the model is called with.
    """

    def __init__(self, layers: list[Any]) -> None:
        self.layers = layers

    @property
    def lengths(self) -> Ints:
        return np.array([self._length()], dtype=np.int64)

    def rewind(self, counts: Ints) -> None:
        (count,) = (int(count) for count in counts)
        for leaf in self.leaves():
            dropped = leaf.trim(count)
            if dropped != count:
                name = type(leaf).__name__
                raise RuntimeError(f"{name} was asked to forget {count} tokens and forgot {dropped}")

    def arrays(self) -> list[mx.array]:
        held = [(leaf.keys, leaf.values) for leaf in self.leaves() if leaf.keys is not None]
        return [array for pair in held for array in pair] or [mx.zeros(1)]

    def leaves(self) -> Iterator[Any]:
        """The layers' caches, lists of them opened."""
        return _leaves(self.layers)

    def _length(self) -> int:
        offsets = {leaf.offset for leaf in self.leaves()}
        if len(offsets) != 1:
            raise RuntimeError(f"the layers of one model hold different numbers of tokens: {sorted(offsets)}")
        return int(offsets.pop())


def _leaves(layers: Sequence[Any]) -> Iterator[Any]:
    for layer in layers:
        if type(layer) is CacheList:
            yield from _leaves(layer.caches)
        else:
            yield layer


def window_cost(caches: LayerCaches) -> tuple[int, int]:
    """How many layers keep the whole context in place of a window, and the bytes a token costs on them."""
    windowed = [leaf for leaf in caches.leaves() if isinstance(leaf, WindowedKVCache)]
    arrays: list[Any] = [array for leaf in windowed for array in (leaf.keys, leaf.values)]
    return len(windowed), sum(array.nbytes // array.shape[2] for array in arrays)
