"""A long prompt is taken in in chunks, and how far it is can be seen: a bar on a terminal, else a line now and then."""

import io
import json
import re
from types import SimpleNamespace

from specfw import recording, terminal
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


class Terminal(io.StringIO):
    def isatty(self):
        return True


@pytest.fixture
def screen(monkeypatch):
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.delenv("NO_COLOR", raising=False)
    shown = Terminal()
    monkeypatch.setattr(terminal, "sys", SimpleNamespace(stderr=shown))
    return shown


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


def test_a_terminal_shows_a_bar_and_takes_it_away(screen):
    with terminal.prompt_bar() as progress:
        long_run(progress=progress)
    shown = screen.getvalue()
    assert "prompt, target" in shown
    assert "prompt, drafter" in shown
    assert f"/{LONG - 1}" in shown
    assert shown.rstrip("\r").endswith("\x1b[2K\x1b[?25h"), "the bar is still there"
    assert shown.count("\x1b[?25l") == shown.count("\x1b[?25h"), "the cursor is still hidden"


def test_a_bar_has_no_colour_where_none_is_wanted(screen, monkeypatch):
    def colours():
        with terminal.prompt_bar() as progress:
            progress("target", 10, 100)
        return re.findall(r"\x1b\[[0-9;]*38;", screen.getvalue())

    assert colours()
    screen.truncate(0)
    monkeypatch.setenv("NO_COLOR", "1")
    assert not colours()


def test_a_bar_does_not_appear_for_one_chunk(screen):
    with terminal.prompt_bar() as progress:
        progress("target", 100, 100)
        progress("drafter", 99, 99)
    assert screen.getvalue() == ""


def test_a_bar_goes_when_the_run_fails(screen):
    def interrupted():
        with terminal.prompt_bar() as progress:
            progress("target", 10, 100)
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert screen.getvalue().count("\x1b[?25l") == screen.getvalue().count("\x1b[?25h") == 1


def test_elsewhere_there_is_no_bar(monkeypatch):
    monkeypatch.setattr(terminal, "sys", SimpleNamespace(stderr=io.StringIO()))
    with terminal.prompt_bar() as progress:
        assert progress is None
