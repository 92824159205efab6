"""GGUF files: the same numbers as the checkpoint they were made from, or refused before weights are read."""

import gc
import hashlib
import json
from itertools import pairwise
from pathlib import Path

from specfw.experiment import run
from specfw.models.checkpoint import Checkpoint
from specfw.models.gguf import Gguf
from specfw.models.gguf_file import contents
from specfw.models.gguf_file.architectures import ARCHITECTURES
from specfw.registry import build

import checkpoints
import gguf_files
import mlx.core as mx
import numpy as np
import pytest
from gguf.constants import GGML_QUANT_SIZES
from gguf.constants import GGMLQuantizationType as Kind
from gguf.quants import dequantize
from kit import config as configuration
from mlx_lm.generate import generate_step
from mlx_lm.models.llama import Model, ModelArgs

KINDS = (Kind.F32, Kind.F16, Kind.BF16, Kind.Q4_0, Kind.Q4_1, Kind.Q5_0, Kind.Q5_1, Kind.Q8_0)
LLAMA = gguf_files.CONFIGS["llama"]


@pytest.fixture(scope="module", autouse=True)
def cpu():
    """Number formats differ by device; these are the CPU's."""
    device = mx.default_device()
    mx.set_default_device(mx.cpu)
    yield
    mx.set_default_device(device)


@pytest.fixture
def file(tmp_path):
    return gguf_files.write(tmp_path / "model.gguf", "llama", Kind.Q8_0)


def ids(count=20, seed=0):
    return mx.array(np.random.default_rng(seed).integers(1, checkpoints.VOCABULARY, (1, count)).astype(np.int32))


def logits(path, tokens=None, **fields):
    model = Gguf(path=path, **fields).load("target")
    return np.array(model.forward(ids() if tokens is None else tokens, model.new_cache(1)))


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
@pytest.mark.parametrize("name", gguf_files.MODELS)
def test_logits_are_those_of_the_checkpoint(tmp_path, name, kind):
    module = gguf_files.rounded(gguf_files.speaking(name), kind)
    path = gguf_files.write(tmp_path / "model.gguf", name, kind)
    expected = np.array(module(ids()))
    assert expected.std() > 0.1
    if name.startswith("gemma3"):  # (w + 1) - 1 rounds
        np.testing.assert_allclose(logits(path), expected, atol=2e-5 * np.abs(expected).max())
    else:
        np.testing.assert_array_equal(logits(path), expected)


def test_rows_of_a_llama_turn_neighbours_where_they_are_not_put_back(tmp_path):
    """llama.cpp's rotation on the rows as the file has them: mlx-lm's traditional one."""
    config = {**LLAMA, "num_key_value_heads": 1}
    module = checkpoints.module(config)
    path = gguf_files.write(tmp_path / "model.gguf", "llama", module=module, config=config)
    names = {f"blk.{layer}.attn_{part}.weight": (layer, part) for layer in range(2) for part in "qk"}
    traditional = Model(ModelArgs.from_dict({**config, "rope_traditional": True}))
    traditional.update(module.parameters())
    for name, array in gguf_files.tensors(config, module):
        if name in names:
            layer, part = names[name]
            weights = [(f"model.layers.{layer}.self_attn.{part}_proj.weight", mx.array(array))]
            traditional.load_weights(weights, strict=False)
    np.testing.assert_allclose(logits(path), np.array(traditional(ids())), atol=1e-5)
    assert np.abs(np.array(module(ids())) - logits(path)).max() == 0


def test_factors_of_the_rotation_are_those_of_llama_3(tmp_path):
    scaling = {"factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 32}
    config = {**LLAMA, "rope_scaling": {"rope_type": "llama3", **scaling}, "max_position_embeddings": 512}
    module = checkpoints.module(config)
    wavelengths = 2 * np.pi * config["rope_theta"] ** (np.arange(0, 32, 2) / 32)
    smooth = (32 / wavelengths - 1) / (4 - 1)
    between = 1 / ((1 - smooth) / 8 + smooth)
    factors = np.where(wavelengths < 32 / 4, 1, np.where(wavelengths > 32, 8, between)).astype(np.float32)
    assert len({*factors.round(3).tolist()}) > 3
    arrays = [*gguf_files.tensors(config, module), ("rope_freqs.weight", factors)]
    told = gguf_files.metadata(config)
    path = gguf_files.save(tmp_path / "model.gguf", told, arrays)
    expected = np.array(module(ids(60)))
    np.testing.assert_allclose(logits(path, ids(60)), expected, atol=1e-4 * np.abs(expected).max())
    plain = gguf_files.save(tmp_path / "plain.gguf", told, arrays[:-1])
    assert np.abs(logits(plain, ids(60)) - expected).max() > 0.01 * np.abs(expected).max()
    told["llama.rope.scaling.type"], told["llama.rope.scaling.factor"] = "linear", 2.0
    both = gguf_files.save(tmp_path / "both.gguf", told, arrays)
    with pytest.raises(ValueError, match=r"llama.rope.scaling.type must be none beside rope_freqs.weight, got linear"):
        Gguf(path=both).load("target")


@pytest.mark.parametrize("name", ["llama", "qwen2", "gemma3_text"])
def test_positions_are_scaled_as_the_file_says(tmp_path, name):
    config = {**gguf_files.CONFIGS[name], "rope_scaling": {"type": "linear", "factor": 4.0}}
    module = checkpoints.module(config)
    if name == "gemma3_text":
        module.sanitize({})
    keys = {"type": "linear", "factor": 4.0}
    scaling = {f"{gguf_files.ARCHITECTURES[name]}.rope.scaling.{key}": value for key, value in keys.items()}
    path = gguf_files.write(tmp_path / "model.gguf", name, module=module, config=config, **scaling)
    expected = np.array(module(ids()))
    np.testing.assert_allclose(logits(path), expected, atol=2e-5 * np.abs(expected).max())


def test_gemma_is_what_the_file_says_or_what_llama_cpp_takes_it_for(tmp_path):
    base = {**gguf_files.CONFIGS["gemma3_text"], "rope_local_base_freq": 500.0, "rope_theta": 30_000.0}
    module = checkpoints.module(base)
    module.sanitize({})
    given = {"gemma3.rope.freq_base_swa": 500.0}
    path = gguf_files.write(tmp_path / "given.gguf", "gemma3_text", module=module, config=base, **given)
    expected = np.array(module(ids()))
    np.testing.assert_allclose(logits(path), expected, atol=2e-5 * np.abs(expected).max())
    silent = {f"gemma3.{key}": None for key in ("attention.sliding_window_pattern", "rope.freq_base")}
    six = {**gguf_files.CONFIGS["gemma3_text"], "num_hidden_layers": 6}
    module = checkpoints.module(six)
    module.sanitize({})
    path = gguf_files.write(tmp_path / "silent.gguf", "gemma3_text", module=module, config=six, **silent)
    args = Gguf(path=path).load("target")._module.args
    assert (args.sliding_window_pattern, args.rope_theta, args.rope_local_base_freq) == (6, 1_000_000.0, 10_000.0)
    assert args.query_pre_attn_scalar == args.head_dim == 32


def test_the_scores_of_the_largest_gemma_are_scaled_by_a_share_of_its_state():
    from specfw.models.gguf_file.architectures.base import Facts, Keys

    told = gguf_files.metadata(gguf_files.CONFIGS["gemma3_text"])
    told |= {"gemma3.block_count": 62, "gemma3.attention.head_count": 4}
    facts = Facts(Keys("gemma3", told), {"token_embd.weight": (8, 64)}, None)
    assert ARCHITECTURES["gemma3"].config(facts)["query_pre_attn_scalar"] == 64 // 4


@pytest.mark.parametrize("kind", contents.known_kinds(), ids=lambda kind: kind.name)
def test_every_format_that_gguf_knows_is_read(tmp_path, kind, monkeypatch):
    """Random blocks, read in slices of 3, against the package's own way over the whole."""
    block, size = GGML_QUANT_SIZES[kind]
    rows, row = 5, 2 * max(256 // block, 1)
    stored = np.random.default_rng(0).integers(0, 60, (rows, row * size), dtype=np.uint8)  # no scale is infinite
    file = tmp_path / "raw"
    file.write_bytes(b"before" + stored.tobytes())
    tensor = contents.Tensor(file, "x", kind, (rows, row * block), len(b"before"), stored.size)
    monkeypatch.setattr(contents, "_MOST_BLOCKS", 3)
    read = contents.numbers(tensor)
    assert read.dtype == np.float32
    np.testing.assert_array_equal(read, dequantize(stored, kind).reshape(rows, -1))
    assert np.isfinite(read).all()
    assert read.any()


def test_named_formats_are_known():
    named = {"Q4_1", "Q8_0", "Q5_0", "Q4_K", "Q6_K", "F16", "F32", "BF16", "Q4_0", "Q5_K"}
    assert named <= {kind.name for kind in contents.known_kinds()}


def halves(folder, name="llama", count=2):
    """A model in parts, as llama.cpp's gguf-split writes it. Returns the parts."""
    arrays = list(gguf_files.tensors(gguf_files.CONFIGS[name], gguf_files.speaking(name)))
    told = gguf_files.metadata(gguf_files.CONFIGS[name])
    ends = [round(len(arrays) * part / count) for part in range(count + 1)]
    files = []
    for number, (start, end) in enumerate(pairwise(ends)):
        place = {"split.no": number, "split.count": count, "split.tensors.count": len(arrays)}
        own = told if not number else {"general.architecture": told["general.architecture"]}
        files.append(folder / f"model-{number + 1:05}-of-{count:05}.gguf")
        gguf_files.save(files[-1], {**own, **place}, arrays[start:end])
    return files


def test_parts_are_read_together(tmp_path):
    first, second, third = halves(tmp_path, count=3)
    whole = np.array(gguf_files.speaking("llama")(ids()))
    for path in (tmp_path, first, third):
        np.testing.assert_array_equal(logits(str(path)), whole)
    told = Gguf(path=str(tmp_path)).load("target").fingerprint()["sha256"]
    assert list(told) == [first.name, second.name, third.name]
    second.unlink()
    sentence = rf"^drafter.path must be a GGUF file, or .* lacks the parts {second.name}$"
    for path in (tmp_path, first):
        with pytest.raises(ValueError, match=sentence):
            Gguf(path=str(path)).check("drafter")


def test_parts_that_do_not_belong_together_are_refused(tmp_path):
    first, second = halves(tmp_path)
    alone = tmp_path / "alone.gguf"
    first.rename(alone)
    with pytest.raises(ValueError, match=r"alone.gguf is one of 2 parts and not named <name>-00001-of-<count>.gguf"):
        Gguf(path=str(alone)).check("target")
    alone.rename(first)
    second.write_bytes(first.read_bytes())
    with pytest.raises(ValueError, match=r"-00001-of-00002.gguf hold \d+ of its 21 tensors"):
        Gguf(path=str(tmp_path)).check("target")


def test_a_folder_with_one_file_is_that_file_and_with_two_models_neither(file, tmp_path):
    Gguf(path=str(tmp_path)).check("target")
    (tmp_path / "other.gguf").write_bytes(Path(file).read_bytes())
    with pytest.raises(ValueError, match=r"holds model.gguf, other.gguf: name one file"):
        Gguf(path=str(tmp_path)).check("target")
    with pytest.raises(ValueError, match=r"holds no \*.gguf: name one file"):
        Gguf(path=str(Path(__file__).parent)).check("target")


def test_weights_are_left_unread_until_a_model_is_fed(file, monkeypatch):
    monkeypatch.setattr(contents, "numbers", lambda tensor: pytest.fail(f"{tensor.name} was read"))
    model = Gguf(path=file).load("target")
    parameters = 2 * 2048 * 64 + 2 * (4 * 64 * 64 + 3 * 64 * 64 + 2 * 64) + 64
    taken = model.footprint(tokens=1000, chunk=100)
    assert taken.weights_bytes == parameters * 4
    assert taken.cache_bytes == 1024 * 2 * 2 * 2 * 32 * 4
    monkeypatch.undo()
    gc.collect()
    mx.clear_cache()  # a larger buffer used again counts whole
    before = mx.get_active_memory()
    model.read()
    assert mx.get_active_memory() - before == pytest.approx(taken.weights_bytes, rel=0.01)
    after = mx.get_active_memory()
    model.read()
    assert mx.get_active_memory() == after


def test_the_record_identifies_the_file(file):
    model = Gguf(path=file, kv_bits=8, kv_group_size=32).load("target")
    told = model.fingerprint()
    tokenizer = told.pop("tokenizer")
    assert told == {
        "path": file,
        "sha256": {"model.gguf": hashlib.sha256(Path(file).read_bytes()).hexdigest()},
        "architecture": "llama",
        "stored_in": {"F32": 5, "Q8_0": 16},
        "computed_in": ["float32"],
        "keys_and_values": {"bits": 8, "group_size": 32},
    }
    shipped = Checkpoint(path="zoo:drafter").load("drafter").fingerprint()["tokenizer"]
    assert tokenizer == shipped
    assert model.notes == ("target: tensors stored as F32 (5), Q8_0 (16) are computed in float32",)


@pytest.mark.parametrize(("dtype", "size"), [("float32", 4), ("float16", 2), ("bfloat16", 2)])
def test_it_computes_in_the_format_that_is_asked_for(file, dtype, size):
    model = Gguf(path=file, dtype=dtype).load("target")
    assert model.fingerprint()["computed_in"] == [dtype]
    full = Gguf(path=file).load("target").footprint(1, 1).weights_bytes
    assert model.footprint(1, 1).weights_bytes == full * size / 4
    rows = logits(file)
    other = np.array(model.forward(ids(), model.new_cache(1)).astype(mx.float32))
    np.testing.assert_allclose(other, rows, atol=0.1 * np.abs(rows).max())
    assert model.fingerprint()["computed_in"] == [dtype]


def test_a_pair_of_files_speculates_and_says_what_the_target_says(file, tmp_path):
    target = gguf_files.write(tmp_path / "target.gguf", "qwen2", Kind.Q4_1)
    models = ({"name": "gguf", "path": path} for path in (target, file))
    prompt = [5, 17, 900]
    changes = {"prompts": {"name": "ids", "ids": [prompt]}, "sampler": {"temperature": {"value": 0.0}}}
    folder = tmp_path / "run"
    folder.mkdir()
    run(configuration(*models, max_tokens=24, **changes), folder=folder, quiet=True)
    module = gguf_files.rounded(gguf_files.speaking("qwen2"), Kind.Q4_1)
    plain = [int(token) for token, _ in zip(generate_tokens(module, prompt), range(24), strict=False)]
    lines = [json.loads(line) for line in (folder / "tokens.jsonl").read_text().splitlines()]
    emitted = [line["id"] for line in lines]
    assert emitted == plain[: len(emitted)]
    assert len(emitted) == 24 or emitted[-1] == 0
    assert len({*emitted}) > 5
    assert {"accepted", "recovered", "bonus"} & {line["origin"] for line in lines}


def generate_tokens(module, prompt):
    yield from (token for token, _ in generate_step(mx.array(prompt), module, max_tokens=24))


def with_tensor(name, array):
    def change(arrays):
        arrays[name] = array

    return change


REFUSED = {
    "another architecture": (
        {"general.architecture": "mamba"},
        r"general.architecture must be one of llama, qwen2, gemma3, got 'mamba'",
    ),
    "another tokenizer": (
        {"tokenizer.ggml.model": "t5"},
        r"tokenizer.ggml.model must be one of gpt2, llama, got 't5'",
    ),
    "no tokenizer": ({"tokenizer.ggml.model": None}, r"tokenizer.ggml.model must be one of gpt2, llama, got 'missing'"),
    "other splits": (
        {"tokenizer.ggml.pre": "poro-chat"},
        r"tokenizer.ggml.pre must be one of gpt-2, smollm, qwen2, llama-bpe, got 'poro-chat'",
    ),
    "no scores": ({"tokenizer.ggml.model": "llama"}, r"tokenizer.ggml.scores must be one number a token, 2048, got 0"),
}


@pytest.mark.parametrize("fault", REFUSED)
def test_what_is_not_known_is_refused_before_any_model_is_loaded(tmp_path, fault):
    changes, sentence = REFUSED[fault]
    path = gguf_files.write(tmp_path / "model.gguf", "llama", **changes)
    with pytest.raises(ValueError, match=f"^target.path '{path}' cannot be read: {sentence}$"):
        Gguf(path=path).check("target")


LATER = {
    "no size": ({"llama.embedding_length": None}, r"llama.embedding_length is missing"),
    "a size that is a text": ({"llama.embedding_length": "64"}, r"must be a whole number, at least 1, got 64"),
    "sizes of each layer": ({"llama.attention.head_count": [2, 2]}, r"must be a whole number, at least 1, got \[2 2\]"),
    "a base below zero": ({"llama.rope.freq_base": -1.0}, r"rope.freq_base must be a number above 0, got -1.0"),
    "experts": ({"llama.expert_count": 8}, r"llama.expert_count must be one of 0, got 8"),
    "a part that is turned": (
        {"llama.rope.dimension_count": 16},
        r"llama.rope.dimension_count must be one of 32, got 16",
    ),
    "another scaling": (
        {"llama.rope.scaling.type": "yarn"},
        r"llama.rope.scaling.type must be one of none, linear, got yarn",
    ),
    "a scaling without factor": ({"llama.rope.scaling.type": "linear"}, r"llama.rope.scaling.factor is missing"),
    "more layers": (
        {"llama.block_count": 3},
        r"llama.block_count must be 2, the layers that there are tensors of, got 3",
    ),
    "layers without number": ({"llama.block_count": 2**31}, r"must be 2, the layers .*, got 2147483648"),
    "fewer layers": (
        {"llama.block_count": 1},
        r"llama.block_count must be 2, the layers that there are tensors of, got 1",
    ),
    "other shapes": ({"llama.feed_forward_length": 32}, r".weight must have the shape \(.*\), got \(.*\)"),
    "no tokens": ({"tokenizer.ggml.tokens": None}, r"tokenizer.ggml.tokens is missing"),
    "a token twice": ({"tokenizer.ggml.tokens": ["a", "b", "a"]}, r"tokenizer.ggml.token_type must be one number"),
    "an end beyond": ({"tokenizer.ggml.eos_token_id": 9999}, r"eos id must be below 2048, got 9999"),
    "no beginning": (
        {"tokenizer.ggml.bos_token_id": None, "tokenizer.ggml.add_bos_token": True},
        r"tokenizer.ggml.bos_token_id is missing, and add_bos_token is true",
    ),
    "a broken pair": (
        {"tokenizer.ggml.merges": ["a b c"]},
        r"tokenizer.ggml.merges must be pairs of tokens, got 'a b c'",
    ),
}


@pytest.mark.parametrize("fault", LATER)
def test_what_does_not_fit_together_is_refused_before_weights_are_read(tmp_path, fault, monkeypatch):
    changes, sentence = LATER[fault]
    path = gguf_files.write(tmp_path / "model.gguf", "llama", **changes)
    monkeypatch.setattr(contents, "numbers", lambda tensor: pytest.fail(f"{tensor.name} was read"))
    with pytest.raises(ValueError, match=f"^target.path '{path}' cannot be read: .*{sentence}") as refusal:
        Gguf(path=path).load("target")
    assert "\n" not in str(refusal.value)


def test_foreign_and_missing_tensors_are_named(tmp_path):
    arrays = dict(gguf_files.tensors(LLAMA, gguf_files.speaking("llama")))
    more = {**arrays, "blk.0.ffn_gate_inp.weight": np.zeros((2, 64), np.float32)}
    less = {name: array for name, array in arrays.items() if name != "blk.1.attn_q.weight"}
    told = gguf_files.metadata(LLAMA)
    for case, sentence in (
        (more, "llama has no place for the tensors blk.0.ffn_gate_inp.weight"),
        (less, "there are no tensors for model.layers.1.self_attn.q_proj.weight"),
        ({}, "token_embd.weight is missing"),
    ):
        path = gguf_files.save(tmp_path / "model.gguf", told, case.items())
        with pytest.raises(ValueError, match=f"cannot be read: {sentence}$"):
            Gguf(path=path).load("target")


def test_factors_of_the_rotation_that_nothing_would_use_are_refused(tmp_path):
    arrays = [*gguf_files.tensors(gguf_files.CONFIGS["qwen2"], gguf_files.speaking("qwen2"))]
    scaling = {"qwen2.rope.scaling.type": "linear", "qwen2.rope.scaling.factor": 2.0}
    factors = ("rope_freqs.weight", np.ones(16, np.float32))
    told = gguf_files.metadata(gguf_files.CONFIGS["qwen2"], **scaling)
    path = gguf_files.save(tmp_path / "model.gguf", told, [*arrays, factors])
    with pytest.raises(ValueError, match=r"qwen2 has no place for the tensors rope_freqs.weight"):
        Gguf(path=path).load("target")


def test_qwen_heads_that_are_no_share_of_the_state_are_refused(tmp_path):
    config = {**gguf_files.CONFIGS["qwen2"], "head_dim": 16}
    path = gguf_files.write(tmp_path / "model.gguf", "qwen2", config=config)
    with pytest.raises(ValueError, match=r"qwen2.attention.key_length must be one of 32, got 16"):
        Gguf(path=path).load("target")


@pytest.mark.parametrize("share", [0, 3, 20, 200, 40_000, -70_000, -1])
def test_a_file_cut_short_is_refused_in_one_sentence(file, share):
    whole = Path(file).read_bytes()
    Path(file).write_bytes(whole[:share])
    sentence = rf"^target.path must be a GGUF file, or a folder with the parts of one, but {file} is cut short: "
    with pytest.raises(ValueError, match=sentence) as refusal:
        Gguf(path=file).check("target")
    assert "\n" not in str(refusal.value)


@pytest.mark.parametrize(
    ("place", "patch", "sentence"),
    [
        (0, b"GGML", "is no GGUF file: it does not begin with GGUF"),
        (4, b"\x01", "has GGUF version 1; known: 2, 3, little-endian"),
        (4, b"\x00\x00\x00\x03", "has GGUF version 50331648; known: 2, 3"),
        (8, b"\xff" * 8, "is cut short: its header goes on after"),
    ],
)
def test_a_file_of_another_kind_is_refused(file, place, patch, sentence):
    content = bytearray(Path(file).read_bytes())
    content[place : place + len(patch)] = patch
    Path(file).write_bytes(content)
    with pytest.raises(ValueError, match=rf"^target.path must be .*, but {file} {sentence}"):
        Gguf(path=file).check("target")


def test_a_format_that_gguf_does_not_turn_into_numbers_is_refused(tmp_path):
    arrays = [("token_embd.weight", np.zeros((4, 32), np.float32))]
    path = gguf_files.save(tmp_path / "model.gguf", gguf_files.metadata(LLAMA), arrays)
    content = Path(path).read_bytes()
    described = (
        b"token_embd.weight" + (2).to_bytes(4, "little") + (32).to_bytes(8, "little") + (4).to_bytes(8, "little")
    )
    for number, sentence in (
        (Kind.I32, "stores token_embd.weight as I32; known: F32, F16, Q4_0, "),
        (99, "in a format"),
    ):
        changed = content.replace(described + bytes(4), described + int(number).to_bytes(4, "little"))
        assert changed != content
        Path(path).write_bytes(changed)
        with pytest.raises(ValueError, match=sentence):
            Gguf(path=path).check("target")


@pytest.mark.parametrize("path", ["no/such/file.gguf", "zoo:target", "org/model"])
def test_a_path_that_is_no_file_is_refused(path):
    with pytest.raises(ValueError, match=f"^target.path must be a GGUF file, or a folder .* got '{path}'"):
        Gguf(path=path).check("target")


@pytest.mark.parametrize(
    ("fields", "sentence"),
    [
        ({"path": " "}, r"^target.path must be a GGUF file or a folder of its parts, got ' '"),
        ({"kv_bits": 3}, r"^target.kv_bits must be null, 2, 4 or 8, got 3"),
        ({"kv_group_size": 16}, r"^target.kv_group_size must be 32, 64 or 128, got 16"),
        ({"dtype": "stored"}, r"^target.dtype must be one of: auto, float32, float16, bfloat16, got"),
    ],
)
def test_fields_out_of_range_are_refused(fields, sentence):
    with pytest.raises(ValueError, match=sentence):
        build("model", {"name": "gguf", "path": "x.gguf", **fields}, "target")


def test_a_file_in_the_home_directory(file, monkeypatch):
    monkeypatch.setenv("HOME", str(Path(file).parent))
    Gguf(path="~/model.gguf").check("target")


def test_a_quantised_cache_that_does_not_fit_is_refused(file):
    with pytest.raises(ValueError, match=r"^target.kv_bits must be null, or target.kv_group_size another, for"):
        Gguf(path=file, kv_bits=8, kv_group_size=64).load("target")
