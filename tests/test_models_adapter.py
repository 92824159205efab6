"""Adapters of mlx-lm on a checkpoint: their text, what the record says of them, and what is refused."""

import json
from pathlib import Path

from specfw.models.checkpoint import Checkpoint

import checkpoints
import mlx.core as mx
import numpy as np
import pytest
from kit import chain, decoder, emitted, start
from mlx import nn
from mlx.utils import tree_flatten

PROMPT, LENGTH = (5, 17, 900), 30
LORA = {"rank": 4, "scale": 20.0, "dropout": 0.1}
FOUR = {"group_size": 32, "bits": 4}
IDS = mx.array([PROMPT])


def adapter(folder, base="llama", kind="lora", change=lambda weights: weights, **settings):
    """An adapter with random numbers for a model of checkpoints.SPEAKING; returns its folder."""
    from mlx_lm.tuner.utils import linear_to_lora_layers

    model = checkpoints.speaking(base)
    model.freeze()
    linear_to_lora_layers(model, 1, LORA, use_dora=kind == "dora")
    mx.random.seed(1)
    leaves = tree_flatten(model.trainable_parameters())
    weights = {name: mx.random.normal(array.shape) * 0.05 for name, array in leaves}
    folder.mkdir()
    mx.save_safetensors(str(folder / "adapters.safetensors"), change(weights))
    told = {"fine_tune_type": kind, "num_layers": 1, "lora_parameters": LORA, "model": "someone/base", **settings}
    (folder / "adapter_config.json").write_text(json.dumps(told))
    return str(folder)


@pytest.fixture
def base(tmp_path):
    return checkpoints.write(tmp_path / "base", checkpoints.SPEAKING["llama"], checkpoints.speaking("llama"))


def text(model, drafter=None):
    greedy = {"sampler": chain(temperature={"value": 0}), "max_tokens": LENGTH}
    return emitted(start(decoder(model, drafter, "greedy_argmax", **greedy), prompts=[PROMPT]))[0]


@pytest.mark.parametrize("kind", ["lora", "dora"])
def test_text_with_an_adapter_is_mlx_lms(base, tmp_path, kind):
    from mlx_lm import load
    from mlx_lm.generate import generate_step

    path = adapter(tmp_path / "adapter", kind=kind)
    model, _ = load(base, adapter_path=path)
    expected = [int(token) for token, _ in generate_step(mx.array(PROMPT), model, max_tokens=LENGTH)]
    plain, adapted = (Checkpoint(path=base, adapter_path=folder).load("target") for folder in (None, path))
    assert text(adapted) == text(adapted, plain) == expected
    assert text(plain) != expected


def test_an_adapter_goes_on_quantised_weights(tmp_path):
    model = checkpoints.speaking("llama")
    nn.quantize(model, **FOUR)
    base = checkpoints.write(tmp_path / "base", checkpoints.SPEAKING["llama"], model, quantization=FOUR)
    path = adapter(tmp_path / "adapter")
    auto, stored, plain = (
        Checkpoint(path=base, dtype=dtype, adapter_path=folder).load("target")
        for dtype, folder in (("auto", path), ("stored", path), ("auto", None))
    )
    seen = [np.array(model.forward(IDS, model.new_cache(1))) for model in (auto, stored, plain)]
    np.testing.assert_allclose(seen[0], seen[1], atol=1e-3)
    assert np.abs(seen[0] - seen[2]).max() > 0.1


def test_a_whole_fine_tune_replaces_weights(base, tmp_path):
    weights = {"model.norm.weight": mx.full((64,), 0.5)}
    path = adapter(tmp_path / "adapter", kind="full", change=lambda _: weights)
    plain, tuned = (Checkpoint(path=base, adapter_path=folder).load("target") for folder in (None, path))
    halved = [np.array(model.forward(IDS, model.new_cache(1))) for model in (plain, tuned)]
    np.testing.assert_allclose(halved[0] / 2, halved[1], rtol=1e-4, atol=1e-5)


def test_the_record_says_which_adapter(base, tmp_path):
    path = adapter(tmp_path / "adapter")
    model = Checkpoint(path=base, adapter_path=path).load("drafter")
    assert model.notes == (f"drafter: with the adapter {path}, trained on someone/base",)
    told = model.fingerprint()
    assert told["adapter"]["path"] == path
    assert set(told["adapter"]["sha256"]) == {"adapter_config.json", "adapters.safetensors"}
    assert set(told["sha256"]) == {"config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json"}


def test_dropout_of_training_is_off(base, tmp_path):
    model = Checkpoint(path=base, adapter_path=adapter(tmp_path / "adapter")).load("target")
    one, other = (np.array(model.forward(IDS, model.new_cache(1))) for _ in range(2))
    np.testing.assert_array_equal(one, other)


def test_an_adapter_of_another_model_is_refused(tmp_path, base):
    begins = r"^target.adapter_path must be an adapter of target.path, got .*"
    with pytest.raises(ValueError, match=rf"{begins}language_model.*: not an adapter parameter in the model"):
        Checkpoint(path=base, adapter_path=adapter(tmp_path / "gemma3", base="gemma3")).load("target")
    wider = checkpoints.write(tmp_path / "wider", {**checkpoints.SPEAKING["llama"], "hidden_size": 96})
    with pytest.raises(
        ValueError, match=r"adapter shape \(64, 4\) does not match model parameter shape \(96, 4\)"
    ) as no:
        Checkpoint(path=wider, adapter_path=adapter(tmp_path / "narrow")).load("target")
    assert "\n" not in str(no.value)


def remove(name):
    return lambda folder: (folder / name).unlink()


BROKEN = {
    "lacks adapter_config.json": remove("adapter_config.json"),
    "lacks adapters.safetensors": remove("adapters.safetensors"),
    "adapter_config.json is no readable JSON": lambda folder: (folder / "adapter_config.json").write_text("{"),
    "is no complete safetensors file": lambda folder: (folder / "adapters.safetensors").write_bytes(b"\x08"),
}


@pytest.mark.parametrize("sentence", BROKEN)
def test_broken_adapters_are_refused_before_any_model_is_loaded(base, tmp_path, sentence):
    path = adapter(tmp_path / "adapter")
    BROKEN[sentence](Path(path))
    with pytest.raises(ValueError, match=rf"^drafter.adapter_path must be a folder with an adapter.*{sentence}"):
        Checkpoint(path=base, adapter_path=path).check("drafter")


def test_an_adapter_without_its_numbers_is_refused(base, tmp_path):
    path = adapter(tmp_path / "adapter", lora_parameters={"rank": 4, "alpha": 8.0})
    with pytest.raises(
        ValueError, match=r"^target.adapter_path must be an adapter of target.path.*missing required key"
    ):
        Checkpoint(path=base, adapter_path=path).load("target")
    with pytest.raises(ValueError, match=r"^target.adapter_path must be .* lacks adapter_config.json"):
        Checkpoint(path=base, adapter_path=str(tmp_path / "nowhere")).check("target")
