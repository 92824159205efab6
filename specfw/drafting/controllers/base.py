"""What a controller is: it chooses how many tokens to draft, row by row, from what that row's rounds showed.

It may end a block after a token that is kept, and never discards one that was drawn: discarding a token for its own
probability biases every ratio rule. It reads no clock, so seed and configuration give the text; and what it does for
one row does not depend on the other rows of a batch.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, NamedTuple, Self

from specfw.types import Ints, Outcome

import numpy as np
import numpy.typing as npt


class Costs(NamedTuple):
    """What forward passes cost on this machine.

    Attributes:
        target_s: seconds of one target pass, by the number of rows.
        draft_step_s: seconds of one drafter pass over one row.
    """

    target_s: dict[int, float]
    draft_step_s: float


class DraftLength(ABC):
    """A controller at work on one batch.

    Attributes:
        stops_inside: whether `goes_on` is to be asked, at one evaluation a drafted token.
    """

    stops_inside: bool = False

    @abstractmethod
    def next(self) -> Ints:
        """[B] the number of tokens to draft in the coming round, 0 for none."""

    @abstractmethod
    def observe(self, outcome: Outcome) -> None:
        """Take in a finished round."""

    def goes_on(self, q: npt.NDArray[np.floating[Any]]) -> npt.NDArray[np.bool_]:
        """[B] whether a row drafts on after a token of probability `q` [B], which is kept."""
        return np.ones(len(q), dtype=np.bool_)


class Controller(ABC):
    """A component that makes a `DraftLength`."""

    @abstractmethod
    def open(self, rows: int) -> DraftLength:
        """Start afresh on a batch of `rows` sequences."""

    @property
    @abstractmethod
    def longest(self) -> int:
        """The largest number of tokens it may ask for."""

    def costed(self, measure: Callable[[int], Costs]) -> Self:
        """The controller with what it must know of the machine; asked once, before the first round.

        Args:
            measure: takes passes of up to that many rows.
        """
        return self
