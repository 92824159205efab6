"""Text of characters in pieces through whole runs: over tokens, rounds, samples, batches and stop strings."""

import functools
import json
import re
from dataclasses import dataclass
from typing import Any

from specfw import registry
from specfw.experiment import run
from specfw.models._toy import ToyModel, by_position
from specfw.models.base import ModelSpec

import numpy as np
import pytest
from kit import config, shipped

HALF = "\N{REPLACEMENT CHARACTER}"
PROMPT = [[5, 6]]


def words():
    return shipped("drafter").tokenizer


@functools.cache
def size():
    return len(words().vocabulary())


@functools.cache
def twins():
    """Two characters of at least three tokens that differ in the last one alone."""
    faces = [words().encode(chr(code)) for code in range(0x1F600, 0x1F640)]
    one, other = next(
        (one, other)
        for place, one in enumerate(faces)
        for other in faces[place + 1 :]
        if len(one) == len(other) >= 3 and one[:-1] == other[:-1]
    )
    return one, other


@functools.cache
def script():
    """What is said at each position: a token, or one of two; five faces in a text of other characters in pieces."""
    said = []
    for plain in ("x = “", "é ", "", "東京", " # ", ""):
        said += [(token,) for token in words().encode(plain)]
        if plain != " # ":
            one, other = twins()
            said += [(token,) for token in one[:-1]] + [(one[-1], other[-1])]
    return [*said, *((token,) for token in words().encode("”\n"))]


def form():
    """The texts that can come of it."""
    one, other = (words().decode(twin) for twin in twins())
    face = f"({one}|{other})"
    return re.compile(f"x = “{face}é {face}{face}東京{face} # {face}”\n")


@dataclass(frozen=True, kw_only=True)
class Spoken(ModelSpec):
    """Says the script after a prompt of two, the first twin with probability `first`."""

    first: float

    def load(self, role):
        lines = [(0,), (0,), *script()]
        rows = np.zeros((len(lines), size()))
        for row, tokens in zip(rows, lines, strict=True):
            row[list(tokens)] = (self.first, 1 - self.first)[: len(tokens)] if len(tokens) > 1 else 1
        model = ToyModel(f"{role} (spoken)", rows, by_position(len(rows)))
        model.tokenizer = words()
        return model


@pytest.fixture(autouse=True)
def registered(monkeypatch):
    monkeypatch.setitem(registry._components["model"], "spoken", Spoken)


def spoken(pieces=None, folder=None, **changes) -> Any:
    both = {"name": "spoken", "first": 0.5}, {"name": "spoken", "first": 0.8}
    parts = {"prompts": {"name": "ids", "ids": PROMPT}, "max_tokens": len(script()), **changes}
    write = (lambda _: None) if pieces is None else pieces.append
    return run(config(*both, **parts), write=write, folder=folder, quiet=True)


def test_the_script_tries_what_it_should():
    assert sum(HALF in words().decode(tokens[:1]) for tokens in script()) > 15
    assert sum(len(tokens) == 2 for tokens in script()) == 5


@pytest.mark.parametrize("k", [0, 1, 3, 7])
@pytest.mark.parametrize("batch_size", [1, None])
def test_every_sample_is_said_in_whole_characters(k, batch_size, tmp_path):
    pieces = []
    summary = spoken(pieces, tmp_path, k=k, num_samples=4, batch_size=batch_size)
    texts = [output.text for output in summary.outputs]
    assert all(form().fullmatch(text) for text in texts)
    assert len(set(texts)) > 1, "the samples are alike: the test does not try what it should"
    assert not any(HALF in piece for piece in pieces)
    assert "".join(pieces) == "".join(f"{text}\n" for text in texts) + f"{summary.line}\n"
    if batch_size == 1:
        assert len(pieces) > 4 * 5 - 4 * (k > 3), "it was not said as it came"
    rows = [json.loads(line) for line in (tmp_path / "tokens.jsonl").read_text().splitlines()]
    for sample, text in enumerate(texts):
        assert words().decode([row["id"] for row in rows if row["sample"] == sample]) == text


@pytest.mark.parametrize("k", [0, 1, 3, 7])
@pytest.mark.parametrize("batch_size", [1, None])
@pytest.mark.parametrize("stop", ["face", "é face", "face#", "京"])
def test_a_stop_string_of_pieces_ends_each_sample_where_it_is_complete(k, batch_size, stop):
    pieces = []
    changes = {"k": k, "num_samples": 4, "batch_size": batch_size}
    free = spoken(**changes).outputs
    faces = form().fullmatch(free[0].text).groups()
    stop = {"face": faces[0], "é face": f"é {faces[1]}", "face#": f"{faces[3]} #", "京": "東京"}[stop]
    assert stop in free[0].text
    stopped = spoken(pieces, stop=[stop], **changes)
    for output, whole in zip(stopped.outputs, free, strict=True):
        before, found, _ = whole.text.partition(stop)
        assert output.finish == ("stop" if found else "length")
        assert output.text.startswith(before + found)
        assert output.tokens == whole.tokens[: len(output.tokens)]
        assert words().decode(output.tokens) == output.text
        if found:
            assert stop not in words().decode(output.tokens[:-1])
    assert not any(HALF in piece for piece in pieces)
    assert "".join(pieces).startswith("\n".join(output.text for output in stopped.outputs) + "\n")


@pytest.mark.parametrize("k", [0, 2, 5])
def test_what_a_stop_string_leaves_out_of_a_round_is_not_said_later(k):
    """A face that the stop string ends on is often followed by accepted tokens of the same round."""
    first = words().decode(twins()[0])
    (found,) = spoken(stop=["”"], k=k).outputs
    assert found.text.endswith("”")
    for output in spoken(stop=[first], k=k, num_samples=8).outputs:
        assert output.text.count(first) == (output.finish == "stop")


@pytest.mark.parametrize("length", range(1, 26))
def test_a_text_that_ends_within_a_character(length):
    """What is held back is said at the very end, and nothing is lost or said twice."""
    pieces = []
    (found,) = spoken(pieces, max_tokens=length, k=3).outputs
    assert len(found.tokens) == length
    assert found.text == words().decode(found.tokens)
    *said, newline, _ = pieces
    assert newline == "\n"
    assert "".join(said) == found.text
    assert not any(HALF in piece for piece in said[:-1])


def test_a_prompt_that_ends_within_a_character():
    """The first token completes it, so its text is the whole character."""
    one, _ = twins()
    lines = [(0,)] * (len(one) - 1) + [(one[-1],)] + [(token,) for token in words().encode(" naïve")]

    class Completing(Spoken):
        def load(self, role):
            rows = np.zeros((len(lines), size()))
            for row, (token,) in zip(rows, lines, strict=True):
                row[token] = 1
            model = ToyModel(f"{role} (completing)", rows, by_position(len(rows)))
            model.tokenizer = words()
            return model

    registry._components["model"]["spoken"] = Completing
    (found,) = spoken(prompts={"name": "ids", "ids": [one[:-1]]}, max_tokens=len(lines) - len(one) + 1).outputs
    assert found.text == words().decode(one) + " naïve"


@pytest.mark.parametrize("k", [0, 3])
def test_a_trained_pair_says_what_its_tokens_say(k):
    """At a high temperature it writes bytes that are no text; they are said as decoding everything would."""
    both = [{"name": "checkpoint", "path": f"zoo:{role}"} for role in ("target", "drafter")]
    changes = {"sampler": {"temperature": {"value": 3.0}}, "ignore_eos": True, "max_tokens": 40, "num_samples": 2}
    pieces, prompt = [], "# 東京 naïve\n"
    texts = {"name": "texts", "texts": [prompt, "x = '"]}
    summary = run(config(*both, prompts=texts, k=k, **changes), write=pieces.append, quiet=True)
    assert len(summary.outputs) == 4
    for output in summary.outputs:
        before = texts["texts"][output.prompt]
        assert before + output.text == words().decode([*words().encode(before), *output.tokens])
    assert "".join(pieces).startswith("\n".join(output.text for output in summary.outputs))
