"""Qwen2 and Qwen2.5: biases on queries, keys and values, rows as trained."""

from specfw.models.gguf_file.architectures.base import BLOCK, Architecture, Config, Facts


def _config(facts: Facts) -> Config:
    keys = facts.keys
    sizes = keys.sizes(facts.rows)
    whole = sizes["hidden_size"] // sizes["num_attention_heads"]
    keys.only("attention.key_length", (whole,), whole)
    return {
        **sizes,
        "model_type": "qwen2",
        "rope_theta": keys.real("rope.freq_base", 10_000.0),
        "rope_scaling": keys.scaling(),
        "tie_word_embeddings": "output.weight" not in facts.shapes,
    }


QWEN2 = Architecture("qwen2", {**BLOCK, "ffn_norm": "post_attention_layernorm"}, _config)
