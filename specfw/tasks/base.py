"""What a task is: what a whole configuration is run for. Generating is one, proving and comparing are others."""

from abc import ABC, abstractmethod
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

if TYPE_CHECKING:
    from specfw.shelf import Shelf


class Job(NamedTuple):
    """What a task is given.

    Attributes:
        config: the whole configuration, plain and resolved.
        unresolved: the same, with the draft chain's interpolations to the target's kept; what a record keeps.
        folder: where the run writes; it exists.
        acceptance: a Python caller's explicit choice of rule, which beats everything else; usually None.
        shelf: models that jobs of this process may leave to each other; None opens them anew.
    """

    config: dict[str, Any]
    unresolved: dict[str, Any]
    folder: Path
    acceptance: str | None
    shelf: "Shelf | None" = None


class Outcome(Protocol):
    """What a task returns, whatever else it holds."""

    @property
    def passed(self) -> bool:
        """Whether every check of the run passed; False is exit status 1."""
        ...


class Task(ABC):
    """A component of group `task`: a frozen dataclass of the task's own keys."""

    @abstractmethod
    def run(self, job: Job) -> Outcome:
        """Do it.

        Raises:
            ValueError: bad input, exit status 2.
            FailedCheckError: a check failed on the way, exit status 1.
            KeyboardInterrupt: after what ran was recorded, exit status 130.
        """

    def objective_of(self, outcome: Any) -> float | None:
        """The number of an outcome that a search is to make large; None where none was asked for."""
        return None
