"""Checkpoints of the hub, from a cache laid out as a download leaves it, without a network."""

import json
import os
import subprocess
import sys
from pathlib import Path

import specfw
from specfw.experiment import run
from specfw.models.checkpoint import Checkpoint
from specfw.models.pretrained import hub

import checkpoints
import pytest
from huggingface_hub import constants
from kit import config
from mlx import nn

NAME = "someone/tiny-model.v1"
OTHER = "f" * 40
PROMPT = {"name": "ids", "ids": [[5, 17, 900]]}
GREEDY = {"temperature": {"value": 0}}


@pytest.fixture
def cache(tmp_path, monkeypatch):
    """An empty cache, and no network; huggingface_hub reads its environment when it is imported."""
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "hub"))
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    return tmp_path / "hub"


@pytest.fixture
def tiny(cache, tmp_path):
    """A tiny llama, in the cache and in a folder of its own, which is returned."""
    path = checkpoints.write(tmp_path / "tiny", checkpoints.LLAMA)
    checkpoints.hub(cache, NAME, path)
    return path


def text(path, **changes):
    models = ({"name": "checkpoint", "path": path, **changes} for _ in range(2))
    return run(config(*models, max_tokens=12, prompts=PROMPT, sampler=GREEDY), quiet=True).outputs[0].tokens


@pytest.mark.parametrize("name", checkpoints.SPEAKING)
def test_text_from_the_hub_is_text_from_a_folder(cache, tmp_path, name):
    path = checkpoints.write(tmp_path / "model", checkpoints.SPEAKING[name], checkpoints.speaking(name))
    checkpoints.hub(cache, NAME, path)
    assert text(NAME) == text(path)


def test_quantised_ones_too(cache, tmp_path):
    model, four = checkpoints.speaking("qwen2"), {"group_size": 32, "bits": 4}
    nn.quantize(model, **four)
    path = checkpoints.write(tmp_path / "model", checkpoints.SPEAKING["qwen2"], model, quantization=four)
    checkpoints.hub(cache, NAME, path)
    assert text(NAME) == text(path)


def test_the_commit_is_in_the_record(tiny, tmp_path):
    run(
        config({"name": "checkpoint", "path": NAME}, {"name": "checkpoint", "path": tiny}, prompts=PROMPT),
        folder=tmp_path,
        quiet=True,
    )
    events = [json.loads(line) for line in (tmp_path / "events.jsonl").read_text().splitlines()]
    (begun,) = (event for event in events if event["event"] == "run_started")
    ours, theirs = (begun["models"][role] for role in ("target", "drafter"))
    assert (ours["path"], ours["commit"]) == (NAME, checkpoints.COMMIT)
    assert "sha256" not in ours
    assert "model.safetensors" in theirs["sha256"]
    assert ours["tokenizer"] == theirs["tokenizer"]


def test_a_revision_is_a_branch_a_tag_or_a_commit(cache, tiny):
    checkpoints.edit(tiny, "config.json", rope_theta=500.0)
    checkpoints.hub(cache, NAME, tiny, commit=OTHER, ref="v2")
    seen = {
        revision: Checkpoint(path=NAME, revision=revision).load("target").fingerprint()["commit"]
        for revision in (None, "main", "v2", OTHER, checkpoints.COMMIT)
    }
    first = checkpoints.COMMIT
    assert seen == {None: first, "main": first, "v2": OTHER, OTHER: OTHER, first: first}


def test_a_local_folder_comes_first_and_has_no_revision(tiny, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "someone").mkdir()
    Path(tiny).rename(tmp_path / NAME)
    assert "commit" not in Checkpoint(path=NAME).load("target").fingerprint()
    with pytest.raises(ValueError, match=r"^drafter.revision must be null for a local folder, got 'main'"):
        Checkpoint(path=NAME, revision="main").check("drafter")


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"path": "someone/else"}, "there is no folder 'someone/else' here, and the hub's cannot be had"),
        ({"path": NAME, "revision": "v9"}, "and the hub's at revision 'v9' cannot be had"),
        ({"path": NAME, "revision": OTHER}, f"and the hub's at revision '{OTHER}' cannot be had"),
        ({"path": "some--one/else"}, "cannot be had (Cannot have -- or .. in repo_id"),
    ],
)
def test_what_cannot_be_reached_is_refused_in_one_sentence(tiny, fields, words):
    with pytest.raises(ValueError, match=r"^target.path must be a local folder in mlx-lm's layout, zoo:") as refusal:
        Checkpoint(**fields).check("target")
    assert words in str(refusal.value)
    assert "\n" not in str(refusal.value)


def test_an_unfinished_download_is_refused(cache, tiny):
    """Offline the library returns what lies there; the folder is looked through all the same."""
    (cache / "models--someone--tiny-model.v1/snapshots" / checkpoints.COMMIT / "model.safetensors").unlink()
    with pytest.raises(ValueError, match=r"^target.path must be a checkpoint .* lacks its weights model"):
        Checkpoint(path=NAME).check("target")


def test_code_is_not_even_fetched(monkeypatch, tmp_path):
    asked = []

    def download(name, revision, allow_patterns):
        asked.append((name, revision, allow_patterns))
        return tmp_path / OTHER

    monkeypatch.setattr("mlx_lm.utils._download", download)
    assert hub.commit(hub.fetch(NAME, "v2", "target")) == OTHER
    ((name, revision, patterns),) = asked
    assert (name, revision) == (NAME, "v2")
    assert {"*.json", "model*.safetensors"} < set(patterns)
    assert not any(pattern.endswith(".py") for pattern in patterns)


@pytest.mark.parametrize("path", ["a/b/c", "./model", "../model", "/model", "model", "a b/c", "zoo:third", "a/"])
def test_paths_are_no_ids(path):
    assert not hub.is_id(path)


def command(*words, **environment):
    line = [sys.executable, "-m", "specfw", "sampler.temperature.value=0", "max_tokens=8", *words]
    variables = {**os.environ, "HF_HUB_OFFLINE": "1", **environment}
    home = Path(specfw.__file__).parents[1]
    return subprocess.run(line, capture_output=True, text=True, env=variables, cwd=home, check=False)


def test_the_command_runs_a_pair_of_the_hub(tiny, cache, tmp_path):
    pair = (f"target.path={NAME}", f"drafter.path={NAME}", "drafter.revision=main", f"hydra.run.dir={tmp_path}/run")
    done = command(*pair, HF_HUB_CACHE=str(cache))
    assert done.returncode == 0, done.stderr
    assert "rule=greedy-argmax" in done.stdout.splitlines()[-1]
    begun = json.loads((tmp_path / "run/events.jsonl").read_text().splitlines()[0])
    assert begun["models"]["target"]["commit"] == checkpoints.COMMIT


def test_the_command_says_in_one_sentence_what_it_cannot_reach(tmp_path):
    done = command("target.path=someone/else", f"hydra.run.dir={tmp_path}/run", HF_HUB_CACHE=str(tmp_path))
    assert (done.returncode, done.stdout) == (2, "")
    (line,) = done.stderr.splitlines()
    assert line.startswith("specfw: target.path must be a local folder in mlx-lm's layout, zoo:target, zoo:drafter, or")
    assert not (tmp_path / "run/summary.json").exists()
