"""Which windows of the text a training step sees: a function of seed and step, so that resuming changes nothing."""

from dataclasses import dataclass
from functools import lru_cache
from typing import Any, final

from specfw.registry import require

import numpy as np
import numpy.typing as npt


@final
@dataclass(frozen=True, kw_only=True, eq=False)
class Batches:
    """Every epoch cuts the stream into windows at an offset of its own and shuffles them.

    Attributes:
        stream: [N] int32, the training text.
        rows: windows of a step.
        length: tokens predicted in a window.
        seed: of offsets and orders.
    """

    stream: npt.NDArray[np.int32]
    rows: int
    length: int
    seed: int

    def __post_init__(self) -> None:
        enough = self.rows * self.length + self.length
        require("stream", len(self.stream) > enough, f"more than {enough} tokens long", len(self.stream))

    @property
    def steps_per_epoch(self) -> int:
        """Steps that see every window once, as far as they fill whole batches."""
        return ((len(self.stream) - 1) // self.length - 1) // self.rows

    def at(self, step: int) -> npt.NDArray[np.int32]:
        """The batch of a step, [rows, length + 1] int32: a window and the token after it."""
        epoch, place = divmod(step, self.steps_per_epoch)
        starts = self._starts(epoch)[place * self.rows : (place + 1) * self.rows]
        return self.stream[starts[:, None] + np.arange(self.length + 1)]

    def _starts(self, epoch: int) -> npt.NDArray[Any]:
        return _starts(self.seed, epoch, self.steps_per_epoch * self.rows, self.length)


@lru_cache(maxsize=2)
def _starts(seed: int, epoch: int, windows: int, length: int) -> npt.NDArray[Any]:
    generator = np.random.default_rng([seed, epoch])
    offset = generator.integers(length)
    return generator.permutation(windows) * length + offset
