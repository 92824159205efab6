"""What does not exist yet, and what is foreign or broken, is refused with a sentence before anything runs."""

import shutil
from pathlib import Path

from specfw.__main__ import main

import pytest
from checkpoints import LLAMA, edit, retokenise, write


@pytest.mark.parametrize(
    ("word", "sentence"),
    [
        ("batch_size=4", r"batch_size must be 1 for a checkpoint (target"),
        ("drafting=tree", "drafting must be one of: intersection, model, none; got 'tree'"),
        ("drafting.branches=3", "branches is not a key"),
        ("acceptance=typical", "acceptance must be one of: "),
        ("target.prompt_cache=cache.safetensors", "prompt_cache must be null"),
        ("max_tokens=-1", "max_tokens must be in [0, inf), got -1"),
    ],
)
def test_one_sentence_and_exit_status_two(word, sentence, capsys, monkeypatch, tmp_path):
    monkeypatch.setenv("SPECFW_OUTPUTS", str(tmp_path))
    assert main([word]) == 2
    said = capsys.readouterr()
    assert sentence in said.err
    assert said.err.strip().splitlines()[-1].startswith("specfw: ")
    assert "[Speculative acceptance]" not in said.out


# --- checkpoints and prompts ------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def tiny(tmp_path_factory):
    """A tiny llama with the shipped tokenizer, which the cases below copy and break."""
    return Path(write(tmp_path_factory.mktemp("checkpoints") / "tiny", LLAMA))


@pytest.fixture(scope="module")
def outputs(tiny, tmp_path_factory):
    """Where an earlier run has left its record."""
    folder = tmp_path_factory.mktemp("outputs")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SPECFW_OUTPUTS", str(folder))
        assert main([f"target.path={tiny}", f"drafter.path={tiny}", "max_tokens=3"]) == 0
    assert {"summary.json", "tokens.jsonl"} < {path.name for path in contents(folder)}
    return folder


def contents(folder):
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def swapped(content):
    words = content["model"]["vocab"]
    words["!"], words['"'] = words['"'], words["!"]


def another(content):
    """A tokenizer fitted on other text gives most ids to other strings."""
    words = content["model"]["vocab"]
    top = max(words.values())
    content["model"]["vocab"] = {word: id_ and top + 1 - id_ for word, id_ in words.items()}


def refused_drafter(change):
    def prepare(tiny, folder):
        path = shutil.copytree(tiny, folder / "drafter")
        retokenise(str(path), change)
        return [f"target.path={tiny}", f"drafter.path={path}"]

    return prepare


def refused_target(break_it):
    def prepare(tiny, folder):
        path = shutil.copytree(tiny, folder / "target")
        break_it(path)
        return [f"target.path={path}", f"drafter.path={tiny}"]

    return prepare


def refused_prompts(source, content):
    def prepare(tiny, folder):
        (folder / "prompts").write_bytes(content)
        return [f"target.path={tiny}", f"drafter.path={tiny}", f"prompts={source}", f"prompts.path={folder}/prompts"]

    return prepare


def cut(path):
    weights = path / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-1])


REFUSED = {
    "a drafter with swapped ids": (
        refused_drafter(swapped),
        """drafter must have the target's tokens, but of 2048 ids that both have 2 differ: id 1 is '!' and '"', id 2""",
    ),
    "a drafter with another tokenizer": (
        refused_drafter(another),
        "drafter must have the target's tokens, but of 2048 ids that both have 2046 differ: id 1 is '!' and ",
    ),
    "no chat template": (
        refused_prompts("json_lines", b'{"messages": [{"role": "user", "content": "Hello"}]}\n'),
        "prompts.path line 1 must be text or token ids, as target (",
    ),
    "a wrong role": (
        refused_prompts("json_lines", b'{"prompt": "x"}\n{"messages": [{"role": "bot", "content": "Hello"}]}\n'),
        "prompts.path line 2 messages[0].role must be one of: system, developer, user, assistant, tool, got 'bot'",
    ),
    "a file that is not UTF-8": (refused_prompts("file", b"na\xefve"), "prompts.path must be a UTF-8 file, got "),
    "lines that are not UTF-8": (
        refused_prompts("json_lines", b'{"prompt": "na\xefve"}\n'),
        "prompts.path must be a UTF-8 file, got ",
    ),
    "truncated safetensors": (
        refused_target(cut),
        "target.path must be a checkpoint in mlx-lm's layout, but ",
    ),
    "no model_type": (
        refused_target(lambda path: edit(str(path), "config.json", model_type=None)),
        "target.path must be a checkpoint in mlx-lm's layout, but ",
    ),
}


@pytest.mark.parametrize("fault", REFUSED)
def test_what_is_foreign_or_broken_is_one_sentence_and_an_earlier_run_stays_whole(
    fault, tiny, outputs, tmp_path, capsys, monkeypatch
):
    prepare, sentence = REFUSED[fault]
    monkeypatch.setenv("SPECFW_OUTPUTS", str(outputs))
    before = contents(outputs)
    assert main([*prepare(tiny, tmp_path), "max_tokens=3"]) == 2
    out, err = capsys.readouterr()
    assert (out, err.count("\n")) == ("", 1)
    assert err.startswith(f"specfw: {sentence}")
    assert before.items() <= contents(outputs).items()
