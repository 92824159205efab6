"""What a language model is here: tokens and a cache in, logits out; and what a cache promises.

A cache holds the tokens it was fed. Before a round the target's holds n - 1 of the n committed tokens, the
drafter's at most n - 2; after a round each is rewound to what was really emitted, and `lengths` says so.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

from specfw.models.tokenizer import Tokenizer
from specfw.types import Ints

import mlx.core as mx
import numpy as np

Progress: TypeAlias = Callable[[str, int, int], None]
"""Called once a chunk with the role of a model, the tokens of the prompt it has taken in, and all it takes in."""


class Cache(ABC):
    """State of one model for B sequences."""

    @property
    @abstractmethod
    def lengths(self) -> Ints:
        """[B] tokens held by each row."""

    @abstractmethod
    def rewind(self, counts: Ints) -> None:
        """Forget the last `counts` [B] tokens of each row.

        Raises:
            RuntimeError: fewer tokens were dropped than asked.
        """

    @abstractmethod
    def arrays(self) -> Any:
        """What to evaluate so that no graph is carried from round to round: a tree of arrays, never empty."""


class Footprint(NamedTuple):
    """Memory that a model takes while one sequence is decoded.

    Attributes:
        weights_bytes: its weights, in the format it computes in.
        cache_bytes: its cache of the whole sequence.
        work_bytes: the largest intermediate array of a prefill chunk.
    """

    weights_bytes: int = 0
    cache_bytes: int = 0
    work_bytes: int = 0


class LanguageModel(ABC):
    """A model that can be fed; its weights are read by `read`, or when it is fed first.

    Attributes:
        vocab_size: V, the width of its logits.
        eos_ids: end-of-sequence ids, empty when it has none.
        batched: whether more than one sequence can be fed at once.
        name: how error messages and logs call it.
        tokenizer: its words; toys read and write ids separated by spaces.
        notes: sentences for the log about what loading changed: precision, caches.
    """

    vocab_size: int
    eos_ids: frozenset[int]
    batched: bool
    name: str
    tokenizer: Tokenizer
    notes: tuple[str, ...] = ()

    @abstractmethod
    def new_cache(self, batch_size: int) -> Cache:
        """An empty cache for B sequences."""

    @abstractmethod
    def forward(self, tokens: mx.array, cache: Cache) -> mx.array:
        """Feed `tokens` [B, T] int32 after what the cache holds; logits [B, T, V] in the model's dtype."""

    def follow(self, tokens: mx.array, cache: Cache) -> mx.array:
        """`forward` for tokens that were drawn from this model's own rows, and may not be computed yet."""
        return self.forward(tokens, cache)

    def kept_mass(self) -> mx.array | None:
        """[B] what its own row puts on the tokens that it may draw, after the last `forward`; None: it draws all."""
        return None

    @property
    def module(self) -> Any:
        """mlx-lm's own model of these ids, for its generators to run on; None where there is none.

        Its weights may be unread: `read` comes first.
        """
        return None

    @abstractmethod
    def fingerprint(self) -> dict[str, Any]:
        """What identifies the weights in a record: digests, commit, rows."""

    def footprint(self, tokens: int, chunk: int) -> Footprint:
        """Memory for a sequence of `tokens` fed in chunks of `chunk`, known before weights are read."""
        return Footprint()

    def read(self) -> None:  # noqa: B027 - a toy has nothing to read
        """Read the weights into memory.

        Raises:
            ValueError: they cannot be read.
        """

    @property
    def held_bytes(self) -> int:
        """Bytes of weights that are in memory already."""
        return 0


class ModelSpec(ABC):
    """A component that names a model; `check` looks whether it is there, `load` reads it."""

    def check(self, role: str) -> None:  # noqa: B027 - a toy has nothing to look for
        """Refuse what can be refused without reading weights, so that no model loads before a wrong one.

        Raises:
            ValueError: the sentence names `<role>.<field>`.
        """

    def files(self, role: str) -> tuple[Path, ...] | None:
        """All files that opening and reading the model may read, in order; None where that is not known.

        While none of them changes, the opened model may serve the next job of a sweep.
        """
        return None

    @abstractmethod
    def load(self, role: str) -> LanguageModel:
        """Open the model as `role` ("target" or "drafter"); large weights are left unread.

        Raises:
            ValueError: it cannot be read, or its cache cannot rewind; the sentence names `<role>.<field>`.
        """


def unheard(role: str, taken: int, of: int) -> None:
    """Progress that nobody follows."""


def prefill(model: LanguageModel, cache: Cache, tokens: Ints, chunk: int) -> Iterator[int]:
    """Feed `tokens` [B, L] in chunks, evaluating once a chunk; yields the tokens of a row fed so far."""
    total = tokens.shape[1]
    for start in range(0, total, chunk):
        part = mx.array(tokens[:, start : start + chunk].astype(np.int32))
        model.forward(part, cache)
        mx.eval(cache.arrays())
        mx.clear_cache()  # buffers grow from chunk to chunk, so none is used again
        yield min(start + chunk, total)
