"""What the toy models share: a table of known rows, and a cache of tokens that really forgets.

A toy's logits are the logarithms of the rows it was given, so p and q of a run are known in advance.
"""

import hashlib
import math
from collections.abc import Callable, Sequence
from fractions import Fraction
from typing import Any, TypeAlias, final

from specfw.models.base import Cache, LanguageModel
from specfw.models.tokenizer import IdTokenizer
from specfw.registry import require
from specfw.types import Ints

import mlx.core as mx
import numpy as np
import numpy.typing as npt

Probability: TypeAlias = Any
"""A number, or a fraction written "a/b"; a configuration holds both in one list."""

Rows: TypeAlias = npt.NDArray[np.float64]
Place: TypeAlias = Callable[[mx.array, Ints], mx.array]

REWINDABLE = 256
SUM_TOLERANCE = 1e-6


@final
class ToyCache(Cache):
    """The lengths of B rows, and of their tokens as many as a toy needs to read, the newest last.

    Before its first token every row holds `context` times the id `start`.

    Args:
        batch_size: B.
        context: ids a toy reads beyond the one it is fed.
        start: the id in front of the first token.
    """

    def __init__(self, batch_size: int, context: int, start: int) -> None:
        self._context = context
        self._lengths = np.zeros(batch_size, dtype=np.int64)
        self._kept = np.full(batch_size, context, dtype=np.int64)
        self._tail = mx.full((batch_size, context), start, dtype=mx.int32)

    @property
    def lengths(self) -> Ints:
        return self._lengths

    def append(self, tokens: mx.array) -> mx.array:
        """Hold `tokens` [B, T]; returns them after the ids in front of them, [B, context + T] int32."""
        count = tokens.shape[1]
        self._lengths = self._lengths + count
        if not self._context:
            return tokens
        joined = mx.concatenate([self._tail, tokens.astype(mx.int32)], axis=1)
        width = min(joined.shape[1], self._context + max(count, REWINDABLE))
        self._tail = joined[:, joined.shape[1] - width :]
        self._kept = np.minimum(self._kept + count, width)
        return joined[:, joined.shape[1] - self._context - count :]

    def rewind(self, counts: Ints) -> None:
        allowed = np.minimum(self._lengths, self._kept - self._context) if self._context else self._lengths
        if ((counts < 0) | (counts > allowed)).any():
            raise RuntimeError(f"a toy cache that can forget {allowed} tokens was asked to forget {counts}")
        self._lengths = self._lengths - counts
        if self._context and counts.any():
            self._kept = self._kept - counts
            places = np.maximum(np.arange(self._tail.shape[1]) - counts[:, None], 0)
            self._tail = mx.take_along_axis(self._tail, mx.array(places.astype(np.int32)), axis=1)

    def arrays(self) -> mx.array:
        return self._tail


@final
class ToyModel(LanguageModel):
    """Logits log(rows[place]), where `place` says which row a token is answered with.

    Args:
        name: how messages call it.
        rows: [R, V] probabilities; 0 becomes -inf. They are not checked here: tests put NaN into them.
        place: from the ids [B, context + T] and the lengths [B] before them to row indices [B, T].
        eos_id: end-of-sequence id.
        context: ids `place` reads beyond the T that are fed.
        start: the id in front of the first token.
    """

    batched = True

    def __init__(
        self, name: str, rows: Rows, place: Place, *, eos_id: int | None = None, context: int = 0, start: int = 0
    ) -> None:
        self.name = name
        self.vocab_size = rows.shape[1]
        self.eos_ids = frozenset() if eos_id is None else frozenset({eos_id})
        self.tokenizer = IdTokenizer(eos_id)
        self._rows, self._place = rows, place
        self._context, self._start = context, start
        with np.errstate(divide="ignore"):
            self._logits = mx.array(np.log(rows).astype(np.float32))

    def new_cache(self, batch_size: int) -> ToyCache:
        return ToyCache(batch_size, self._context, self._start)

    def forward(self, tokens: mx.array, cache: Cache) -> mx.array:
        assert isinstance(cache, ToyCache)
        before = cache.lengths
        return self._logits[self._place(cache.append(tokens), before)]

    def fingerprint(self) -> dict[str, Any]:
        digest = hashlib.sha256(np.ascontiguousarray(self._rows).tobytes())
        return {"rows": list(self._rows.shape), "sha256": digest.hexdigest()}


def by_token(tokens: mx.array, before: Ints) -> mx.array:
    """The row of the token fed."""
    return tokens


def by_position(count: int) -> Place:
    """The row of the next position, counted by the cache's own length, modulo `count` rows."""

    def place(tokens: mx.array, before: Ints) -> mx.array:
        following = before[:, None] + 1 + np.arange(tokens.shape[1])
        return mx.array((following % count).astype(np.int32))

    return place


def checked_rows(field: str, rows: Sequence[Sequence[Probability]]) -> Rows:
    """The rows [R, V] as numbers.

    Raises:
        ValueError: no rows, rows of different sizes, or a row that is no distribution.
    """
    require(field, len(rows) > 0 and len(rows[0]) > 0, "at least one row of at least one probability", rows)
    require(field, len({len(row) for row in rows}) == 1, "rows of one size", [len(row) for row in rows])
    return np.array([checked_row(field, row) for row in rows])


def checked_row(field: str, row: Sequence[Probability]) -> list[float]:
    """The row [V] as numbers; see `checked_rows` for the errors."""
    numbers = [_number(field, value) for value in row]
    proper = all(math.isfinite(number) and number >= 0 for number in numbers)
    require(field, len(numbers) > 0 and proper, "finite probabilities of at least 0", list(row))
    total = math.fsum(numbers)
    require(field, abs(total - 1) <= SUM_TOLERANCE, f"probabilities that sum to 1 within {SUM_TOLERANCE}", total)
    return numbers


def peaked_rows(peaks: Sequence[int], vocab_size: int, peak: float) -> Rows:
    """Rows [R, V] with probability `peak` on one id each, the rest shared alike by the others."""
    rows = np.full((len(peaks), vocab_size), (1 - peak) / max(vocab_size - 1, 1))
    rows[np.arange(len(peaks)), list(peaks)] = peak
    return rows


def check_peak(peak: float, vocab_size: int) -> None:
    """A peak is a probability, and 1 where there is no other id."""
    require("peak", 0 <= peak <= 1 and (vocab_size > 1 or peak == 1), "in [0, 1], and 1 for one id", peak)


def check_id(field: str, token: int | None, vocab_size: int) -> None:
    """An id, where there is one, lies below V."""
    require(field, token is None or 0 <= token < vocab_size, f"in [0, {vocab_size})", token)


def _number(field: str, value: Probability) -> float:
    if isinstance(value, str):
        try:
            return float(Fraction(value))
        except (ValueError, ZeroDivisionError) as error:
            raise ValueError(f'{field} must be numbers or fractions "a/b", got {value!r}') from error
    number = isinstance(value, int | float) and not isinstance(value, bool)
    require(field, number, 'numbers or fractions "a/b"', value)
    return float(value)
