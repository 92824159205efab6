"""Adapters: fine-tuned low-rank or whole layers on top of a checkpoint, as mlx-lm trains and saves them."""

from pathlib import Path

from specfw.models.pretrained.folder import check_adapter, one_sentence

from mlx.nn.layers.base import Module
from mlx_lm.utils import load_adapters


def adapted(module: Module, folder: Path, role: str) -> str:
    """Put an adapter into a model, lazily loaded, and say which it is.

    Args:
        module: changed in place.
        folder: with adapter_config.json and adapters.safetensors.
        role: for messages.

    Raises:
        ValueError: the adapter is broken, or belongs to another model.
    """
    base = check_adapter(folder, role).get("model", "a model it does not name")
    with one_sentence(f"{role}.adapter_path must be an adapter of {role}.path, got {str(folder)!r}"):
        load_adapters(module, str(folder))
    module.eval()
    return f"{role}: with the adapter {folder}, trained on {base}"
