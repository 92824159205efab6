"""A toy whose law depends on the last tokens, read from its cache: a wrong token held there shows."""

from dataclasses import dataclass
from typing import final

from specfw.models._toy import Place, Probability, Rows, ToyModel, check_id, checked_rows
from specfw.models.base import ModelSpec
from specfw.registry import register, require
from specfw.types import Ints

import mlx.core as mx
import numpy as np

LONGEST_CONTEXT = 24
MOST_PROBABILITIES = 2**24


@final
@register("model")
@dataclass(frozen=True, kw_only=True)
class Markov(ModelSpec):
    """A Markov chain of order k, its rows given or drawn.

    Attributes:
        order: k, in [1, 24].
        rows: [V^k, V] the law after each context, numbers or fractions "a/b"; the context's ids in the order
            they were read are the digits of the row's number in base V. Empty to draw them.
        vocab_size: V of drawn rows.
        row_seed: seed of drawn rows, at least 0; a matter of the model, not of the run.
        concentration: of the symmetric Dirichlet law of drawn rows; small makes peaked rows.
        start: id that stands in front of the first token.
        eos_id: end-of-sequence id, in [0, V).
    """

    order: int = 1
    rows: tuple[tuple[Probability, ...], ...] = ()
    vocab_size: int | None = None
    row_seed: int | None = None
    concentration: float = 1.0
    start: int = 0
    eos_id: int | None = None

    def __post_init__(self) -> None:
        require("order", 1 <= self.order <= LONGEST_CONTEXT, f"in [1, {LONGEST_CONTEXT}]", self.order)
        drawn = self.vocab_size is not None and self.row_seed is not None
        given = self.vocab_size is None and self.row_seed is None
        either = "given where vocab_size and row_seed are not, and empty where both are"
        require("rows", given if self.rows else drawn, either, self.rows)
        size = len(self.rows[0]) if self.vocab_size is None else self.vocab_size
        require("vocab_size", size >= 1, "at least 1", size)
        bound = f"at most {MOST_PROBABILITIES} probabilities (V^(order + 1))"
        require("order", size ** (self.order + 1) <= MOST_PROBABILITIES, bound, self.order)
        if self.rows:
            count = size**self.order
            require("rows", len(self.rows) == count, f"V^order = {count} rows", len(self.rows))
            checked_rows("rows", self.rows)
        require("row_seed", self.row_seed is None or self.row_seed >= 0, "at least 0", self.row_seed)
        require("concentration", 0 < self.concentration < float("inf"), "in (0, inf)", self.concentration)
        check_id("start", self.start, size)
        check_id("eos_id", self.eos_id, size)

    def load(self, role: str) -> ToyModel:
        rows = self._table()
        place = _by_context(self.order, rows.shape[1])
        context = self.order - 1
        name = f"{role} (markov)"
        return ToyModel(name, rows, place, eos_id=self.eos_id, context=context, start=self.start)

    def _table(self) -> Rows:
        if self.vocab_size is None:
            return checked_rows("rows", self.rows)
        generator = np.random.Generator(np.random.PCG64(self.row_seed))
        alphas = np.full(self.vocab_size, self.concentration)
        return generator.dirichlet(alphas, size=self.vocab_size**self.order)


def _by_context(order: int, vocab_size: int) -> Place:
    def place(tokens: mx.array, before: Ints) -> mx.array:
        count = tokens.shape[1] - order + 1
        number = mx.zeros((tokens.shape[0], count), dtype=mx.int32)
        for digit in range(order):
            number = number * vocab_size + tokens[:, digit : digit + count]
        return number

    return place
