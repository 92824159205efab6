"""Llama and what is built alike: SmolLM2, Mistral, TinyLlama."""

from specfw.models.gguf_file.architectures.base import BLOCK, Architecture, Config, Facts, Floats

_ROTATED = ("q_proj", "k_proj")


def _config(facts: Facts) -> Config:
    keys, factors = facts.keys, facts.rope_factors
    sizes = keys.sizes(facts.rows)
    scaling = keys.scaling()
    if factors is not None:
        if scaling is not None:
            raise ValueError("llama.rope.scaling.type must be none beside rope_freqs.weight, got linear")
        length = sizes["max_position_embeddings"]
        scaling = {"type": "longrope", "original_max_position_embeddings": length}
        scaling |= {"short_factor": factors, "long_factor": factors}
    return {
        **sizes,
        "model_type": "llama",
        "rope_theta": keys.real("rope.freq_base", 10_000.0),
        "rope_scaling": scaling,
        "tie_word_embeddings": "output.weight" not in facts.shapes,
        "attention_bias": "blk.0.attn_q.bias" in facts.shapes,
        "mlp_bias": "blk.0.ffn_up.bias" in facts.shapes,
    }


def _converted(name: str, array: Floats, config: Config) -> Floats:
    """Undo the order of rows that llama.cpp gives queries and keys.

    A rotation turns pairs of a head's d numbers. As trained they are i and i + d/2; llama.cpp turns neighbours, and
    so writes row i + j d/2 of a head at 2i + j. Undone, the weights are those of the original checkpoint and the
    rotation is the one that mlx-lm's other architectures use; `rope_traditional` would give the same logits.
    """
    if name.split(".")[-2] not in _ROTATED:
        return array
    half = config["head_dim"] // 2
    return array.reshape(-1, half, 2, *array.shape[1:]).swapaxes(1, 2).reshape(array.shape)


LLAMA = Architecture("llama", {**BLOCK, "ffn_norm": "post_attention_layernorm"}, _config, _converted, rope_factors=True)
