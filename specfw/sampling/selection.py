"""Which entries of a row come first: by falling value, among equals by rising id; array code, no full sort."""

import math

from specfw.summation import BLOCK, block_sum

import mlx.core as mx

PART = 128


def largest(values: mx.array, count: int) -> mx.array:
    """[..., count] int32, ascending: the places of the first `count` < S entries of `values` [..., S].

    Long rows are cut into parts: the entries sought lie in the `count` parts whose maxima come first, and
    those parts are sought the same way.
    """
    width = values.shape[-1]
    if width < 2 * count * PART:
        return _places(first(values, _edge(values, count), count), count)
    padding = [(0, 0)] * (values.ndim - 1) + [(0, -width % PART)]
    parts = mx.pad(values, padding, constant_values=-math.inf).reshape(*values.shape[:-1], -1, PART)
    chosen = largest(parts.max(axis=-1), count)
    candidates = mx.take_along_axis(parts, chosen[..., None], axis=-2).flatten(-2)
    places = largest(candidates, count)
    found = mx.take_along_axis(chosen, places // PART, axis=-1) * PART + places % PART
    return mx.minimum(found, width - 1)


def top(values: mx.array, count: int) -> mx.array:
    """[..., S] bool, true at the first `count` entries of `values` [..., S], everywhere if S <= count."""
    if count >= values.shape[-1]:
        return mx.ones(values.shape, dtype=mx.bool_)
    return first(values, _edge(values, count), count)


def at_least_top(values: mx.array, count: int) -> mx.array:
    """[..., S] bool, true at the first `count` entries and at all that equal the last of them."""
    return values >= _edge(values, min(count, values.shape[-1]))


def first(values: mx.array, edge: mx.array, count: int | mx.array) -> mx.array:
    """[..., S] bool, true at `count` [..., 1] entries: those above `edge`, then the lowest ids that equal it."""
    above, ties = values > edge, values == edge
    room = count - above.sum(axis=-1, keepdims=True)
    return above | (ties & (mx.cumsum(ties.astype(mx.int32), axis=-1) <= room))


def nucleus(probs: mx.array, mass: float) -> tuple[mx.array, mx.array]:
    """The smallest number of first entries of `probs` [..., S] that hold at least `mass`; one at least.

    A row is halved by partition until a block is left: if the larger half holds the mass still needed, the
    edge is in it, else that half belongs to the nucleus as a whole. Two partitions' cost instead of a sort,
    and no sum runs over more than 512 terms.

    Returns:
        edge: [..., 1] the least probability inside.
        count: [..., 1] int32, how many entries.
    """
    width = probs.shape[-1]
    halvings = max(0, math.ceil(math.log2(width / BLOCK)))
    rest = mx.pad(probs, [(0, 0)] * (probs.ndim - 1) + [(0, -width % 2**halvings)])
    need = mx.full((*probs.shape[:-1], 1), mass, dtype=probs.dtype)
    count = mx.zeros(need.shape, dtype=mx.int32)
    for _ in range(halvings):
        half = rest.shape[-1] // 2
        split = mx.partition(rest, half, axis=-1)
        low, high = split[..., :half], split[..., half:]
        held = block_sum(high)[..., None]
        inside = held >= need
        rest = mx.where(inside, high, low)
        need = mx.where(inside, need, need - held)
        count = mx.where(inside, count, count + half)
    falling = -mx.sort(-rest, axis=-1)
    before = mx.cumsum(falling, axis=-1, inclusive=False)
    inner = mx.maximum((before < need).sum(axis=-1, keepdims=True), 1)
    return mx.take_along_axis(falling, inner - 1, axis=-1), count + inner


def _edge(values: mx.array, count: int) -> mx.array:
    """[..., 1] the `count`-th largest entry."""
    place = values.shape[-1] - count
    return mx.partition(values, place, axis=-1)[..., place : place + 1]


def _places(chosen: mx.array, count: int) -> mx.array:
    """[..., count] int32, ascending: where `chosen` holds; a row of NaN chooses nothing, and any id shows it."""
    width = chosen.shape[-1]
    places = mx.where(chosen, mx.arange(width, dtype=mx.int32), width)
    found = mx.sort(mx.partition(places, count - 1, axis=-1)[..., :count], axis=-1)
    return mx.minimum(found, width - 1)
