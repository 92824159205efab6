"""Checkpoint folders made on the spot: tiny models of mlx-lm with random weights and the shipped tokenizer."""

import hashlib
import importlib
import json
import shutil
from pathlib import Path

from specfw.zoo import folder as shipped

import mlx.core as mx
from mlx.utils import tree_flatten, tree_map_with_path

VOCABULARY = 2048
WINDOW = 8

_SIZES = {"hidden_size": 32, "intermediate_size": 48, "num_attention_heads": 2, "vocab_size": VOCABULARY}
_HEADS = {**_SIZES, "num_key_value_heads": 2, "head_dim": 16, "rms_norm_eps": 1e-5, "rope_theta": 10000.0}
_ALTERNATING = {"num_hidden_layers": 2, "layer_types": ["sliding_attention", "full_attention"]}

SLIDING = {
    "mistral": {**_HEADS, **_ALTERNATING, "model_type": "mistral", "sliding_window": WINDOW},
    "ministral3": {
        **_HEADS,
        **_ALTERNATING,
        "model_type": "ministral3",
        "sliding_window": WINDOW,
        "rope_parameters": {
            "rope_theta": 10000.0,
            "rope_type": "default",
            "llama_4_scaling_beta": 0.1,
            "original_max_position_embeddings": 16,
        },
    },
    "gemma3_text": {
        **_HEADS,
        "model_type": "gemma3_text",
        "num_hidden_layers": 3,
        "query_pre_attn_scalar": 16,
        "sliding_window": WINDOW,
        "sliding_window_pattern": 3,
    },
    "gemma4_text": {
        **_HEADS,
        "model_type": "gemma4_text",
        "num_hidden_layers": 4,
        "num_kv_shared_layers": 2,
        "global_head_dim": 16,
        "hidden_size_per_layer_input": 8,
        "vocab_size_per_layer_input": VOCABULARY,
        "sliding_window": WINDOW,
        "sliding_window_pattern": 2,
    },
    "gpt_oss": {
        **_HEADS,
        **_ALTERNATING,
        "model_type": "gpt_oss",
        "num_local_experts": 2,
        "num_experts_per_tok": 1,
        "sliding_window": WINDOW,
    },
    "cohere2": {
        **_HEADS,
        "model_type": "cohere2",
        "num_hidden_layers": 2,
        "sliding_window": WINDOW,
        "sliding_window_pattern": 2,
    },
}
LLAMA = {**_HEADS, "model_type": "llama", "num_hidden_layers": 1, "intermediate_size": 64, "hidden_size": 64}
_LAYERS = {**_HEADS, "num_hidden_layers": 2, "intermediate_size": 64, "hidden_size": 64, "head_dim": 32}
SPEAKING = {
    "llama": {**_LAYERS, "model_type": "llama", "tie_word_embeddings": False},
    "llama_tied": {**_LAYERS, "model_type": "llama", "tie_word_embeddings": True},
    "qwen2": {**_LAYERS, "model_type": "qwen2", "tie_word_embeddings": False},
    "qwen2_tied": {**_LAYERS, "model_type": "qwen2", "tie_word_embeddings": True},
    "gemma3": {
        "model_type": "gemma3",
        "vocab_size": VOCABULARY,
        "text_config": {**SLIDING["gemma3_text"], **_LAYERS, "num_hidden_layers": 3, "model_type": "gemma3_text"},
    },
    "gemma3_text": {**SLIDING["gemma3_text"], **_LAYERS, "num_hidden_layers": 3, "model_type": "gemma3_text"},
}
"""Models whose greedy text varies, in the layouts people have."""
COMMIT = "0123456789abcdef0123456789abcdef01234567"
MAMBA = {
    "model_type": "mamba",
    "vocab_size": VOCABULARY,
    "hidden_size": 16,
    "intermediate_size": 32,
    "state_size": 4,
    "num_hidden_layers": 1,
    "conv_kernel": 2,
    "use_bias": False,
    "use_conv_bias": True,
    "time_step_rank": 2,
}
LFM2 = {
    **_SIZES,
    "model_type": "lfm2",
    "num_hidden_layers": 2,
    "num_key_value_heads": 2,
    "max_position_embeddings": 64,
    "norm_eps": 1e-5,
    "conv_bias": False,
    "conv_L_cache": 3,
    "block_dim": 32,
    "block_multiple_of": 8,
    "block_ffn_dim_multiplier": 1.0,
    "block_auto_adjust_ff_dim": False,
    "layer_types": ["conv", "full_attention"],
}
LLAMA4 = {
    "model_type": "llama4",
    "text_config": {
        **_HEADS,
        "model_type": "llama4_text",
        "num_hidden_layers": 4,
        "attention_bias": False,
        "attention_chunk_size": 8,
        "interleave_moe_layer_step": 2,
        "intermediate_size_mlp": 48,
        "max_position_embeddings": 64,
        "num_experts_per_tok": 1,
        "num_local_experts": 2,
        "rope_scaling": None,
        "use_qk_norm": False,
    },
}


def module(config):
    """An mlx-lm model with random weights."""
    name = {"mistral": "llama"}.get(config["model_type"], config["model_type"])
    architecture = importlib.import_module(f"mlx_lm.models.{name}")
    mx.random.seed(0)
    return architecture.Model(architecture.ModelArgs.from_dict(config))


def speaking(name):
    """A model of SPEAKING, not yet written: random weights repeat one token unless the layers are loud."""
    model = module(SPEAKING[name])
    if name == "gemma3_text":
        model.sanitize({})  # as mlx-lm does with a checkpoint that has no head of its own
    model.update(
        tree_map_with_path(lambda path, array: 8 * array if path.endswith("proj.weight") else array, model.parameters())
    )
    return model


def hub(cache: Path, name: str, source: str, commit: str = COMMIT, ref: str = "main") -> None:
    """Put a checkpoint folder into a cache of the Hugging Face hub, as a download leaves it there."""
    root = cache / f"models--{name.replace('/', '--')}"
    for part in ("blobs", "refs", f"snapshots/{commit}"):
        (root / part).mkdir(parents=True, exist_ok=True)
    (root / "refs" / ref).write_text(commit)
    for file in Path(source).iterdir():
        blob = hashlib.sha256(file.read_bytes()).hexdigest()
        shutil.copy(file, root / "blobs" / blob)
        (root / "snapshots" / commit / file.name).symlink_to(Path("../../blobs") / blob)


def retokenise(path: str, change) -> None:
    """Change the tokenizer of a checkpoint: `change` gets tokenizer.json's content and works on it in place."""
    file = Path(path) / "tokenizer.json"
    content = json.loads(file.read_text())
    change(content)
    file.write_text(json.dumps(content))


def write(folder: Path, config, model=None, **extra) -> str:
    """Save a model with the shipped tokenizer; `extra` goes into config.json beside `config`. Returns the path."""
    model = module(config) if model is None else model
    folder.mkdir(exist_ok=True)
    mx.save_safetensors(str(folder / "model.safetensors"), dict(tree_flatten(model.parameters())))
    (folder / "config.json").write_text(json.dumps({**config, **extra}))
    for name in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copy(shipped("drafter") / name, folder / name)
    return str(folder)


def edit(path: str, name: str, **changes) -> None:
    """Change keys of a JSON file of a checkpoint; None removes one."""
    file = Path(path) / name
    content = {**json.loads(file.read_text()), **changes}
    file.write_text(json.dumps({key: value for key, value in content.items() if value is not None}))
