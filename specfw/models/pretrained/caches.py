"""The key-value caches of mlx-lm, held to the promise that they rewind.

A rotating cache forgets what left its window, so it cannot go back. Its layers get a plain cache that keeps the
whole context, and the window moves into the attention mask. A quantised cache quantises every token by itself, so
it forgets tokens as exactly as a plain one.
"""

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple, final

from specfw.models.base import Cache
from specfw.types import Ints

import mlx.core as mx
import numpy as np
from mlx.nn.layers.base import Module
from mlx.utils import tree_flatten
from mlx_lm.models.cache import (
    CacheList,
    KVCache,
    QuantizedKVCache,
    RotatingKVCache,
    create_attention_mask,
    make_prompt_cache,
)

STEP = KVCache.step
"""Tokens by which a cache grows."""


class Quantised(NamedTuple):
    """The format of quantised keys and values."""

    bits: int
    group_size: int


class _Windowed:
    """A mask that lets a token see the last `window` tokens, itself included."""

    window: int
    offset: int

    def make_mask(self, N: int, window_size: int | None = None, return_array: bool = False) -> Any:  # noqa: N803
        window = window_size or self.window
        limit = window if self.offset + N > window else None
        return create_attention_mask(N, self.offset, return_array, limit)


@final
class WindowedKVCache(_Windowed, KVCache):
    """A plain cache with the mask of a window."""

    def __init__(self, window: int) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.window = window


@final
class WindowedQuantizedKVCache(_Windowed, QuantizedKVCache):
    """A quantised cache with the mask of a window."""

    def __init__(self, window: int, quantised: Quantised) -> None:
        super().__init__(quantised.group_size, quantised.bits)
        self.window = window


def rewindable_caches(module: Module, role: str, quantised: Quantised | None = None) -> list[Any]:
    """The caches of a model's layers, rotating ones replaced.

    Args:
        module: the model.
        role: for messages.
        quantised: the format of keys and values, None to keep them as they are computed.

    Raises:
        ValueError: a layer's cache cannot rewind; the sentence names the role and the class of the cache.
    """
    return [_rewindable(cache, role, quantised) for cache in make_prompt_cache(module)]


def _rewindable(cache: Any, role: str, quantised: Quantised | None) -> Any:
    if type(cache) is CacheList:
        return CacheList(*(_rewindable(part, role, quantised) for part in cache.caches))  # type: ignore[no-untyped-call]
    if type(cache) is RotatingKVCache and not cache.keep:
        window = cache.max_size
        return WindowedKVCache(window) if quantised is None else WindowedQuantizedKVCache(window, quantised)
    if type(cache) is not KVCache:
        raise ValueError(
            f"{role}.path must be a model whose caches can be rewound, "
            f"got one with {type(cache).__name__} (recurrent, chunked and pinned states keep what was rejected)"
        )
    return cache if quantised is None else QuantizedKVCache(quantised.group_size, quantised.bits)


@final
class LayerCaches(Cache):
    """The caches of all layers for one sequence.

    Attributes:
        layers: what the model is called with.
    """

    def __init__(self, layers: list[Any]) -> None:
        self.layers = layers
        self._steps = 0

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
        self._give_back()

    def _give_back(self) -> None:
        """Free the buffers that the layers outgrew: the next are larger, so that none is ever used again."""
        steps = (self._length() - 2) // STEP  # two tokens on, a pass that was begun ahead has let go of them too
        if steps > self._steps:
            mx.clear_cache()
        self._steps = steps

    def arrays(self) -> list[mx.array]:
        return [array for leaf in self.leaves() for array in _arrays(leaf)] or [mx.zeros(1)]

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


def _arrays(leaf: Any) -> list[mx.array]:
    held: Any = tree_flatten([leaf.keys, leaf.values]) if leaf.keys is not None else []
    return [array for _, array in held]


def token_bytes(leaf: Any) -> int:
    """Bytes that a token costs in a layer's cache that holds at least one."""
    return sum(array.nbytes // array.shape[-2] for array in _arrays(leaf))


def windowed(caches: LayerCaches) -> list[Any]:
    """The layers' caches that keep the whole context in place of a window."""
    return [leaf for leaf in caches.leaves() if isinstance(leaf, _Windowed)]
