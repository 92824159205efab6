"""Greedy text of a checkpoint, plain and speculative, is mlx-lm's own, on the reference BLAS."""

from specfw.models.checkpoint import Checkpoint
from specfw.models.pretrained.caches import QuantizedKVCache, WindowedQuantizedKVCache

import checkpoints
import mlx.core as mx
import numpy as np
import pytest
from kit import chain, decoder, emitted, start
from mlx import nn

PROMPT = (5, 17, 900, 33, 17)
LENGTH = 40
FOUR = {"group_size": 32, "bits": 4}
KEYS = {"kv_bits": 8, "kv_group_size": 32}


def mlx_lm_text(path, caches=None):
    from mlx_lm import load
    from mlx_lm.generate import generate_step

    model, _ = load(path)
    made = None if caches is None else caches(model)
    return [int(token) for token, _ in generate_step(mx.array(PROMPT), model, max_tokens=LENGTH, prompt_cache=made)]


def text(target, drafter=None, k=4):
    greedy = {"sampler": chain(temperature={"value": 0}), "max_tokens": LENGTH}
    return emitted(start(decoder(target, drafter, "greedy_argmax", k, **greedy), prompts=[PROMPT]))[0]


@pytest.fixture(scope="module")
def stranger(tmp_path_factory):
    """A drafter that agrees by chance alone."""
    path = checkpoints.write(tmp_path_factory.mktemp("stranger") / "model", checkpoints.LLAMA)
    return Checkpoint(path=path).load("drafter")


@pytest.fixture(params=checkpoints.SPEAKING)
def path(request, tmp_path):
    return checkpoints.write(
        tmp_path / "model", checkpoints.SPEAKING[request.param], checkpoints.speaking(request.param)
    )


@pytest.fixture(params=["llama", "qwen2_tied", "gemma3"])
def quantised(request, tmp_path):
    model = checkpoints.speaking(request.param)
    nn.quantize(model, **FOUR)
    return checkpoints.write(tmp_path / "model", checkpoints.SPEAKING[request.param], model, quantization=FOUR)


def test_plain_and_speculative_text_is_mlx_lms(path, stranger):
    expected = mlx_lm_text(path)
    assert len(set(expected)) > 20, "a text that repeats itself forgives a wrong cache"
    target = Checkpoint(path=path).load("target")
    assert text(target) == expected
    for drafter, k in ((stranger, 4), (target, 1), (target, 4)):
        assert text(target, drafter, k) == expected


@pytest.mark.parametrize("dtype", ["auto", "stored"])
def test_text_of_quantised_weights_is_mlx_lms(quantised, stranger, dtype):
    expected = mlx_lm_text(quantised)
    assert len(set(expected)) > 20
    target = Checkpoint(path=quantised, dtype=dtype).load("target")
    assert text(target) == text(target, stranger) == text(target, target) == expected


def test_stored_weights_stay_quantised(quantised):
    target = Checkpoint(path=quantised, dtype="stored").load("target")
    assert any("scales" in layer for layer in target._module.modules())
    assert target.notes == tuple(note for note in target.notes if "sliding-window" in note)


def test_text_with_quantised_keys_and_values_is_mlx_lms(tmp_path, stranger):
    path = checkpoints.write(tmp_path / "model", checkpoints.SPEAKING["llama"], checkpoints.speaking("llama"))
    expected = mlx_lm_text(path, lambda model: [QuantizedKVCache(32, 8) for _ in model.layers])
    target = Checkpoint(path=path, **KEYS).load("target")
    assert text(target) == text(target, stranger) == text(target, target) == expected


@pytest.mark.parametrize("bits", [2, 4, 8])
def test_quantised_keys_and_values_rewind_exactly(path, bits):
    """The condition under which they are offered at all: a rewound cache is, bit for bit, one that never was longer."""
    rng = np.random.default_rng(bits)
    model = Checkpoint(path=path, kv_bits=bits, kv_group_size=32).load("target")
    ids = [mx.array(rng.integers(1, checkpoints.VOCABULARY, (1, count))) for count in (20, 1, 15, 5)]
    cache = model.new_cache(1)
    for part in ids[:3]:
        mx.eval(model.forward(part, cache))
    for count in (1, 9, 25):
        cache.rewind(np.array([count]))
        held = int(cache.lengths[0])
        whole = mx.concatenate(ids[:3], axis=1)
        scratch = model.forward(mx.concatenate([whole[:, :held], ids[3]], axis=1), model.new_cache(1))[:, -5:]
        np.testing.assert_array_equal(np.array(model.forward(ids[3], cache)), np.array(scratch))
        cache.rewind(np.array([5]))
        model.forward(whole[:, held:], cache)


def test_windows_keep_their_mask_over_quantised_keys(tmp_path):
    path = checkpoints.write(tmp_path / "model", checkpoints.SPEAKING["gemma3"], checkpoints.speaking("gemma3"))
    quantised, plain = (Checkpoint(path=path, **fields).load("target") for fields in (KEYS, {}))
    kinds = [type(leaf) for leaf in quantised.new_cache(1).leaves()]
    assert kinds == [WindowedQuantizedKVCache] * 2 + [QuantizedKVCache]
    ids = mx.array(np.random.default_rng(0).integers(1, checkpoints.VOCABULARY, (1, 30)))
    seen, expected = (np.array(model.forward(ids, model.new_cache(1))) for model in (quantised, plain))
    assert 0 < np.abs(seen - expected).max() < 0.1 * np.abs(expected).max()
    assert quantised.fingerprint()["keys_and_values"] == {"bits": 8, "group_size": 32}


@pytest.mark.parametrize(
    ("config", "group_size", "reason"),
    [
        (checkpoints.SPEAKING["llama"], 64, "divisible by the quantization group size 64"),
        ({**checkpoints.SLIDING["gpt_oss"], "head_dim": 32}, 32, "does not support attention sinks"),
        ({**checkpoints.SLIDING["gemma4_text"], "head_dim": 32, "global_head_dim": 32}, 32, "incompatible function"),
    ],
    ids=["group size", "attention sinks", "shared keys"],
)
def test_keys_that_cannot_be_quantised_are_refused_before_weights_are_read(tmp_path, config, group_size, reason):
    path = checkpoints.write(tmp_path / "model", config)
    begins = r"^drafter.kv_bits must be null, or drafter.kv_group_size another, for '"
    with pytest.raises(ValueError, match=f"{begins}.*{reason}") as refusal:
        Checkpoint(path=path, kv_bits=8, kv_group_size=group_size).load("drafter")
    assert "\n" not in str(refusal.value)
    assert len(str(refusal.value)) < 500


@pytest.mark.parametrize(
    ("field", "value", "sentence"),
    [
        ("kv_bits", 3, "kv_bits must be null, 2, 4 or 8, got 3"),
        ("kv_group_size", 16, "kv_group_size must be 32, 64 or 128, got 16"),
        ("prompt_cache", "a.safetensors", r"prompt_cache must be null \(a saved cache does not say which tokens"),
        ("max_kv_size", 512, r"max_kv_size must be null \(a cache that overwrites its oldest tokens cannot be rewound"),
    ],
)
def test_caches_that_are_not_offered_are_refused_by_name(field, value, sentence):
    with pytest.raises(ValueError, match=f"^{sentence}"):
        Checkpoint(path="zoo:target", **{field: value})
