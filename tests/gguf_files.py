"""GGUF files made on the spot from mlx-lm's models, as llama.cpp's converter writes them."""

import json
from pathlib import Path

from specfw.zoo import folder as shipped

import checkpoints
import gguf
import mlx.core as mx
import numpy as np
from gguf.constants import GGMLQuantizationType as Kind
from gguf.constants import TokenType
from gguf.quants import dequantize, quantize
from mlx.utils import tree_flatten

ARCHITECTURES = {"llama": "llama", "qwen2": "qwen2", "gemma3_text": "gemma3"}
MODELS = ("llama", "llama_tied", "qwen2", "qwen2_tied", "gemma3_text")
"""Of CONFIGS."""

_ARCH = {"llama": gguf.MODEL_ARCH.LLAMA, "qwen2": gguf.MODEL_ARCH.QWEN2, "gemma3": gguf.MODEL_ARCH.GEMMA3}


CONFIGS = {**checkpoints.SPEAKING, "gemma3_text": {**checkpoints.SPEAKING["gemma3_text"], "query_pre_attn_scalar": 32}}


def speaking(name):
    """A model of CONFIGS whose greedy text varies; a file cannot say what scales the scores of a gemma."""
    module = checkpoints.speaking(name)
    for layer in module.layers:
        layer.self_attn.scale = CONFIGS[name]["head_dim"] ** -0.5
    return module


def permuted(rows, heads):
    """The order that llama.cpp's converter gives rows of queries and keys."""
    return rows.reshape(heads, 2, rows.shape[0] // heads // 2, *rows.shape[1:]).swapaxes(1, 2).reshape(rows.shape)


def hyperparameters(config):
    """The metadata of a configuration of mlx-lm, without the architecture's name."""
    told = {
        "block_count": config["num_hidden_layers"],
        "context_length": config.get("max_position_embeddings", 512),
        "embedding_length": config["hidden_size"],
        "feed_forward_length": config["intermediate_size"],
        "attention.head_count": config["num_attention_heads"],
        "attention.head_count_kv": config["num_key_value_heads"],
        "attention.key_length": config["head_dim"],
        "attention.value_length": config["head_dim"],
        "attention.layer_norm_rms_epsilon": config["rms_norm_eps"],
        "rope.freq_base": config["rope_theta"],
    }
    if config["model_type"] == "gemma3_text":
        told["attention.sliding_window"] = config["sliding_window"]
        told["attention.sliding_window_pattern"] = config["sliding_window_pattern"]
    return told


def byte_level(pre="gpt-2"):
    """The shipped tokenizer's metadata."""
    content = json.loads((shipped("drafter") / "tokenizer.json").read_text())["model"]
    tokens = sorted(content["vocab"], key=content["vocab"].get)
    kinds = [TokenType.CONTROL, *[TokenType.NORMAL] * (len(tokens) - 1)]
    merges = [" ".join(pair) for pair in content["merges"]]
    told = {"model": "gpt2", "pre": pre, "tokens": tokens, "token_type": kinds, "merges": merges}
    return {f"tokenizer.ggml.{key}": value for key, value in {**told, "bos_token_id": 0, "eos_token_id": 0}.items()}


def metadata(config, **changes):
    """What stands in a file's header; `changes` by whole keys, None takes one away."""
    architecture = ARCHITECTURES[config["model_type"]]
    own = {f"{architecture}.{key}": value for key, value in hyperparameters(config).items()}
    told = {"general.architecture": architecture, **own, **byte_level(), **changes}
    return {key: value for key, value in told.items() if value is not None}


def tensors(config, module):
    """The weights of a model under llama.cpp's names and in its order, float32."""
    architecture = ARCHITECTURES[config["model_type"]]
    names = gguf.get_tensor_name_map(_ARCH[architecture], config["num_hidden_layers"])
    heads = {"q_proj": config["num_attention_heads"], "k_proj": config["num_key_value_heads"]}
    for name, array in tree_flatten(module.parameters()):
        numbers, part = np.array(array.astype(mx.float32)), name.split(".")[-2]
        if architecture == "llama" and part in heads:
            numbers = permuted(numbers, heads[part])
        if architecture == "gemma3" and part.endswith("norm"):
            numbers = numbers + 1
        yield names.get_name(name, try_suffixes=(".weight", ".bias")), numbers


def rounded(module, kind):
    """Give a model the numbers that it has once stored as `kind`: what is quantised does not depend on other rows."""
    for name, array in tree_flatten(module.parameters()):
        if array.ndim > 1:
            stored = quantize(np.array(array.astype(mx.float32)), kind)
            module.load_weights([(name, mx.array(dequantize(stored, kind)))], strict=False)
    return module


def save(path, told, arrays, kind=Kind.F32):
    """Write a file of metadata and arrays; matrices are stored as `kind`."""
    writer = gguf.GGUFWriter(path, told.get("general.architecture", "none"))
    for key, value in told.items():
        if key != "general.architecture":
            _add(writer, key, value)
    for name, array in arrays:
        stored = kind if array.ndim > 1 else Kind.F32
        writer.add_tensor(name, quantize(array, stored), raw_dtype=stored)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return str(path)


def write(path: Path, name, kind=Kind.F32, module=None, config=None, **changes):
    """A model of CONFIGS as a file; `changes` to the metadata, by whole keys. Returns the path."""
    config = CONFIGS[name] if config is None else config
    module = speaking(name) if module is None else module
    return save(path, metadata(config, **changes), tensors(config, module), kind)


def _add(writer, key, value):
    if isinstance(value, bool):
        writer.add_bool(key, value)
    elif isinstance(value, int):
        writer.add_uint32(key, value)
    elif isinstance(value, float):
        writer.add_float32(key, value)
    elif isinstance(value, str):
        writer.add_string(key, value)
    else:
        writer.add_array(key, value)
