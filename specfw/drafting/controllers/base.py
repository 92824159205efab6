"""What a controller is: it chooses how many tokens to draft, from what earlier rounds showed and nothing else.

It must not look at a draft token before it is kept: discarding a token for its own probability biases every
ratio rule.
"""

from abc import ABC, abstractmethod

from specfw.types import Outcome


class DraftLength(ABC):
    """A controller at work on one batch."""

    @abstractmethod
    def next(self) -> int:
        """The number of tokens to draft in the coming round, 0 for none."""

    @abstractmethod
    def observe(self, outcome: Outcome) -> None:
        """Take in a finished round."""


class Controller(ABC):
    """A component that makes a `DraftLength`."""

    @abstractmethod
    def open(self) -> DraftLength:
        """Start afresh."""
