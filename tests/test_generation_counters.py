"""What a run counts: the cut at the end of sequence, tested against proposed, evaluations, and the line."""

import json
import math
import re
from collections import Counter

from specfw.acceptance._plain import Plain
from specfw.counting import Decided, Tally, cut
from specfw.experiment import run
from specfw.recording import summary_line
from specfw.registry import component, names

import numpy as np
import pytest
from kit import Scripted, config, decoder, iid, start

E, F = 7, 8
IID = {"name": "iid", "probs": [0.1, 0.2, 0.3, 0.4]}
REVERSED = {"name": "iid", "probs": [0.4, 0.3, 0.2, 0.1]}
GREEDY = {"temperature": {"value": 0.0}}
NUMBER = r"(\d+\.\d{4}|nan)"
LINE = re.compile(
    r"\[Speculative acceptance\] rule=([a-z0-9-]+) rounds=(\d+) proposed=(\d+) positions_tested=(\d+) "
    rf"accepted=(\d+) per_position_acceptance={NUMBER} acceptance_rate={NUMBER} mean_accepted_len={NUMBER} "
    r"\(([^()]+(?:\([^()]+\))?(?:; [a-z_]+)?)\)"
)


@pytest.mark.parametrize(
    ("own", "drafts", "accepted", "token", "expected"),
    [
        (4, [1, 2, 3, 4], 4, 5, (4, 4, 5)),
        (4, [1, 2, 3, 4], 2, 5, (4, 2, 3)),
        (4, [1, E, 2, 3], 0, 5, (2, 0, 1)),  # not reached, and cut all the same
        (4, [1, E, 2, 3], 1, 5, (2, 1, 2)),
        (4, [1, E, 2, 3], 2, 5, (2, 2, 2)),
        (4, [1, E, 2, 3], 4, 5, (2, 2, 2)),
        (4, [E, 1, 2, 3], 4, 5, (1, 1, 1)),
        (4, [1, 2, 3, E], 3, 5, (4, 3, 4)),
        (4, [1, 2, 3, E], 4, 5, (4, 4, 4)),
        (4, [1, 2, 3, 4], 2, E, (4, 2, 3)),  # as a correction
        (4, [1, 2, 3, 4], 4, E, (4, 4, 5)),  # as a bonus
        (4, [1, F, E, 4], 4, 5, (2, 2, 2)),
        (2, [1, 2, E, 3], 2, 5, (2, 2, 3)),  # beyond the row's own length
        (0, [E, E, E, E], 0, 5, (0, 0, 1)),
        (0, [], 0, E, (0, 0, 1)),
    ],
)
def test_the_cut(own, drafts, accepted, token, expected):
    emitted = [*drafts[:accepted], token] + [token] * (len(drafts) - accepted)
    one = Decided(*(np.array([column]) for column in (own, accepted, emitted, drafts, False)))
    assert tuple(int(column[0]) for column in cut(one, frozenset({E, F}))) == expected


def test_the_cut_does_not_look_at_what_was_decided():
    """Counting end-of-sequence drafts only where they were reached would favour accepted ones."""
    target, drafter = iid([0.2, 0.2, 0.3, 0.3]), iid([0.3, 0.3, 0.2, 0.2])
    parts = decoder(target, drafter, eos_ids=frozenset({0}), max_tokens=50)
    seen = set()
    for outcome in start(parts, samples=64):
        for row in np.nonzero(outcome.active)[0]:
            drafts = outcome.drafts[row, : outcome.lengths[row]].tolist()
            through = drafts.index(0) + 1 if 0 in drafts else len(drafts)
            assert outcome.proposed[row] == through
            seen.add((through < len(drafts), bool(outcome.accepted[row] < through)))
    assert len(seen) == 4


def tallied(parts, **changes):
    tally = Tally(parts.rule.stops_at_rejection)
    outcomes = list(start(parts, **changes))
    for outcome in outcomes:
        tally.add(outcome)
    return tally.numbers(), outcomes


def test_a_known_rejection_point():
    """B80: two drafts of four stand in every round, so two of three tested and two of four proposed."""
    target = {"name": "position", "rows": [[1, 0, 0], [0, 1, 0], [1, 0, 0]]}
    drafter = {"name": "position", "rows": [[1, 0, 0], [0, 1, 0], [0, 0, 1]]}
    prompts = {"name": "ids", "ids": [[0, 0, 0]]}
    summary = run(config(target, drafter, prompts=prompts, max_tokens=300, sampler=GREEDY), quiet=True)
    numbers = summary.numbers
    full = numbers["rounds"] - 1  # fewer drafts in the last
    assert numbers["accepted"] == 2 * full + 2
    assert numbers["positions_tested"] == 3 * full + 2
    assert numbers["proposed"] == 4 * full + 2
    assert numbers["per_position_acceptance"] == pytest.approx(2 / 3, abs=0.01)
    assert numbers["acceptance_rate"] == pytest.approx(1 / 2, abs=0.01)
    places = numbers["diagnostics"]["acceptance"]["by_position"]
    assert places["accepted"] == [full + 1, full + 1, 0, 0]
    assert places["tested"] == [full + 1, full + 1, full, 0]
    assert places["proposed"] == [full + 1, full + 1, full, full]
    law = numbers["diagnostics"]["acceptance"]["accepted_length_law"]
    assert law == {"expected": [0, 0, full + 1, 0, 0], "variance": [0] * 5}


@pytest.mark.parametrize(("name", "law"), [("stochastic", (3, 2, 4)), ("block", (3, 1, 5))])
def test_accepted_lengths_stand_beside_their_law(name, law):
    """Toy A of two draft tokens: the law of n is known in ninths."""
    target, drafter = ({"name": "iid", "probs": probs} for probs in ([1 / 3, 2 / 3], [2 / 3, 1 / 3]))
    whole = config(target, drafter, acceptance={"name": name}, k=2, max_tokens=200, num_samples=16)
    numbers = run(whole | {"diagnostics": {"acceptance": {}, "scoreboard": {}}}, quiet=True).numbers
    found = numbers["diagnostics"]["acceptance"]
    expected, variance = (np.array(found["accepted_length_law"][entry]) for entry in ("expected", "variance"))
    rounds = numbers["rounds"]
    assert expected.sum() == pytest.approx(rounds)
    assert expected / rounds == pytest.approx(np.array(law) / 9, abs=0.03)
    assert np.abs(found["accepted_length_counts"] - expected).max() < 5 * np.sqrt(variance.max())
    own = numbers["diagnostics"]["scoreboard"][name]["mean_accepted_len"]
    assert expected @ np.arange(3) / rounds == pytest.approx(own)


def test_a_correction_is_not_counted_as_accepted():
    """B82."""
    numbers, outcomes = tallied(decoder(iid([0.5, 0.5, 0, 0]), iid([0, 0, 0.5, 0.5]), max_tokens=40))
    assert numbers["accepted"] == 0
    assert numbers["per_position_acceptance"] == numbers["acceptance_rate"] == numbers["mean_accepted_len"] == 0
    assert numbers["positions_tested"] == numbers["rounds"] == 39
    assert numbers["plain_rounds"] == 1
    assert numbers["mean_tokens_per_round"] == 1
    assert sum(int(o.emitted.sum()) for o in outcomes) == numbers["emitted"] == 40


def test_rates_over_nothing_are_nan():
    for parts in (decoder(iid([0.5, 0.5]), None), decoder(iid([0.5, 0.5]), iid([0.5, 0.5]), k=0)):
        numbers, outcomes = tallied(parts, samples=3)
        assert numbers["rounds"] == numbers["proposed"] == numbers["positions_tested"] == 0
        assert numbers["plain_rounds"] == 3 * len(outcomes) == 192
        for name in ("per_position_acceptance", "acceptance_rate", "mean_accepted_len", "mean_tokens_per_round"):
            assert math.isnan(numbers[name])


def test_plain_rounds_stay_out_of_the_means():
    same = iid([0.5, 0.5])
    numbers, _ = tallied(decoder(same, same, controller=Scripted(script=[0, 3]), max_tokens=50))
    assert numbers["rounds"] == numbers["plain_rounds"] == 10
    assert numbers["mean_accepted_len"] == 3
    assert numbers["mean_tokens_per_round"] == 4
    assert numbers["emitted"] == 50


def test_the_line_of_the_design():
    numbers = {
        "rounds": 153, "proposed": 612, "positions_tested": 195, "accepted": 46,
        "per_position_acceptance": 46 / 195, "acceptance_rate": 46 / 612, "mean_accepted_len": 46 / 153,
    }  # fmt: skip
    assert summary_line(component("acceptance", "stochastic")(), "configuration", numbers) == (
        "[Speculative acceptance] rule=stochastic rounds=153 proposed=612 positions_tested=195 accepted=46 "
        "per_position_acceptance=0.2359 acceptance_rate=0.0752 mean_accepted_len=0.3007 "
        "(stochastic (modified rejection sampling))"
    )


@pytest.mark.parametrize("name", [*names("acceptance"), "plain"])
@pytest.mark.parametrize("decided_by", ["configuration", "auto", "environment", "greedy_target"])
def test_the_line_of_every_rule(name, decided_by):
    rule = Plain() if name == "plain" else component("acceptance", name)()
    numbers, _ = tallied(decoder(iid([0.3, 0.7]), None if name == "plain" else iid([0.6, 0.4]), rule))
    line = LINE.fullmatch(summary_line(rule, decided_by, numbers))
    assert line is not None
    quiet = decided_by in ("configuration", "auto")
    assert line[1] == rule.id == name.replace("_", "-")
    assert line[9] == rule.label + ("" if quiet else f"; {decided_by}")
    assert [int(line[place]) for place in range(2, 6)] == [
        numbers[key] for key in ("rounds", "proposed", "positions_tested", "accepted")
    ]
    assert (line[6] == line[7] == line[8] == "nan") is (name == "plain")


@pytest.mark.parametrize("split", [False, True])
@pytest.mark.parametrize("drafting", ["model", "none"])
def test_evaluations_are_one_a_round_and_one_a_chunk(drafting, split):
    """The target takes in 9 tokens of the prompt and the drafter 8, in chunks of 4; timing costs two more a round."""
    diagnostics = {"throughput": {"split": split}}
    prompts = {"name": "ids", "ids": [[0] * 10]}
    changes = {"drafting": {"name": drafting}, "prompts": prompts, "prefill_chunk": 4, "diagnostics": diagnostics}
    numbers = run(config(IID, REVERSED, **changes), quiet=True).numbers
    rounds = numbers["rounds"] + numbers["plain_rounds"]
    chunks = 3 + (2 if drafting == "model" else 0)
    assert numbers["host_syncs"] == chunks + rounds * (3 if split else 1)
    phases = numbers["diagnostics"]["throughput"]["phases"]
    assert (phases is not None) is split


def test_evaluations_really_happen_where_they_are_counted(monkeypatch):
    from specfw import generation
    from specfw.models import base

    calls = Counter()
    for module in (generation, base):
        honest = module.mx.eval
        spy = type("Mx", (), {"__getattr__": lambda _, name, real=module.mx: getattr(real, name)})()
        spy.eval = lambda *trees, real=honest, name=module.__name__: (calls.update([name]), real(*trees))
        monkeypatch.setattr(module, "mx", spy)
    running = start(decoder(iid([0.3, 0.7]), iid([0.6, 0.4]), max_tokens=20, prefill_chunk=4), prompts=[[0] * 10])
    rounds = len(list(running))
    assert calls == {"specfw.generation": rounds, "specfw.models.base": 5}
    assert running.host_syncs == rounds + 5


def events(folder):
    return [json.loads(line) for line in (folder / "events.jsonl").read_text().splitlines()]


def test_first_outcomes_are_logged_once_a_run(tmp_path):
    """Over four prompts and two samples; the last round of a sequence drafts nothing."""
    prompts = {"name": "ids", "ids": [[0], [0, 1], [1, 1], [2, 3, 1]]}
    run(config(IID, REVERSED, prompts=prompts, num_samples=2, max_tokens=40), folder=tmp_path, quiet=True)
    first = [event["outcome"] for event in events(tmp_path) if event["event"] == "first_outcome"]
    assert sorted(first) == ["accepted", "bonus", "plain", "residual_resample"]


@pytest.mark.parametrize(
    ("successors", "k", "expected"),
    [
        ([1, 2, 3, 4, 5, 0], 3, ["accepted"] * 3 + ["bonus"]),
        ([1, 2, 4, 4, 5, 0], 3, ["accepted"] * 2 + ["recovered"]),
        ([2, 2, 2, 2, 2, 2], 3, ["recovered"]),
        ([1, 2, 3, 4, 5, 0], 0, ["plain"]),
    ],
)
def test_origins(successors, k, expected, tmp_path):
    target = {"name": "cycle", "successors": [1, 2, 3, 4, 5, 0]}
    run(config(target, {"name": "cycle", "successors": successors}, k=k, max_tokens=12), folder=tmp_path, quiet=True)
    rows = [json.loads(line) for line in (tmp_path / "tokens.jsonl").read_text().splitlines()]
    assert [row["origin"] for row in rows if row["round"] == 0] == expected
    assert [row["position"] for row in rows] == list(range(2, 14))
    assert all((row["q"] is None) is (row["origin"] in ("bonus", "plain")) for row in rows)
