"""The number format a checkpoint computes in."""

from typing import Any

import mlx.core as mx
from mlx.nn.layers.quantized import QuantizedEmbedding, QuantizedLinear
from mlx.utils import tree_flatten
from mlx_lm.models.switch_layers import QuantizedSwitchLinear
from mlx_lm.utils import dequantize_model

FORMATS = {"float32": mx.float32, "float16": mx.float16, "bfloat16": mx.bfloat16}

_DEQUANTISED = (QuantizedLinear, QuantizedEmbedding, QuantizedSwitchLinear)


def convert(module: Any, dtype: str, role: str) -> str | None:
    """Bring a model, lazily loaded, into `dtype`, and say what changed.

    Args:
        module: changed in place.
        dtype: one of FORMATS; `stored`, which changes nothing; or `auto`: as stored on a GPU, float32 on a CPU,
            where products of quantised and half-precision numbers are slow.
        role: for messages.

    Raises:
        ValueError: a kind of quantised layer that cannot be turned into numbers.
    """
    stored = _formats(module)
    if dtype == "stored" or (dtype == "auto" and mx.default_device().type == mx.DeviceType.gpu):
        return None
    wanted = "float32" if dtype == "auto" else dtype
    quantised = [layer for layer in module.modules() if "scales" in layer]
    _refuse_unknown(quantised, role)
    if quantised:
        dequantize_model(module)
    module.set_dtype(FORMATS[wanted])
    if stored == {wanted} and not quantised:
        return None
    layers = f" ({len(quantised)} quantised layers)" if quantised else ""
    return f"{role}: weights stored as {', '.join(sorted(stored))}{layers} are computed in {wanted}"


def formats(module: Any) -> list[str]:
    """The number formats of a model's weights."""
    return sorted(_formats(module))


def _formats(module: Any) -> set[str]:
    parameters: Any = tree_flatten(module.parameters())
    return {
        str(array.dtype).removeprefix("mlx.core.") for _, array in parameters if mx.issubdtype(array.dtype, mx.floating)
    }


def _refuse_unknown(quantised: list[Any], role: str) -> None:
    for layer in quantised:
        if type(layer) not in _DEQUANTISED or layer.get("global_scale") is not None:
            name = type(layer).__name__
            raise ValueError(f"{role}.dtype must be stored for {name} layers: they cannot be dequantised")
