"""A cache counted in one model's tokens that holds another's: each token in one or more pieces."""

from typing import Any, final

from specfw.models.base import Cache
from specfw.types import Ints

import numpy as np


@final
class PieceCache(Cache):
    """The drafter's cache of one sequence, counted in the target's tokens.

    Attributes:
        inner: the drafter's own, counted in its own.
    """

    def __init__(self, inner: Cache) -> None:
        self.inner = inner
        self._pieces: list[int] = []

    @property
    def lengths(self) -> Ints:
        return np.array([len(self._pieces)])

    def hold(self, pieces: list[int]) -> None:
        """Count tokens that were fed, each in so many pieces."""
        self._pieces += pieces

    def rewind(self, counts: Ints) -> None:
        kept = len(self._pieces) - int(counts[0])
        if not 0 <= kept <= len(self._pieces):
            raise RuntimeError(f"a cache of {len(self._pieces)} tokens was asked to forget {counts[0]}")
        self.inner.rewind(np.array([sum(self._pieces[kept:])]))
        del self._pieces[kept:]

    def arrays(self) -> Any:
        return self.inner.arrays()
