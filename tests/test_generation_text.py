"""Text as it is generated: stop strings, characters in pieces, end of sequence, and a run that is interrupted."""

import json

from specfw import experiment
from specfw.experiment import run
from specfw.models._toy import ToyModel, by_position
from specfw.transcript import Transcript

import numpy as np
import pytest
from kit import chain, config, decoder, shipped, start

SIX = {"name": "cycle", "successors": [1, 2, 3, 4, 5, 0]}
NEVER = {"name": "cycle", "successors": [2, 3, 4, 5, 0, 1]}
FAIR = {"name": "iid", "probs": [0.4, 0.3, 0.2, 0.1]}
ZERO = {"temperature": {"value": 0.0}}
WORDS = "def naïve(x):\n    return “ünï” + '🙂🙃'  # 東京\n"


def only(**changes):
    (output,) = run(config(SIX, changes.pop("drafter", SIX), **changes), quiet=True).outputs
    return output


@pytest.mark.parametrize("k", [0, 1, 2, 3, 4, 5, 6, 7])
@pytest.mark.parametrize("drafter", [SIX, NEVER], ids=["accepted", "corrected"])
@pytest.mark.parametrize(
    ("stop", "expected"),
    [
        (["3"], "1 2 3"),
        (["4 5 0"], "1 2 3 4 5 0"),  # over three tokens, and over rounds
        (["0 1 2 3 4 5 0 1"], "1 2 3 4 5 0 1 2 3 4 5 0 1"),
        (["9", "5", "3 4 5"], "1 2 3 4 5"),
        ([" 2"], "1 2"),
    ],
)
def test_a_stop_string_ends_at_the_token_that_completes_it(k, drafter, stop, expected):
    found = only(stop=stop, k=k, drafter=drafter, max_tokens=40)
    assert (found.text, found.finish) == (expected, "stop")
    assert " ".join(map(str, found.tokens)) == expected


@pytest.mark.parametrize("stop", [["0 1"], ["3"]])
def test_a_stop_string_in_plain_decoding(stop):
    assert only(stop=stop, drafting={"name": "none"}).text == only(stop=stop).text


def test_a_stop_string_that_does_not_come():
    found = only(stop=["4 4", "7"], max_tokens=20)
    assert found.finish == "length"
    assert len(found.tokens) == 20


def test_a_stop_string_ends_its_own_row_of_a_batch(tmp_path):
    whole = config(FAIR, FAIR, stop=["3"], num_samples=6, max_tokens=40)
    summary = run(whole, folder=tmp_path, quiet=True)
    free = run(config(FAIR, FAIR, num_samples=6, max_tokens=40), quiet=True)
    for stopped, running in zip(summary.outputs, free.outputs, strict=True):
        assert stopped.tokens == running.tokens[: running.tokens.index(3) + 1]
        assert stopped.text == running.text[: running.text.index("3") + 1]
    rows = [json.loads(line) for line in (tmp_path / "tokens.jsonl").read_text().splitlines()]
    for sample, output in enumerate(summary.outputs):
        assert tuple(row["id"] for row in rows if row["sample"] == sample) == output.tokens
    assert summary.numbers["emitted"] == len(rows)


def test_what_a_stop_string_cuts_off_is_still_counted():
    """Section 6: text and tokens are cut, that round's counters and law are not."""
    summary = run(config(SIX, SIX, stop=["2"], k=4), quiet=True)
    assert summary.numbers["emitted"] == 2
    assert summary.numbers["accepted"] == summary.numbers["proposed"] == 4


def forced(ids):
    """A model that writes `ids` after a prompt of two, with the shipped pair's words."""
    rows = np.eye(shipped("target").vocab_size)[[ids[-2], ids[-1], *ids]]
    model = ToyModel("forced", rows, by_position(len(rows)))
    model.tokenizer = shipped("target").tokenizer
    return model


@pytest.mark.parametrize("k", [0, 1, 3])
def test_characters_come_whole(k):
    """Tokens may be bytes; pieces never hold half a character, and together they are the text."""
    tokenizer = shipped("target").tokenizer
    ids = tokenizer.encode(WORDS)
    assert any("\ufffd" in tokenizer.decode([token]) for token in ids)
    model, pieces = forced(ids), []
    transcript = Transcript(tokenizer, (0, 0), frozenset(), [], pieces.append)
    parts = decoder(model, model, k=k, sampler=chain(), max_tokens=len(ids))
    generation = start(parts, listen=lambda _, tokens: transcript.hear(tokens))
    for _ in generation:
        transcript.flush()
    assert generation.tokens[0, 2 : generation.lengths[0]].tolist() == ids
    transcript.finish()
    assert "".join(pieces) == transcript.text == WORDS
    assert not any("\ufffd" in piece for piece in pieces)
    assert len(pieces) > 10


def test_half_a_character_at_the_end_is_held_back_until_the_end():
    tokenizer, pieces = shipped("target").tokenizer, []
    ids = tokenizer.encode("a🙂")
    assert len(ids) > 2
    transcript = Transcript(tokenizer, (), frozenset(), [], pieces.append)
    transcript.hear(np.array(ids[:-1]))
    transcript.flush()
    assert "\ufffd" not in transcript.text
    before = transcript.text
    transcript.finish()
    assert transcript.text[len(before) :].strip("\ufffd") == ""
    assert transcript.text != before


@pytest.mark.parametrize("stop", ["🙂", "ïve(", "return “", "+ '🙂🙃"])
def test_a_stop_string_of_pieces(stop):
    tokenizer = shipped("target").tokenizer
    ids = tokenizer.encode(WORDS)
    transcript = Transcript(tokenizer, (), frozenset(), [stop], lambda _: None)
    kept, ended = 0, False
    for first in range(0, len(ids), 3):
        heard, ended = transcript.hear(np.array(ids[first : first + 3]))
        kept += heard
        if ended:
            break
    assert ended
    assert transcript.stopped == stop
    assert stop in tokenizer.decode(ids[:kept])
    assert stop not in tokenizer.decode(ids[: kept - 1])


@pytest.mark.parametrize("ignored", [False, True])
def test_the_end_of_sequence_has_no_text_unless_it_is_ignored(ignored):
    (found,) = run(config(SIX | {"eos_id": 4}, NEVER, ignore_eos=ignored, max_tokens=10), quiet=True).outputs
    expected = ("1 2 3 4 5 0 1 2 3 4", "length") if ignored else ("1 2 3", "stop")
    assert (found.text, found.finish) == expected
    assert found.tokens[3] == 4


class Interrupting:
    """A writer that is interrupted after so many characters, once."""

    def __init__(self, after):
        self.text, self._after = "", after

    def __call__(self, piece):
        self.text += piece
        if self._after is not None and len(self.text) >= self._after:
            self._after = None
            raise KeyboardInterrupt


def record(folder):
    summary = json.loads((folder / "summary.json").read_text())
    rows, events = (
        [json.loads(line) for line in (folder / name).read_text().splitlines()]
        for name in ("tokens.jsonl", "events.jsonl")
    )
    assert sorted(path.name for path in folder.iterdir()) == [
        "config.yaml", "events.jsonl", "summary.json", "tokens.jsonl",
    ]  # fmt: skip
    return summary, rows, events


@pytest.mark.parametrize("after", [25, 110, 140])
def test_a_run_interrupted_while_it_writes(after, tmp_path):
    """The record is whole, says interrupted, and holds every finished round."""
    writer = Interrupting(after)
    prompts = {"name": "ids", "ids": [[0], [1, 2], [3]]}
    whole = config(SIX, SIX, prompts=prompts, max_tokens=50, k=3)
    with pytest.raises(KeyboardInterrupt):
        run(whole | {"batch_size": 1}, folder=tmp_path, write=writer, quiet=True)
    summary, rows, events = record(tmp_path)
    assert summary["interrupted"] is True
    assert events[-1]["event"] == "run_finished"
    assert events[-1]["interrupted"] is True
    finished = [one["finish"] for one in summary["finish"]]
    assert finished == ["length"] * (after // 100) + ["interrupted"]
    assert len(rows) == summary["emitted"] > 0
    lines = writer.text.splitlines()
    assert lines[-1] == summary["line"]
    written = " ".join(lines[:-1]).split()
    assert [str(row["id"]) for row in rows] == written


def test_a_batch_interrupted_between_rounds(monkeypatch, tmp_path):
    """Its text is written in order, and is what was recorded."""
    honest, rounds = experiment._Run._take_in, iter(range(100))

    def interrupted(self, outcome, texts):
        honest(self, outcome, texts)
        if next(rounds) == 2:
            raise KeyboardInterrupt

    monkeypatch.setattr(experiment._Run, "_take_in", interrupted)
    writer = Interrupting(None)
    with pytest.raises(KeyboardInterrupt):
        run(config(FAIR, FAIR, num_samples=3, max_tokens=60), folder=tmp_path, write=writer, quiet=True)
    summary, rows, _ = record(tmp_path)
    assert [one["finish"] for one in summary["finish"]] == ["interrupted"] * 3
    assert summary["rounds"] == 9
    *texts, line = writer.text.splitlines()
    assert line == summary["line"]
    by_sample = [[str(row["id"]) for row in rows if row["sample"] == sample] for sample in range(3)]
    assert [text.split() for text in texts] == by_sample
    assert summary["emitted"] == len(rows)
