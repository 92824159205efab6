"""What a model predicts of text it has never seen, in nats a token and a byte."""

from collections.abc import Iterator
from typing import Any, NamedTuple

from specfw.distribution import from_logits
from specfw.registry import require

import mlx.core as mx
import numpy as np
import numpy.typing as npt

WINDOW = 256
ROWS = 16


class Loss(NamedTuple):
    """The loss on a text.

    Attributes:
        nats_per_token: mean of -log p(token), every window of WINDOW tokens on its own.
        nats_per_byte: their sum over the text's UTF-8 length: comparable between tokenizers.
        tokens: how many were predicted.
    """

    nats_per_token: float
    nats_per_byte: float
    tokens: int


def loss(model: Any, stream: npt.NDArray[np.int32], size_bytes: int, limit: int | None = None) -> Loss:
    """Measure by mlx-lm's own forward pass.

    Args:
        model: mlx-lm's model.
        stream: [N] int32, the text.
        size_bytes: its length.
        limit: windows to look at; None for all.

    Raises:
        ValueError: the text is shorter than a window.
    """
    require("held_out", len(stream) > WINDOW, f"more than {WINDOW} tokens long", len(stream))
    total, count = 0.0, 0
    for tokens in batches(stream, limit):
        row = from_logits(model(tokens[:, :-1]))
        surprise = -mx.log(row.at(tokens[:, 1:]))
        total += float(surprise.sum())
        count += surprise.size
    return Loss(total / count, total / count * len(stream) / size_bytes, count)


def batches(stream: npt.NDArray[np.int32], limit: int | None = None) -> Iterator[mx.array]:
    """The stream's windows, [<= ROWS, WINDOW + 1] int32, next to each other; `limit` windows at most."""
    windows = (len(stream) - 1) // WINDOW
    starts = np.arange(windows)[:limit, None] * WINDOW
    for first in range(0, len(starts), ROWS):
        yield mx.array(stream[starts[first : first + ROWS] + np.arange(WINDOW + 1)])
