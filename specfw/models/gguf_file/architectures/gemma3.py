"""Gemma 3, its text part: sliding-window layers, norms of queries and keys."""

from specfw.models.gguf_file.architectures.base import BLOCK, Architecture, Config, Facts, Floats

_BLOCK = {
    **BLOCK,
    "attn_q_norm": "self_attn.q_norm",
    "attn_k_norm": "self_attn.k_norm",
    "post_attention_norm": "post_attention_layernorm",
    "ffn_norm": "pre_feedforward_layernorm",
    "post_ffw_norm": "post_feedforward_layernorm",
}
_HEAD, _PERIOD, _LOCAL_BASE, _GLOBAL_BASE = 256, 6, 10_000.0, 1_000_000.0  # llama.cpp's, where a file does not say
_LAYERS_OF_27B = 62


def _config(facts: Facts) -> Config:
    keys = facts.keys
    sizes = keys.sizes(facts.rows, _HEAD)
    keys.only("final_logit_softcapping", (0.0,), 0.0)
    # the file does not tell the scale of the scores; the 27B model alone takes the size of a share of the hidden state
    shared = sizes["num_hidden_layers"] == _LAYERS_OF_27B
    return {
        **sizes,
        "model_type": "gemma3_text",
        "rope_theta": keys.real("rope.freq_base", _GLOBAL_BASE),
        "rope_local_base_freq": keys.real("rope.freq_base_swa", _LOCAL_BASE),
        "rope_scaling": keys.scaling(),
        "query_pre_attn_scalar": sizes["hidden_size"] // sizes["num_attention_heads"] if shared else sizes["head_dim"],
        "sliding_window": keys.integer("attention.sliding_window"),
        "sliding_window_pattern": keys.integer("attention.sliding_window_pattern", _PERIOD),
    }


def _converted(name: str, array: Floats, config: Config) -> Floats:
    """llama.cpp multiplies by a norm's weights as they stand in the file, mlx-lm by 1 + weights."""
    return array - 1 if name.endswith("norm.weight") else array


GEMMA3 = Architecture("gemma3_text", _BLOCK, _config, _converted)
