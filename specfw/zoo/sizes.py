"""The sizes of the shipped pair, and the model a size describes."""

from typing import Any, NamedTuple

from specfw.backend import bind

bind()

import mlx.core as mx  # noqa: E402 - the BLAS must be bound before MLX is loaded
from mlx_lm.models.llama import Model, ModelArgs  # noqa: E402


class Size(NamedTuple):
    """A causal transformer in mlx-lm's `llama` layout, with tied embedding.

    Attributes:
        hidden: width.
        layers: depth.
        heads: of attention; they divide the width.
        feed_forward: width between the two halves of a layer's second part.
    """

    hidden: int
    layers: int
    heads: int
    feed_forward: int

    def config(self, vocab_size: int) -> dict[str, Any]:
        """The content of config.json."""
        return {
            "model_type": "llama",
            "architectures": ["LlamaForCausalLM"],
            "hidden_size": self.hidden,
            "num_hidden_layers": self.layers,
            "intermediate_size": self.feed_forward,
            "num_attention_heads": self.heads,
            "num_key_value_heads": self.heads,
            "rms_norm_eps": 1e-5,
            "vocab_size": vocab_size,
            "tie_word_embeddings": True,
            "max_position_embeddings": 2048,
            "rope_theta": 10000.0,
            "eos_token_id": 0,
            "bos_token_id": 0,
            "torch_dtype": "float16",
        }


SIZES = {
    "target": Size(hidden=256, layers=4, heads=4, feed_forward=640),
    "drafter": Size(hidden=128, layers=1, heads=2, feed_forward=256),
}


def build(config: dict[str, Any], seed: int) -> Model:
    """A model with fresh float32 weights, a function of the seed."""
    mx.random.seed(seed)
    return Model(ModelArgs.from_dict(config))  # type: ignore[no-untyped-call]
