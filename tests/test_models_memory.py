"""Memory is estimated from the files' headers, held against the machine, refused with the numbers, and logged."""

import gc
import json
from types import SimpleNamespace

from specfw.experiment import run
from specfw.models import _available, memory
from specfw.models.base import Footprint
from specfw.models.checkpoint import Checkpoint
from specfw.models.memory import Estimate, estimate, wired
from specfw.models.pretrained.model import Pretrained

import checkpoints
import mlx.core as mx
import pytest
from kit import config, iid
from mlx import nn

SMALL = checkpoints.SPEAKING["llama"]
PARAMETERS = 2 * 2048 * 64 + 2 * (4 * 64 * 64 + 3 * 64 * 64 + 2 * 64) + 64
KINDS = ("auto", "stored")
GIB = 2**30
PROMPT = {"name": "ids", "ids": [[5, 17, 900]]}


@pytest.fixture
def path(tmp_path):
    return checkpoints.write(tmp_path / "model", SMALL)


def pair(path, **changes):
    return config(*({"name": "checkpoint", "path": path} for _ in range(2)), max_tokens=4, prompts=PROMPT, **changes)


@pytest.mark.parametrize(("dtype", "size"), [("auto", 4), ("float16", 2)])
def test_weights_and_caches_are_known_before_they_are_read(path, dtype, size):
    model = Checkpoint(path=path, dtype=dtype).load("target")
    taken = model.footprint(tokens=1000, chunk=100)
    assert taken.weights_bytes == PARAMETERS * size
    assert taken.cache_bytes == 1024 * 2 * 2 * 2 * 32 * size  # in steps of 256: layers, keys and values, heads, size
    layer = 2 * 2 * 32  # numbers in keys and values
    assert taken.work_bytes == 1024 * (2 * 100 + layer) * size  # two heads
    assert model.footprint(tokens=50, chunk=100).work_bytes == 256 * (2 * 50 + layer) * size


def test_quantised_weights_are_counted_as_they_compute(tmp_path):
    model = checkpoints.module(SMALL)
    nn.quantize(model, 32, 4)
    path = checkpoints.write(tmp_path / "model", SMALL, model, quantization={"group_size": 32, "bits": 4})
    seen = {kind: Checkpoint(path=path, dtype=kind).load("target").footprint(1, 1).weights_bytes for kind in KINDS}
    assert seen["auto"] == PARAMETERS * 4
    assert 0 < seen["stored"] < PARAMETERS


def test_quantised_keys_cost_what_they_hold(path):
    plain, quantised = (
        Checkpoint(path=path, **fields).load("target").footprint(256, 1).cache_bytes
        for fields in ({}, {"kv_bits": 4, "kv_group_size": 32})
    )
    assert quantised == plain * (0.5 + 8 / 32) / 4  # four bits each, a scale and a bias of four bytes for 32


def test_sliding_windows_are_counted_with_the_whole_context(tmp_path):
    path = checkpoints.write(tmp_path / "model", checkpoints.SLIDING["mistral"])
    assert Checkpoint(path=path).load("target").footprint(1000, 1).cache_bytes == 1024 * 2 * 2 * 2 * 16 * 4


def test_reading_takes_what_was_estimated(path):
    """The estimate against MLX's own count, the lazily opened model being all that this process holds."""
    model = Checkpoint(path=path).load("target")
    gc.collect()
    mx.clear_cache()  # a larger buffer used again counts whole
    before = mx.get_active_memory()
    model.read()
    read = mx.get_active_memory() - before
    assert read == pytest.approx(model.footprint(1, 1).weights_bytes, rel=0.01)


def test_the_peak_is_everything_held_and_the_largest_work():
    sizes = {"target": Footprint(100, 20, 7), "drafter": Footprint(30, 4, 9)}
    assert Estimate(10, sizes, None).peak_bytes == 154 + 9
    Estimate(10, sizes, None).require_room()
    Estimate(10, sizes, 163).require_room()
    with pytest.raises(ValueError, match=r"fit into 1.62e-07 GB of memory, but need 1.63e-07 GB for a sequence"):
        Estimate(10, sizes, 162).require_room()


def test_what_cannot_fit_is_refused_with_the_numbers_before_weights_are_read(path, tmp_path, monkeypatch):
    monkeypatch.setattr(memory, "available", lambda held: 10**6)
    monkeypatch.setattr(Pretrained, "read", lambda _: pytest.fail("weights were read"))
    sentence = (
        r"^target and drafter must fit into 0.001 GB of memory, but need 0.00323 GB for a sequence of 7 tokens "
        r"\(target: weights 0.00128 GB, cache 0.000262 GB, work 0.000145 GB; drafter: .*\): choose smaller models"
    )
    folder = tmp_path / "run"
    folder.mkdir()
    with pytest.raises(ValueError, match=sentence):
        run(pair(path), folder=folder, quiet=True)
    assert not list(folder.iterdir())


def test_numbers_of_a_refusal_are_readable():
    sizes = {"target": Footprint(40_120_000_000, 3_100_000_000, 512_000_000)}
    with pytest.raises(ValueError, match=r"into 21.3 GB of memory, but need 43.7 GB .*weights 40.1 GB, cache 3.1 GB"):
        Estimate(50_000, sizes, 21_300_000_000).require_room()


def test_the_estimate_is_in_the_record(path, tmp_path):
    run(pair(path), folder=tmp_path, quiet=True)
    events = [json.loads(line) for line in (tmp_path / "events.jsonl").read_text().splitlines()]
    (said,) = (event for event in events if event["event"] == "memory_estimated")
    assert said["tokens"] == 7
    assert said["models"]["target"] == said["models"]["drafter"]
    assert said["models"]["target"]["weights_bytes"] == PARAMETERS * 4
    assert said["peak_bytes"] > 2 * PARAMETERS * 4
    assert said["available_bytes"] > said["peak_bytes"]


def test_toys_take_nothing_and_nothing_is_said(tmp_path):
    run(config(*({"name": "iid", "probs": [0.5, 0.5]} for _ in range(2))), folder=tmp_path, quiet=True)
    assert "memory_estimated" not in (tmp_path / "events.jsonl").read_text()
    assert estimate({"target": iid([0.5, 0.5])}, 10**9, 512).peak_bytes == 0


@pytest.fixture
def machine(tmp_path, monkeypatch):
    """A Linux machine whose files say what a test writes."""
    monkeypatch.setattr(_available, "sys", SimpleNamespace(platform="linux"))
    monkeypatch.setattr(_available, "PROC", tmp_path)
    monkeypatch.setattr(_available, "GROUPS", tmp_path)
    monkeypatch.setattr(mx, "device_info", dict)

    def write(**files):
        for name, text in files.items():
            file = tmp_path / name.replace("__", "/").replace("_dot_", ".")
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text)

    write(meminfo=f"MemTotal: {99 * GIB // 1024} kB\nMemAvailable: {8 * GIB // 1024} kB\n", self__cgroup="0::/\n")
    return write


def test_a_machine_has_what_is_available_without_swapping(machine):
    assert _available.available() == 8 * GIB


def test_containers_have_what_their_group_has_left(machine):
    machine(memory_dot_max=f"{4 * GIB}", memory_dot_current=f"{3 * GIB}", memory_dot_stat=f"active_file {GIB}\n")
    assert _available.available() == 2 * GIB
    machine(memory_dot_max="max")
    assert _available.available() == 8 * GIB


def test_a_group_is_bounded_by_those_above_it(machine):
    machine(self__cgroup="0::/jobs/one\n", jobs__one__memory_dot_max="max", jobs__one__memory_dot_current="1")
    machine(jobs__memory_dot_max=f"{5 * GIB}", jobs__memory_dot_current=f"{2 * GIB}")
    assert _available.available() == 3 * GIB


def test_the_older_control_groups_are_read_too(machine):
    machine(self__cgroup="4:cpu:/x\n3:memory:/job\n", memory__job__memory_dot_limit_in_bytes=f"{6 * GIB}")
    machine(memory__job__memory_dot_usage_in_bytes=f"{GIB}")
    assert _available.available() == 5 * GIB


def test_a_machine_that_says_nothing_refuses_nothing(machine, tmp_path):
    (tmp_path / "meminfo").unlink()
    (tmp_path / "self/cgroup").unlink()
    assert _available.available() is None


def test_a_mac_has_the_memory_that_mlx_names(machine, monkeypatch):
    monkeypatch.setattr(_available, "sys", SimpleNamespace(platform="darwin"))
    assert _available.available() is None
    monkeypatch.setattr(mx, "device_info", lambda: {"memory_size": 16 * GIB})
    assert _available.available() == 16 * GIB


def test_a_mac_keeps_wired_what_it_recommends_while_it_decodes(monkeypatch, path):
    limits = [0]

    def set_limit(limit):
        limits.append(limit)
        return limits[-2]

    monkeypatch.setattr(mx, "device_info", lambda: {"max_recommended_working_set_size": 12 * GIB})
    monkeypatch.setattr(mx, "set_wired_limit", set_limit)
    seen = []
    run(pair(path), quiet=True, write=lambda _: seen.append(limits[-1]))
    assert seen[0] == 12 * GIB
    assert limits == [0, 12 * GIB, 0]
    with pytest.raises(KeyboardInterrupt), wired():
        raise KeyboardInterrupt
    assert limits[-2:] == [12 * GIB, 0]


def test_elsewhere_nothing_is_wired(monkeypatch):
    monkeypatch.setattr(mx, "set_wired_limit", lambda _: pytest.fail("a limit was set"))
    with wired():
        pass
