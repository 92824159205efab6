"""Models that jobs leave to each other: when one serves again, when it is opened anew, what is let go."""

import gc
import os
import shutil
import weakref
from dataclasses import dataclass
from pathlib import Path

from specfw.drafting.intersection import IntersectionDrafting
from specfw.drafting.model import ModelDrafting
from specfw.models import _available
from specfw.models.base import ModelSpec
from specfw.models.checkpoint import Checkpoint
from specfw.models.iid import Iid
from specfw.models.memory import estimate
from specfw.models.pretrained import model as pretrained
from specfw.shelf import Shelf
from specfw.zoo import folder as shipped

import checkpoints
import pytest

DRAFTING = ModelDrafting()


@pytest.fixture
def path(tmp_path):
    return checkpoints.write(tmp_path / "model", checkpoints.LLAMA)


@pytest.fixture
def shelf():
    return Shelf()


def specs(target, drafter=None, **fields):
    both = {"target": target, "drafter": target if drafter is None else drafter}
    return {role: Checkpoint(path=str(path), **fields) for role, path in both.items()}


def test_the_same_models_serve_again(path, shelf):
    first, second = shelf.pair(specs(path), DRAFTING), shelf.pair(specs(path), ModelDrafting(proposal="sampled"))
    assert first.target is second.target
    assert first.drafter is second.drafter


def test_a_drafter_is_brought_to_the_target_as_the_drafting_says(path, shelf):
    first, second = shelf.pair(specs(path), DRAFTING), shelf.pair(specs(path), IntersectionDrafting())
    assert first.target is second.target
    assert first.drafter is not second.drafter
    assert "shared_tokens" in second.drafter.fingerprint()
    assert shelf.pair(specs(path), DRAFTING).drafter is first.drafter


@pytest.mark.parametrize("field", [{"dtype": "float16"}, {"dtype": "stored"}])
def test_another_specification_is_another_model(field, path, shelf):
    first = shelf.pair(specs(path), DRAFTING)
    assert shelf.pair(specs(path, **field), DRAFTING).target is not first.target


@pytest.mark.parametrize("name", ["model.safetensors", "config.json", "tokenizer.json"])
def test_a_file_that_was_replaced_is_read_again(name, path, shelf, tmp_path):
    first = shelf.pair(specs(path), DRAFTING)
    known = first.target.fingerprint()
    other = tmp_path / "other"
    shutil.copy(f"{path}/{name}", other)
    if name == "model.safetensors":
        weights = bytearray(other.read_bytes())
        weights[-1] ^= 1
        other.write_bytes(weights)
    stat = Path(path, name).stat()
    os.utime(other, ns=(stat.st_atime_ns, stat.st_mtime_ns))  # of the same size and age
    other.replace(Path(path, name))
    second = shelf.pair(specs(path), DRAFTING)
    assert second.target is not first.target
    assert (second.target.fingerprint() != known) == (name == "model.safetensors")


def test_a_file_that_came_is_seen(path, shelf):
    first = shelf.pair(specs(path), DRAFTING)
    Path(path, "generation_config.json").write_text('{"eos_token_id": 7}')
    second = shelf.pair(specs(path), DRAFTING)
    assert 7 in second.target.eos_ids - first.target.eos_ids


def test_what_the_next_job_does_not_use_is_let_go_before_anything_is_opened(path, shelf, tmp_path, monkeypatch):
    other = checkpoints.write(tmp_path / "other", checkpoints.LLAMA)
    pair = shelf.pair(specs(path, other), DRAFTING)
    for model in pair:
        model.read()
    target, drafter = weakref.ref(pair.target), weakref.ref(pair.drafter)
    del pair, model
    alive, load = [], pretrained.load

    def opened(role, *arguments):
        alive.append((role, target() is not None, drafter() is not None))
        return load(role, *arguments)

    monkeypatch.setattr(pretrained, "load", opened)
    shelf.pair({"target": Checkpoint(path=path), "drafter": Checkpoint(path=path)}, DRAFTING)
    assert alive == [("drafter", True, False)]
    shelf.pair({"target": Iid(probs=(0.5, 0.5))}, DRAFTING)
    assert target() is None


def test_a_shelf_can_be_emptied(path, shelf):
    kept = weakref.ref(shelf.pair(specs(path), DRAFTING).target)
    assert kept() is not None
    shelf.clear()
    gc.collect()
    assert kept() is None


def test_a_model_that_does_not_name_its_files_is_opened_every_time(path, shelf):
    @dataclass(frozen=True, kw_only=True)
    class Closed(ModelSpec):
        def load(self, role):
            return Checkpoint(path=path).load(role)

    first, second = (shelf.pair({"target": Closed()}, DRAFTING).target for _ in range(2))
    assert first is not second


def test_weights_in_memory_are_not_asked_for_again(path, shelf, monkeypatch):
    monkeypatch.setattr(_available, "_free", lambda: iter([10**6]))
    monkeypatch.setattr(_available, "_groups", lambda: iter([]))
    models = shelf.pair({"target": Checkpoint(path=path)}, DRAFTING)
    before = estimate({"target": models.target}, 10, 10)
    models.target.read()
    after = estimate({"target": models.target}, 10, 10)
    assert before.available_bytes == 10**6
    assert after.available_bytes == 10**6 + before.footprints["target"].weights_bytes
    assert before.footprints == after.footprints


def test_files_are_hashed_once(path, shelf, monkeypatch):
    model = shelf.pair({"target": Checkpoint(path=path)}, DRAFTING).target
    known = model.fingerprint()
    monkeypatch.setattr(pretrained, "digests", lambda _: pytest.fail("hashed again"))
    assert model.fingerprint() == known


def test_every_file_that_is_digested_is_watched(tmp_path):
    adapter = tmp_path / "adapter"
    adapter.mkdir()
    spec = Checkpoint(path="zoo:drafter", adapter_path=str(adapter))
    watched = spec.files("drafter")
    assert {"config.json", "model.safetensors", "tokenizer.json"} <= {path.name for path in watched}
    assert {path.parent for path in watched} == {shipped("drafter"), adapter}
