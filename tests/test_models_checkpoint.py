"""Checkpoints: read as mlx-lm reads them, rewound, or refused in one sentence before a forward pass."""

import hashlib
import json
from pathlib import Path

from specfw.models.base import prefill
from specfw.models.checkpoint import Checkpoint
from specfw.models.pretrained.caches import STEP, LayerCaches
from specfw.models.pretrained.folder import ZOO
from specfw.registry import build

import checkpoints
import mlx.core as mx
import numpy as np
import pytest
from mlx import nn
from mlx_lm.models.cache import KVCache

TOKENS = 40


@pytest.fixture(scope="module", autouse=True)
def cpu():
    """Number formats differ by device; these are the CPU's."""
    device = mx.default_device()
    mx.set_default_device(mx.cpu)
    yield
    mx.set_default_device(device)


@pytest.fixture(scope="module", params=["target", "drafter"])
def shipped(request):
    return Checkpoint(path=f"zoo:{request.param}").load(request.param)


@pytest.fixture(params=checkpoints.SLIDING)
def sliding(request, tmp_path):
    """A tiny model with sliding windows of 8 tokens, and its configuration."""
    config = checkpoints.SLIDING[request.param]
    return Checkpoint(path=checkpoints.write(tmp_path / "model", config)).load("target"), config


@pytest.fixture
def tiny(tmp_path):
    """The folder of a tiny llama."""
    return checkpoints.write(tmp_path / "tiny", checkpoints.LLAMA)


def ids(count=TOKENS, seed=0):
    return mx.array(np.random.default_rng(seed).integers(1, checkpoints.VOCABULARY, (1, count)).astype(np.int32))


def spans(*lengths):
    ends = np.cumsum(lengths)
    return list(zip(ends - lengths, ends, strict=True))


def close(one, other):
    np.testing.assert_allclose(np.array(one), np.array(other), atol=2e-5)


def test_chunks_of_a_prompt_are_the_prompt(shipped):
    prompt = np.array(ids())
    whole = shipped.forward(ids(), shipped.new_cache(1))[:, -1]
    for chunk in (1, 7, TOKENS):
        cache = shipped.new_cache(1)
        assert list(prefill(shipped, cache, prompt[:, :-1], chunk))[-1] == TOKENS - 1
        assert cache.lengths.tolist() == [TOKENS - 1]
        close(shipped.forward(ids()[:, -1:], cache)[:, -1], whole)


@pytest.mark.parametrize("count", [0, 1, 6, TOKENS])
def test_a_rewound_cache_is_a_shorter_one(shipped, count):
    cache = shipped.new_cache(1)
    shipped.forward(ids(), cache)
    mx.eval(cache.arrays())
    cache.rewind(np.array([count]))
    assert cache.lengths.tolist() == [TOKENS - count]
    other = ids(5, seed=1)
    scratch = mx.concatenate([ids()[:, : TOKENS - count], other], axis=1)
    close(shipped.forward(other, cache), shipped.forward(scratch, shipped.new_cache(1))[:, -5:])


def test_a_cache_forgets_no_more_than_it_holds(shipped):
    cache = shipped.new_cache(1)
    shipped.forward(ids(3), cache)
    with pytest.raises(RuntimeError, match="KVCache was asked to forget 4 tokens and forgot 3"):
        cache.rewind(np.array([4]))


def test_buffers_that_a_cache_outgrew_are_given_back():
    """Eight steps of 1 MiB; kept, the seven smaller ones would be 28."""
    mx.clear_cache()
    layer = KVCache()
    caches, token = LayerCaches([layer]), mx.zeros((1, 8, 1, 64))
    for _ in range(8 * STEP):
        layer.update_and_fetch(token, token)
        mx.eval(caches.arrays())
        caches.rewind(np.array([0]))
    assert mx.get_cache_memory() < 12 * 2**20


def test_layers_that_disagree_are_an_error():
    target = Checkpoint(path="zoo:target").load("target")
    cache = target.new_cache(1)
    target.forward(ids(3), cache)
    cache.layers[2].trim(1)
    with pytest.raises(RuntimeError, match=r"different numbers of tokens: \[2, 3\]"):
        _ = cache.lengths


def test_a_checkpoint_says_what_it_is(shipped):
    role = shipped.name.split()[0]
    assert (shipped.name, shipped.vocab_size, shipped.eos_ids) == (f"{role} (zoo:{role})", 2048, {0})
    assert shipped.notes == (f"{role}: weights stored as float16 are computed in float32",)
    print_ = shipped.fingerprint()
    weights = (ZOO[f"zoo:{role}"] / "model.safetensors").read_bytes()
    assert print_["sha256"]["model.safetensors"] == hashlib.sha256(weights).hexdigest()
    assert {"config.json", "tokenizer.json"} < set(print_["sha256"])
    assert print_["computed_in"] == ["float32"]


READ_BESIDE = {
    "chat_template.jinja": ("<{{ messages[-1].content }}>", "[{{ messages[-1].content }}]"),
    "additional_chat_templates/tool_use.jinja": ("<{{ tools }}>", "[{{ tools }}]"),
    "generation_config.json": ('{"eos_token_id": 5}', '{"eos_token_id": 6}'),
    "added_tokens.json": ('{"<one>": 2047}', '{"<other>": 2047}'),
    "special_tokens_map.json": ('{"bos_token": "<one>"}', '{"bos_token": "<other>"}'),
}
"""Files that change what a run says, each in two versions."""


@pytest.mark.parametrize("name", READ_BESIDE)
def test_every_file_that_is_read_stands_in_the_record(tiny, name):
    def digests():
        return Checkpoint(path=tiny).load("target").fingerprint()["sha256"]

    file, before, seen = Path(tiny, name), digests(), []
    assert name not in before
    file.parent.mkdir(exist_ok=True)
    for content in READ_BESIDE[name]:
        file.write_text(content)
        after = digests()
        seen.append(after.pop(name))
        assert after == before
    assert seen == [hashlib.sha256(content.encode()).hexdigest() for content in READ_BESIDE[name]]


def test_one_sequence_at_a_time(shipped):
    assert not shipped.batched
    with pytest.raises(ValueError, match="must decode one sequence at a time, got a batch of 2"):
        shipped.new_cache(2)


def test_a_window_gives_the_logits_of_the_rotating_cache(sliding):
    model, _ = sliding
    plain, rotating = model.new_cache(1), model._module.make_cache()
    parts = spans(6, 1, 4, 15, 1, 1, 9, 1, 1, 1)
    assert parts[-1][1] == TOKENS
    for start, end in parts:
        piece = ids()[:, start:end]
        close(model.forward(piece, plain), model._module(piece, cache=rotating))
    assert plain.lengths.tolist() == [TOKENS]


def test_a_window_is_still_a_window(sliding, tmp_path):
    """Without it the same weights say something else: the comparison above is not blind."""
    model, config = sliding
    wide = checkpoints.write(tmp_path / "wide", {**config, "sliding_window": 64}, model._module)
    whole, windowed = Checkpoint(path=wide).load("target"), model
    seen, other = (np.array(one.forward(ids(), one.new_cache(1))) for one in (whole, windowed))
    np.testing.assert_allclose(seen[:, :8], other[:, :8], atol=2e-5)
    assert np.abs(seen - other)[:, 16:].max() > 1e-3


def test_a_window_that_was_left_can_be_rewound_into(sliding):
    model, _ = sliding
    cache = model.new_cache(1)
    for start, end in spans(20, 9, 1):
        model.forward(ids()[:, start:end], cache)
    for count in (7, 12):
        cache.rewind(np.array([count]))
        held = int(cache.lengths[0])
        other = ids(4, seed=count)
        scratch = mx.concatenate([ids()[:, :held], other], axis=1)
        close(model.forward(other, cache), model.forward(scratch, model.new_cache(1))[:, -4:])
        cache.rewind(np.array([4]))


def test_the_cost_of_a_window_is_noted(sliding):
    model, _ = sliding
    windowed = [layer for layer in model.new_cache(1).layers if hasattr(layer, "window")]
    assert windowed
    note = f"{len(windowed)} sliding-window layers keep the whole context"
    assert any(note in one and f"at {len(windowed) * 2 * 2 * 16 * 4} bytes a token" in one for one in model.notes)


@pytest.mark.parametrize("size", [1, 5])
def test_a_windowed_mask_needs_no_word_from_the_model(size):
    """A model that leaves the window to its rotating cache gets the same mask from the plain one."""
    from specfw.models.pretrained.caches import WindowedKVCache

    cache = WindowedKVCache(4)
    assert cache.make_mask(4) == "causal"
    keys = mx.zeros((1, 1, 9, 2))
    cache.update_and_fetch(keys, keys)
    seen = np.array(cache.make_mask(size))
    places, held = np.arange(9, 9 + size)[:, None], np.arange(9 + size)
    np.testing.assert_array_equal(seen, (held <= places) & (held > places - 4))


@pytest.mark.parametrize("role", ["target", "drafter"])
@pytest.mark.parametrize(
    ("config", "kind"),
    [(checkpoints.MAMBA, "ArraysCache"), (checkpoints.LFM2, "ArraysCache"), (checkpoints.LLAMA4, "ChunkedKVCache")],
    ids=["recurrent", "hybrid", "chunked"],
)
def test_caches_that_cannot_rewind_are_refused_for_both_models(tmp_path, monkeypatch, role, config, kind):
    path = checkpoints.write(tmp_path / "model", config)
    module = type(checkpoints.module(config))
    calls = []
    monkeypatch.setattr(module, "__call__", lambda _, tokens, cache: calls.append((tokens, cache)))
    with pytest.raises(ValueError, match=rf"^{role}.path must be a model whose caches can be rewound.*{kind}"):
        Checkpoint(path=path).load(role)
    assert not calls


def test_a_rotating_cache_that_pins_its_first_tokens_is_refused(tiny, monkeypatch):
    from mlx_lm.models import llama
    from mlx_lm.models.cache import RotatingKVCache

    monkeypatch.setattr(llama.Model, "make_cache", lambda _: [RotatingKVCache(max_size=8, keep=4)])
    with pytest.raises(ValueError, match=r"^drafter.path must be a model whose caches.* RotatingKVCache"):
        Checkpoint(path=tiny).load("drafter")


def test_caches_in_lists_are_opened(tiny, monkeypatch):
    from specfw.models.pretrained.caches import LayerCaches, rewindable_caches

    from mlx_lm.models.cache import ArraysCache, CacheList, KVCache, RotatingKVCache

    class Nested:
        def __init__(self, *parts):
            self.make_cache = lambda: [CacheList(*parts), KVCache()]

    cache = LayerCaches(rewindable_caches(Nested(KVCache(), RotatingKVCache(max_size=8)), "target"))
    assert [type(leaf).__name__ for leaf in cache.leaves()] == ["KVCache", "WindowedKVCache", "KVCache"]
    with pytest.raises(ValueError, match="ArraysCache"):
        rewindable_caches(Nested(KVCache(), ArraysCache(1)), "target")


@pytest.mark.parametrize(("dtype", "computed"), [("auto", "float32"), ("float16", "float16"), ("bfloat16", "bfloat16")])
def test_a_checkpoint_computes_in_the_format_asked_for(tiny, dtype, computed):
    model = Checkpoint(path=tiny, dtype=dtype).load("target")
    logits = model.forward(ids(2), model.new_cache(1))
    assert str(logits.dtype) == f"mlx.core.{computed}"
    assert model.fingerprint()["computed_in"] == [computed]
    assert bool(model.notes) == (computed != "float32")


def test_a_gpu_keeps_the_weights_as_they_are(monkeypatch):
    from specfw.models.pretrained.precision import convert, formats

    module = checkpoints.module(checkpoints.LLAMA)
    module.set_dtype(mx.bfloat16)
    gpu = mx.Device(mx.gpu)
    monkeypatch.setattr(mx, "default_device", lambda: gpu)
    assert convert(module, "auto", "target") is None
    assert formats(module) == ["bfloat16"]


@pytest.mark.parametrize("mode", [{"group_size": 32, "bits": 4}, {"group_size": 32, "bits": 4, "mode": "mxfp4"}])
def test_quantised_weights_are_dequantised_on_a_cpu(tmp_path, mode):
    config = checkpoints.LLAMA
    module = checkpoints.module(config)
    module.set_dtype(mx.float16)
    nn.quantize(module, **mode)
    path = checkpoints.write(tmp_path / "model", config, module, quantization=mode)
    model = Checkpoint(path=path).load("target")
    assert model.notes == ("target: weights stored as float16 (8 quantised layers) are computed in float32",)
    assert not any("scales" in layer for layer in model._module.modules())
    module.set_dtype(mx.float32)
    expected = np.array(module(ids(12)))
    np.testing.assert_allclose(np.array(model.forward(ids(12), model.new_cache(1))), expected, atol=1e-2)
    assert np.abs(expected).max() > 1


def test_a_layer_that_cannot_be_dequantised_is_refused(tiny):
    from specfw.models.pretrained.precision import convert

    module = checkpoints.module(checkpoints.LLAMA)
    module.head = nn.QQLinear(64, 64, 16, 4, "nvfp4")
    module.eval()
    with pytest.raises(ValueError, match=r"^drafter.dtype must be stored for QQLinear layers"):
        convert(module, "auto", "drafter")


@pytest.mark.parametrize(
    ("config", "generation", "expected"),
    [(None, None, {0}), (7, None, {0, 7}), ([7, 8], None, {0, 7, 8}), (7, [9], {0, 9})],
)
def test_ends_of_sequence_come_from_all_three_files(tiny, config, generation, expected):
    checkpoints.edit(tiny, "config.json", eos_token_id=config)
    if generation is not None:
        Path(tiny, "generation_config.json").write_text(json.dumps({"eos_token_id": generation}))
    assert Checkpoint(path=tiny).load("target").eos_ids == expected


@pytest.mark.parametrize(("ends", "never"), [([0, 7], []), (99999, [99999]), ([2048, 7, 99999], [2048, 99999])])
def test_ends_of_sequence_that_no_token_stands_for_are_told(tmp_path, ends, never):
    """2,048 has a row in the padded model, and no token; 99,999 has neither."""
    path = checkpoints.write(tmp_path / "padded", {**checkpoints.LLAMA, "vocab_size": 2112})
    Path(path, "generation_config.json").write_text(json.dumps({"eos_token_id": ends}))
    model = Checkpoint(path=path).load("target")
    note = f"target: end-of-sequence ids {never} stand for no token and never end a sequence"
    assert model.notes == ((note,) if never else ())
    assert model.eos_ids == {0, *(ends if isinstance(ends, list) else [ends])}


def test_loading_says_nothing_on_stdout(tiny, capfd):
    Checkpoint(path=tiny).load("target")
    assert capfd.readouterr().out == ""


def broken(name):
    """What happens to a checkpoint folder, by name of the fault."""
    return {
        "no config": lambda folder: (folder / "config.json").unlink(),
        "config cut short": lambda folder: (folder / "config.json").write_text('{"model_type": '),
        "config in Latin-1": lambda folder: (folder / "config.json").write_bytes(b'{"model_type": "\xe9"}'),
        "config a list": lambda folder: (folder / "config.json").write_text("[]"),
        "no model_type": lambda folder: checkpoints.edit(folder, "config.json", model_type=None),
        "unknown model_type": lambda folder: checkpoints.edit(folder, "config.json", model_type="nonesuch"),
        "no model's module": lambda folder: checkpoints.edit(folder, "config.json", model_type="cache"),
        "a path as model_type": lambda folder: checkpoints.edit(folder, "config.json", model_type="../../evil"),
        "own code": lambda folder: checkpoints.edit(folder, "config.json", model_file="evil.py"),
        "missing key": lambda folder: checkpoints.edit(folder, "config.json", hidden_size=None),
        "other shapes": lambda folder: checkpoints.edit(folder, "config.json", hidden_size=96),
        "missing weights": lambda folder: checkpoints.edit(folder, "config.json", num_hidden_layers=2),
        "no weights": lambda folder: (folder / "model.safetensors").unlink(),
        "weights cut short": lambda folder: cut(folder / "model.safetensors"),
        "weights empty": lambda folder: (folder / "model.safetensors").write_bytes(b""),
        "a missing shard": lambda folder: (folder / "model.safetensors.index.json").write_text(
            json.dumps({"weight_map": {"x": "model-2.safetensors"}})
        ),
        "no tokenizer": lambda folder: [(folder / f"tokenizer{end}.json").unlink() for end in ("", "_config")],
        "tokenizer cut short": lambda folder: cut(folder / "tokenizer.json"),
        "generation config cut short": lambda folder: (folder / "generation_config.json").write_text("{"),
        "an end that is no id": lambda folder: checkpoints.edit(folder, "config.json", eos_token_id=1.5),
        "an end that is yes": lambda folder: checkpoints.edit(folder, "config.json", eos_token_id=True),
        "ends that are no ids": lambda folder: (folder / "generation_config.json").write_text(
            '{"eos_token_id": [0, "</s>"]}'
        ),
        "an end below zero": lambda folder: (folder / "generation_config.json").write_text('{"eos_token_id": -1}'),
    }[name]


def cut(path):
    content = path.read_bytes()
    path.write_bytes(content[: len(content) // 2])


BROKEN = [
    ("no config", "lacks config.json"),
    ("config cut short", "config.json is no readable JSON"),
    ("config in Latin-1", "config.json is no readable JSON"),
    ("config a list", "config.json is no JSON object"),
    ("no model_type", "names no model_type"),
    ("unknown model_type", "Model type nonesuch not supported"),
    ("no model's module", "has no attribute 'Model'"),
    ("a path as model_type", "not supported"),
    ("own code", "wants to run its own model_file, which is never done"),
    ("missing key", "hidden_size"),
    ("other shapes", "[Ss]hape"),
    ("missing weights", "Missing"),
    ("no weights", "lacks its weights model"),
    ("weights cut short", "is no complete safetensors file"),
    ("weights empty", "is no complete safetensors file"),
    ("a missing shard", "lacks its weights model-2.safetensors"),
    ("no tokenizer", "lacks a tokenizer"),
    ("tokenizer cut short", "cannot be loaded: Failed to parse tokenizer.json"),
    ("generation config cut short", "generation_config.json is no readable JSON"),
    ("an end that is no id", "config.json has an eos_token_id that is neither an id nor a list of ids"),
    ("an end that is yes", "config.json has an eos_token_id that is neither an id nor a list of ids"),
    ("ends that are no ids", "generation_config.json has an eos_token_id that is neither"),
    ("an end below zero", "generation_config.json has an eos_token_id that is neither"),
]


@pytest.mark.parametrize(("fault", "sentence"), BROKEN, ids=[fault for fault, _ in BROKEN])
def test_a_broken_folder_is_refused_in_one_sentence(tiny, fault, sentence):
    broken(fault)(Path(tiny))
    with pytest.raises(ValueError, match=rf"^drafter.path .*{sentence}") as refusal:
        Checkpoint(path=tiny).load("drafter")
    assert "\n" not in str(refusal.value)


@pytest.mark.parametrize("fault", ["no config", "own code", "no weights", "weights cut short", "no tokenizer"])
def test_what_needs_no_weights_is_found_before_any_model_is_loaded(tiny, fault):
    Checkpoint(path=tiny).check("target")
    broken(fault)(Path(tiny))
    with pytest.raises(ValueError, match=r"^target.path must be a checkpoint"):
        Checkpoint(path=tiny).check("target")


@pytest.mark.parametrize("path", ["no/such/folder", "./some-model", "zoo:third", __file__])
def test_a_path_that_is_no_folder_is_refused(path):
    allowed = "a local folder in mlx-lm's layout, zoo:target, zoo:drafter, or a model of the Hugging Face hub written"
    with pytest.raises(ValueError, match=f"^target.path must be {allowed} organisation/model, got '{path}'"):
        Checkpoint(path=path).check("target")


def test_an_empty_path_and_an_unknown_format_are_refused():
    with pytest.raises(ValueError, match=r"^target.path must be a folder, a model of the hub, zoo:target or zoo:d"):
        build("model", {"name": "checkpoint", "path": " "}, "target")
    with pytest.raises(
        ValueError, match=r"^target.dtype must be one of: auto, stored, float32, float16, bfloat16, got"
    ):
        build("model", {"name": "checkpoint", "path": "x", "dtype": "int8"}, "target")


def test_code_that_lies_in_the_folder_is_never_run(tiny):
    ran = Path(tiny, "ran")
    for name in ("modeling.py", "tokenization.py", "configuration.py"):
        Path(tiny, name).write_text(f"open({str(ran)!r}, 'w')\nclass It: pass\n")
    own = {"AutoModelForCausalLM": "modeling.It", "AutoConfig": "configuration.It"}
    checkpoints.edit(tiny, "config.json", auto_map=own)
    checkpoints.edit(tiny, "tokenizer_config.json", auto_map={"AutoTokenizer": ["tokenization.It", None]})
    Checkpoint(path=tiny).load("target")
    assert not ran.exists()


def test_a_folder_may_lie_in_the_home_directory(tiny, monkeypatch):
    monkeypatch.setenv("HOME", str(Path(tiny).parent))
    Checkpoint(path="~/tiny").check("target")


def test_the_shipped_pair_has_its_papers():
    from specfw import zoo

    assert {name: zoo.folder(name) for name in zoo.NAMES} == {name: ZOO[f"zoo:{name}"] for name in zoo.NAMES}
    with pytest.raises(ValueError, match="the zoo holds target and drafter, got 'third'"):
        zoo.folder("third")
    home = zoo.folder("target").parent
    assert "PYTHON SOFTWARE FOUNDATION LICENSE VERSION 2" in (home / "NOTICE").read_text()
    assert "Corpus" in (home / "README.md").read_text()
