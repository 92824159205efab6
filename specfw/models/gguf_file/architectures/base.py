"""What is to be known of an architecture: its hyperparameters and tensors, in llama.cpp's names and in mlx-lm's."""

from collections.abc import Callable, Collection, Mapping
from typing import Any, NamedTuple, TypeAlias, final

import numpy as np

Floats: TypeAlias = np.ndarray[Any, np.dtype[np.float32]]
Config: TypeAlias = dict[str, Any]

TOP = {"token_embd": "model.embed_tokens", "output_norm": "model.norm", "output": "lm_head"}
BLOCK = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}
ROPE_FACTORS = "rope_freqs.weight"

_SCALINGS = ("none", "linear")
_REQUIRED: Any = object()


@final
class Keys:
    """The metadata of an architecture, read by keys without its name.

    Args:
        architecture: as llama.cpp names it.
        metadata: of the file.
    """

    def __init__(self, architecture: str, metadata: Mapping[str, Any]) -> None:
        self._architecture, self._metadata = architecture, metadata

    def integer(self, key: str, default: Any = _REQUIRED) -> int:
        """A whole number, at least 1.

        Raises:
            ValueError: it is missing and has no default, or is something else.
        """
        value = self._value(key, default)
        if type(value) is not int or value < 1:
            raise ValueError(f"{self._architecture}.{key} must be a whole number, at least 1, got {value}")
        return value

    def real(self, key: str, default: Any = _REQUIRED) -> float:
        """A number above 0; errors as `integer`."""
        value = self._value(key, default)
        if type(value) not in (int, float) or not 0 < value < float("inf"):
            raise ValueError(f"{self._architecture}.{key} must be a number above 0, got {value}")
        return float(value)

    def only(self, key: str, known: Collection[Any], default: Any) -> Any:
        """One of the values that can be honoured.

        Raises:
            ValueError: it is another one; the sentence lists the known.
        """
        value = self._value(key, default)
        if value not in known:
            raise ValueError(f"{self._architecture}.{key} must be one of {', '.join(map(str, known))}, got {value}")
        return value

    def scaling(self) -> Config | None:
        """How positions are scaled, as mlx-lm writes it; None where they are not."""
        if self.only("rope.scaling.type", _SCALINGS, "none") == "none":
            return None
        return {"type": "linear", "factor": self.real("rope.scaling.factor")}

    def sizes(self, rows: int, head: int | None = None) -> Config:
        """What every architecture has, for a vocabulary of `rows`; `head` is its size where the file does not say."""
        heads = self.integer("attention.head_count")
        hidden = self.integer("embedding_length")
        size = self.integer("attention.key_length", head or hidden // heads)
        self.only("attention.value_length", (size,), size)
        self.only("rope.dimension_count", (size,), size)
        self.only("expert_count", (0,), 0)
        return {
            "hidden_size": hidden,
            "num_hidden_layers": self.integer("block_count"),
            "intermediate_size": self.integer("feed_forward_length"),
            "num_attention_heads": heads,
            "num_key_value_heads": self.integer("attention.head_count_kv", heads),
            "head_dim": size,
            "rms_norm_eps": self.real("attention.layer_norm_rms_epsilon"),
            "max_position_embeddings": self.integer("context_length"),
            "vocab_size": rows,
        }

    def _value(self, key: str, default: Any) -> Any:
        value = self._metadata.get(f"{self._architecture}.{key}", default)
        if value is _REQUIRED:
            raise ValueError(f"{self._architecture}.{key} is missing")
        return value


class Facts(NamedTuple):
    """What a configuration is made of.

    Attributes:
        keys: hyperparameters.
        shapes: of all tensors, by llama.cpp's names, rows first.
        rope_factors: by which each frequency of the rotation is divided, None where there are none.
    """

    keys: Keys
    shapes: Mapping[str, tuple[int, ...]]
    rope_factors: list[float] | None

    @property
    def rows(self) -> int:
        """V of the embedding."""
        shape = self.shapes.get("token_embd.weight")
        if shape is None:
            raise ValueError("token_embd.weight is missing")
        return shape[0]


def unchanged(name: str, array: Floats, config: Config) -> Floats:
    """A tensor that both hold alike."""
    return array


class Architecture(NamedTuple):
    """How llama.cpp's model becomes mlx-lm's.

    Attributes:
        module: of `mlx_lm.models`.
        block: mlx-lm's names of what a layer holds, by llama.cpp's.
        config: the hyperparameters, as mlx-lm's config.json has them.
        converted: a tensor as mlx-lm wants it, from its name there, its numbers in the file and the config.
        rope_factors: whether its config takes the file's factors of the rotation into account.
    """

    module: str
    block: Mapping[str, str]
    config: Callable[[Facts], Config]
    converted: Callable[[str, Floats, Config], Floats] = unchanged
    rope_factors: bool = False

    def name(self, theirs: str) -> str | None:
        """mlx-lm's name of a tensor, None where it has none."""
        *place, part, suffix = theirs.split(".")
        ours = (self.block if place else TOP).get(part)
        if ours is None or (place and place[0] != "blk"):
            return None
        return ".".join(["model.layers", place[1], ours, suffix] if place else [ours, suffix])
