"""Where an interrupted training goes on: weights, optimiser state and step in one file, replaced in one move."""

import os
from pathlib import Path
from typing import Any

from specfw.backend import bind

bind()

import mlx.core as mx  # noqa: E402 - the BLAS must be bound before MLX is loaded
from mlx.utils import tree_flatten, tree_unflatten  # noqa: E402

FILE = "checkpoint.safetensors"


def save(folder: Path, model: Any, optimizer: Any, step: int) -> None:
    """Replace the checkpoint in `folder`; an interruption leaves the old one or the new one."""
    arrays: Any = tree_flatten({"model": model.parameters(), "optimizer": optimizer.state})
    partial = folder / f"partial-{FILE}"
    mx.save_safetensors(str(partial), dict(arrays), {"step": str(step)})
    with partial.open("rb") as file:
        os.fsync(file.fileno())
    partial.replace(folder / FILE)


def restore(folder: Path, model: Any, optimizer: Any) -> int:
    """Bring model and optimiser to where the checkpoint in `folder` left them.

    Returns:
        Steps done; 0 where there is no checkpoint.
    """
    path = folder / FILE
    if not path.exists():
        return 0
    arrays, metadata = _read(path)
    state: Any = tree_unflatten(list(arrays.items()))
    model.update(state["model"])
    optimizer.state = state["optimizer"]
    mx.eval(model.state, optimizer.state)
    return int(metadata["step"])


def weights(folder: Path) -> tuple[dict[str, mx.array], int]:
    """The model's weights in the checkpoint of `folder`, by their names in mlx-lm, and the steps that made them.

    Raises:
        ValueError: there is no checkpoint.
    """
    path = folder / FILE
    if not path.exists():
        raise ValueError(f"the run must have a checkpoint, got {folder} without {FILE}")
    arrays, metadata = _read(path)
    own = {name.removeprefix("model."): array for name, array in arrays.items() if name.startswith("model.")}
    return own, int(metadata["step"])


def _read(path: Path) -> tuple[dict[str, mx.array], dict[str, str]]:
    loaded: Any = mx.load(str(path), return_metadata=True)
    arrays, metadata = loaded
    return arrays, metadata
