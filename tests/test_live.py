"""The bar of a run: what it says, that text and bar can share a terminal, and where there is none."""

import random
import re
import sys

from specfw import live, terminal
from specfw.__main__ import main
from specfw.console import Size
from specfw.counting import Tally
from specfw.experiment import run
from specfw.live import Display, line, of_run, preview
from specfw.watching import Watcher

import pytest
from kit import config
from screen import shown

IID = {"name": "iid", "probs": [0.1, 0.2, 0.3, 0.4]}
OTHER = {"name": "iid", "probs": [0.4, 0.3, 0.2, 0.1]}
TEXT = ["acceptance=stochastic", "sampler.temperature.value=0.7", "max_tokens=30", "num_samples=2"]
BAR = re.compile(r"\[#*\.+\]|tokens/s  |acc \d")


class Spy(Watcher):
    def __init__(self):
        self.rounds, self.ends, self.written = [], 0, []

    def round(self, tally, total):
        self.rounds.append((tally.emitted, total))

    def end(self):
        self.ends += 1
        self.written.append(None)


def tally(**counters):
    made = Tally(stops_at_rejection=counters.pop("stops", True))
    vars(made).update(counters)
    return made


def outputs(tmp_path, monkeypatch):
    monkeypatch.setenv("SPECFW_OUTPUTS", str(tmp_path))


# --- who is told what -------------------------------------------------------------------------------------------


def test_a_watcher_is_told_of_every_round_and_of_the_end():
    spy = Spy()
    summary = run(config(IID, OTHER, max_tokens=30, batch_size=1, num_samples=3), watcher=spy, quiet=True)
    assert len(spy.rounds) == summary.numbers["rounds"] + summary.numbers["plain_rounds"]
    assert spy.rounds[-1] == (90, 90)
    assert spy.ends == 1


def test_the_total_shrinks_where_a_sequence_ends_early():
    spy = Spy()
    ends = {"name": "iid", "probs": [0.1, 0.2, 0.3, 0.4], "eos_id": 0}
    summary = run(config(ends, OTHER, max_tokens=30, batch_size=1, num_samples=4), watcher=spy, quiet=True)
    emitted = summary.numbers["emitted"]
    assert emitted < 120
    assert all(done <= total for done, total in spy.rounds)
    assert spy.rounds[-1][1] < 120


def test_the_end_is_told_before_text_that_does_not_stream_and_after_a_failure():
    spy = Spy()
    run(config(IID, OTHER, max_tokens=5, num_samples=2), watcher=spy, write=spy.written.append, quiet=True)
    assert spy.written[0] is None
    assert len(spy.written) > 1

    class Broken(Spy):
        def round(self, tally, total):
            raise KeyboardInterrupt

    broken = Broken()
    with pytest.raises(KeyboardInterrupt):
        run(config(IID, OTHER, max_tokens=5), watcher=broken, write=broken.written.append, quiet=True)
    assert broken.ends == 1
    assert broken.written[-1].startswith("[Speculative acceptance]")


# --- what the bar says ------------------------------------------------------------------------------------------


def test_a_line_has_tokens_speed_acceptance_and_the_time_left():
    counted = tally(emitted=100, tested=80, accepted=40, rounds=30, proposed=120)
    assert of_run(counted, 400, 50.0, 100) == (
        "100/400 tokens  50.0 tokens/s  acceptance 0.500  0:06 left  [#########.............................]"
    )
    assert of_run(counted, 400, 50.0, 60).startswith("100/400 tokens  50.0 tokens/s  acceptance 0.500  0:06 left")
    assert of_run(counted, 400, 50.0, 37) == "100/400  50.0 tok/s  acc 0.500  0:06"
    assert of_run(counted, 400, 50.0, 25) == "100/400  50.0 tok/s"
    assert of_run(counted, 400, 50.0, 3) == "100/400"


def test_what_is_not_known_is_not_said():
    plain = tally(emitted=10, tested=0, accepted=0, rounds=0, proposed=0)
    assert of_run(plain, 40, float("nan"), 60).startswith("10/40 tokens  [####")
    looks_on = tally(emitted=10, tested=8, accepted=6, rounds=4, proposed=8, stops=False)
    assert "1.50 accepted a round" in of_run(looks_on, 40, 2.0, 90)
    assert "acc 1.50" in of_run(looks_on, 40, 2.0, 37)


def test_only_a_finished_run_has_a_full_bar():
    assert "." in line(0.999, ("x",), ("x",), 50)
    assert "." not in line(1.0, ("x",), ("x",), 50)
    assert live._clock(3725) == "1:02:05"


def test_a_preview_moves_no_cursor_and_fits():
    assert preview("a\tb\x1b[2K\r", 40, 4) == ["a       b?[2K?"]
    assert preview("x" * 25, 10, 2) == ["x" * 10, "x" * 5]
    assert preview("好" * 7, 10, 4) == ["好" * 5, "好" * 2]
    assert preview("好a", 10, 4, "ascii") == ["?a"]
    assert preview("abc", 10, 0) == preview("", 10, 4) == []


# --- one terminal for both --------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(8))
def test_what_stays_on_the_screen_is_the_text(seed, monkeypatch, attach):
    """Pieces of text of all kinds, a bar after each, a terminal that changes its width: nothing of the bar is left."""
    draw = random.Random(seed)
    screen = attach(draw.choice([9, 20, 60]))
    said = []

    def write(text):
        said.append(text)
        sys.stdout.write(text)

    display = Display(write, shared=True, size=lambda: Size(screen.columns, draw.choice([2, 24])))
    pieces = ["".join(draw.choices("ab 好\n", k=draw.randrange(30))) for _ in range(40)]
    for piece in pieces:
        display.say(piece)
        display.round(tally(emitted=5, tested=4, accepted=2, rounds=2, proposed=8), 40)
    display.end()
    display.say("last\n")
    text = "".join(pieces) + "last\n"
    assert "".join(said) == text
    assert BAR.search(screen.raw()) or screen.columns == 9
    assert screen.screen() == shown(text.replace("\n", "\r\n"), screen.columns)


def test_a_narrower_terminal_leaves_nothing_behind(attach):
    screen = attach(60)
    display = Display(screen.out.write, shared=True, size=lambda: Size(screen.columns, 24))
    display.say("first line\nsecond")
    display.round(tally(emitted=5, tested=4, accepted=2, rounds=2, proposed=8), 40)
    drawn = screen.screen()
    assert drawn[:2] == ["first line", "second"]
    before = len(screen.raw())
    screen.columns = 25  # the row of the bar is three rows now
    display.end()
    assert screen.raw()[before:].count("\x1b[2K") == 1 + 3


def test_a_run_on_a_terminal_ends_as_it_does_without_a_bar(attach, tmp_path, monkeypatch):
    outputs(tmp_path, monkeypatch)
    screen = attach(40)
    assert main(TEXT) == 0
    monkeypatch.setenv("CI", "true")
    plain = attach_again(screen, monkeypatch)
    assert main(TEXT) == 0
    assert BAR.search(screen.raw())
    assert not BAR.search(plain.raw())
    assert settled(screen.screen()) == settled(plain.screen())
    plain.close()


def attach_again(screen, monkeypatch):
    fresh = type(screen)(screen.columns)
    monkeypatch.setattr(sys, "stdout", fresh.out)
    monkeypatch.setattr(sys, "stderr", fresh.out)
    return fresh


def settled(rows):
    """What is the same in every run: from the text on, up to speed, memory and folder."""
    from_text = "\n".join(rows).partition("stochastic\n")[2]
    return from_text.partition("60 tokens, ")[0]


def test_stdout_is_the_same_with_a_bar_and_without(attach, tmp_path, monkeypatch):
    outputs(tmp_path, monkeypatch)

    def said(with_bar):
        monkeypatch.setenv("CI", "0" if with_bar else "1")
        with (tmp_path / str(with_bar)).open("w+", encoding="utf-8") as file:
            screen = attach(stdout=file)
            seen = len(screen.raw())
            assert main(TEXT) == 0
            assert bool(BAR.search(screen.raw()[seen:])) == with_bar
            file.seek(0)
            return file.read()

    text = said(True)
    assert text == said(False)
    assert "\x1b" not in text
    assert text.count("\n") > 3


@pytest.mark.parametrize(
    "variables", [{"NO_COLOR": "1"}, {"CI": "true"}, {"TERM": "dumb"}, {"TERM": ""}], ids=lambda one: next(iter(one))
)
def test_who_wants_plain_lines_gets_no_escape(variables, attach, tmp_path, monkeypatch):
    outputs(tmp_path, monkeypatch)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    screen = attach()
    assert main(["pair=iid", "acceptance=stochastic", "max_tokens=20"]) == 0
    assert "run_started" in screen.raw()
    assert "\x1b" not in screen.raw()
    assert not BAR.search(screen.raw())


def test_an_empty_or_a_false_variable_asks_for_nothing(attach, monkeypatch):
    monkeypatch.setenv("NO_COLOR", "")
    monkeypatch.setenv("CI", "false")
    attach()
    with live.display(sys.stdout.write) as bar:
        assert bar is not None


def test_a_worker_of_a_launcher_draws_nothing(attach, monkeypatch):
    monkeypatch.setattr(live.multiprocessing, "parent_process", object)
    attach()
    with live.display(sys.stdout.write) as bar:
        assert bar is None


def test_a_run_of_a_moment_shows_no_bar(attach, monkeypatch):
    monkeypatch.setattr(live, "EVERY_S", 10.0)
    screen = attach()
    with live.display(screen.out.write) as bar:
        for _ in range(5):
            bar.say("text\n")
            bar.round(tally(emitted=5, tested=4, accepted=2, rounds=2, proposed=8), 40)
    assert screen.screen() == ["text"] * 5 + [""]
    assert "\x1b" not in screen.raw()


# --- the tables at the end --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("columns", "head", "name"),
    [
        (80, "check measured law n z log10 e", "draft tokens follow q"),
        (60, "check measured law n z log10 e", "drafts"),
        (44, "check measured law z", "drafts"),
        (40, "check measured law", "drafts"),
    ],
)
def test_the_table_fits_the_terminal(columns, head, name, attach):
    screen = attach(columns)
    lossy = {"acceptance": {"name": "argmax_against_argmax"}, "allow_lossy": True}
    diagnostics = {"calibration": {}, "closed_forms": {}, "throughput": {}}
    terminal.show(run(config(IID, OTHER, max_tokens=40, diagnostics=diagnostics), quiet=True))
    assert head.split() in [row.split() for row in screen.screen()]
    terminal.show(run(config(IID, OTHER, max_tokens=40, diagnostics=diagnostics, **lossy), quiet=True))
    rows = screen.screen()
    assert any(row.startswith(name) for row in rows)
    assert "againsttherule'sownlaw,notthetarget's" in "".join(rows).replace(" ", "")
    assert all(len(row) <= columns for row in rows)
    for start in (r"sum_min +0\.6", r"distortion_lower_bound +\d", r"40 tokens, \d+\.\d tokens/s"):
        assert any(re.match(start, row) for row in rows), start
