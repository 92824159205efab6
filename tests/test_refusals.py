"""What does not exist yet is refused with a sentence before anything runs."""

from specfw.__main__ import main

import pytest


@pytest.mark.parametrize(
    ("word", "sentence"),
    [
        ("batch_size=4", r"batch_size must be 1 for a checkpoint (target"),
        ("drafting=tree", "drafting must be one of: model, none; got 'tree'"),
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
