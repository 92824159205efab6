"""The draws of a run: functions of (seed, stream, prompt, sample, position[, round]) and of nothing else.

The only module that knows how MLX lays out a key. A key is a 64-bit mix of its tuple, computed on the host
for a whole round at once; draws are batched by `mx.vmap`, because a draw in MLX depends on the shape asked.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from enum import IntEnum
from typing import Self, TypeAlias

from specfw.backend import bind

bind()

import mlx.core as mx  # noqa: E402 - the BLAS must be bound before MLX is loaded
import numpy as np  # noqa: E402
import numpy.typing as npt  # noqa: E402

SEED_LIMIT = 2**64

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_FIRST = np.uint64(0xBF58476D1CE4E5B9)
_SECOND = np.uint64(0x94D049BB133111EB)
_SHIFTS = np.uint64(30), np.uint64(27), np.uint64(31)
_AHEAD = 8

State: TypeAlias = npt.NDArray[np.uint64]


class Stream(IntEnum):
    """What a draw is for; equal tuples in two streams share nothing."""

    TARGET = 1
    COIN = 2
    DRAFT = 3
    ACCEPT = 4
    RESIDUAL = 5
    AUDIT = 6


def keys(seed: int, stream: Stream, *coordinates: npt.ArrayLike) -> mx.array:
    """MLX keys [..., 2] uint32, one for each element of the broadcast integer `coordinates`.

    Each coordinate passes through the finaliser of SplitMix64 (Steele, Lea, Flood 2014) before the next one
    enters.
    """
    shape = np.broadcast_shapes(*(np.shape(coordinate) for coordinate in coordinates))
    return _as_keys(_absorb(_begin(seed, stream), *coordinates)).reshape(*shape, 2)


def _begin(seed: int, stream: Stream) -> State:
    return _absorb(_finalise(np.array([seed], dtype=np.uint64)), int(stream))


def _absorb(state: State, *coordinates: npt.ArrayLike) -> State:
    """The state, never without an axis, after each coordinate in turn."""
    for coordinate in coordinates:
        state = _finalise(state ^ np.asarray(coordinate, dtype=np.int64).astype(np.uint64))
    return state


def _finalise(state: State) -> State:
    mixed = state + _GOLDEN
    mixed = (mixed ^ (mixed >> _SHIFTS[0])) * _FIRST
    mixed = (mixed ^ (mixed >> _SHIFTS[1])) * _SECOND
    return mixed ^ (mixed >> _SHIFTS[2])


def _as_keys(state: State) -> mx.array:
    """[..., 2] the high and the low half of each state."""
    halves = state.astype("<u8", order="C")[..., None].view("<u4")[..., ::-1]
    return mx.array(np.ascontiguousarray(halves))


def uniforms(key: mx.array, count: int) -> mx.array:
    """Uniform draws [..., count] float32 in [0, 1) from keys [..., 2]."""
    flat = key.reshape(-1, 2)
    drawn = mx.vmap(lambda k: mx.random.uniform(shape=(count,), key=k))(flat)
    return drawn.reshape(*key.shape[:-1], count)


def exponentials(key: mx.array, vocab_size: int) -> mx.array:
    """Exponential noise [..., V] float32 > 0 of rate 1 from keys [..., 2], resolved down to u = 2^-33."""
    return -mx.log1p(-mx.maximum(uniforms(key, vocab_size), 2.0**-33))


@dataclass(frozen=True, kw_only=True)
class Noise:
    """Every draw that one round may make, by name.

    Attributes:
        seed: of the run.
        prompt: [B] each row's place in the whole list of prompts.
        sample: [B] each row's sample number.
        position: [B] the index, in prompt + output, of the round's first token.
        round: the rows' own round, from 0.
        vocab_size: V of the target.
    """

    seed: int
    prompt: npt.NDArray[np.int64]
    sample: npt.NDArray[np.int64]
    position: npt.NDArray[np.int64]
    round: int
    vocab_size: int
    _rows: dict[Stream, State] = field(default_factory=dict, repr=False, compare=False)
    _drafts: dict[int, mx.array] = field(default_factory=dict, init=False, repr=False, compare=False)

    def at(self, position: npt.NDArray[np.int64], round_: int) -> Self:
        """The draws of another round of the same rows."""
        return replace(self, position=position, round=round_)

    def accept(self) -> mx.array:
        """[B] the uniform that decides how many draft tokens stand."""
        return uniforms(self._of_round(Stream.ACCEPT), 1)[..., 0]

    def residual(self) -> mx.array:
        """[B, 2] the uniforms that draw the recovered or bonus token of a ratio rule."""
        return uniforms(self._of_round(Stream.RESIDUAL), 2)

    def draft(self, offset: int) -> mx.array:
        """[B, 2] the uniforms that draw the draft token `offset` places into the round."""
        several, place = divmod(offset, _AHEAD)
        if several not in self._drafts:  # one call for several places costs what one place does
            offsets = range(several * _AHEAD, (several + 1) * _AHEAD)
            self._drafts[several] = uniforms(self._per_place(Stream.DRAFT, offsets, self.round), 2)
        return self._drafts[several][:, place]

    def target(self, offsets: Sequence[int]) -> mx.array:
        """[B, len(offsets), V] the exponential noise of the target's own draws at those places of the round."""
        return exponentials(self._per_place(Stream.TARGET, offsets), self.vocab_size)

    def coin(self, offsets: Sequence[int]) -> mx.array:
        """[B, len(offsets)] the coin of XTC at those places, the same for target and drafter."""
        return uniforms(self._per_place(Stream.COIN, offsets), 1)[..., 0]

    def _of_round(self, stream: Stream) -> mx.array:
        return _as_keys(_absorb(self._row(stream), self.position, self.round))

    def _per_place(self, stream: Stream, offsets: Sequence[int], *behind: int) -> mx.array:
        positions = self.position[:, None] + np.asarray(offsets, dtype=np.int64)
        return _as_keys(_absorb(self._row(stream)[:, None], positions, *behind))

    def _row(self, stream: Stream) -> State:
        """[B] what a stream's keys have in common from round to round."""
        if stream not in self._rows:
            self._rows[stream] = _absorb(_begin(self.seed, stream), self.prompt, self.sample)
        return self._rows[stream]
