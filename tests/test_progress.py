"""A long prompt is taken in in chunks, and how far it is can be seen: a bar on a terminal, else a line now and then."""

import io
import json
import re
import sys

from specfw import live, recording
from specfw.experiment import run

import pytest
from kit import config, cycle, decoder, iid, start

LONG = 50_000
CHUNK = 512
SIX = [1, 2, 3, 4, 5, 0]


def chunks(tokens):
    return -(-tokens // CHUNK)


def model(peak=0.6):
    return {"name": "cycle", "successors": SIX, "peak": peak}


def long_run(**arguments):
    """A run on a prompt of 50,000 tokens."""
    prompt = {"name": "ids", "ids": [[token % 6 for token in range(LONG)]]}
    return run(config(model(), model(0.5), prompts=prompt, max_tokens=6), **{"quiet": True, **arguments})


@pytest.fixture
def clock(monkeypatch):
    """A clock on which every look takes a second."""

    class Clock:
        now = 0.0

        def monotonic(self):
            self.now += 1
            return self.now

    monkeypatch.setattr(recording, "time", Clock())


def test_every_chunk_is_one_evaluation_and_is_told():
    told = []
    summary = long_run(progress=lambda *how_far: told.append(how_far))
    of = {"target": LONG - 1, "drafter": LONG - 2}
    assert told == [
        (role, min((number + 1) * CHUNK, total), total) for role, total in of.items() for number in range(chunks(total))
    ]
    rounds = summary.numbers["rounds"] + summary.numbers["plain_rounds"]
    assert summary.numbers["host_syncs"] == len(told) + rounds
    assert summary.numbers["prefill_s"] > 0
    assert summary.outputs[0].tokens[0] in range(6)


def test_a_prompt_of_one_token_tells_nothing():
    told = []
    generation = start(decoder(iid([0.5, 0.5]), cycle(1, 0)), prompts=[(0,)], progress=lambda *_: told.append(1))
    next(iter(generation))
    assert told == []


def test_the_log_says_every_ten_seconds_how_far_it_is(clock, tmp_path, capsys):
    long_run(folder=tmp_path, quiet=False)
    lines = [json.loads(line) for line in (tmp_path / "events.jsonl").read_text().splitlines()]
    said = [line for line in lines if line["event"] == "prefill"]
    taken = [(line["role"], line["taken"]) for line in said]
    assert [role for role, _ in taken] == sorted((role for role, _ in taken), reverse=True)
    assert taken[0] == ("target", 10 * CHUNK)
    assert taken[1] == ("target", 20 * CHUNK)
    assert {line["of"] for line in said} == {LONG - 1, LONG - 2}
    assert len(re.findall(r"prefill +of=\d+ role=", capsys.readouterr().err)) == len(said) > 15


def test_a_short_prompt_is_not_talked_about(tmp_path):
    run(config(model(), model()), folder=tmp_path, quiet=True)
    assert '"prefill"' not in (tmp_path / "events.jsonl").read_text()


def test_a_terminal_shows_a_bar_and_takes_it_away(attach):
    terminal = attach()
    with live.display(terminal.out.write) as shown:
        long_run(progress=shown.prompt)
    assert "prompt, target" in terminal.raw()
    assert "prompt, drafter" in terminal.raw()
    assert f"/{LONG - 1}" in terminal.raw()
    assert terminal.screen() == [""], "the bar is still there"


def test_a_bar_does_not_appear_for_one_chunk(attach):
    terminal = attach()
    with live.display(terminal.out.write) as shown:
        shown.prompt("target", 100, 100)
        shown.prompt("drafter", 99, 99)
    assert terminal.raw() == ""


def test_a_bar_goes_when_the_run_fails(attach):
    terminal = attach()

    def interrupted():
        with live.display(terminal.out.write) as shown:
            shown.prompt("target", 10, 100)
            assert "prompt, target  10/100" in terminal.raw()
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert terminal.screen() == [""]


def test_elsewhere_there_is_no_bar(monkeypatch):
    monkeypatch.setattr(sys, "stderr", io.StringIO())
    with live.display(sys.stdout.write) as shown:
        assert shown is None
