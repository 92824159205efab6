"""Intervals over prompts: by hand, by simulation, and of whole runs."""

import json
import math

from specfw.diagnostics._student import quantile
from specfw.diagnostics.population import interval
from specfw.experiment import run

import numpy as np
import pytest
from kit import config
from scipy.special import stdtrit

A, B = {"name": "iid", "probs": [0.5, 0.3, 0.2]}, {"name": "iid", "probs": [0.2, 0.3, 0.5]}
TRAPS = {"name": "markov", "rows": [[0.6, 0.4, 0, 0], [0.4, 0.6, 0, 0], [0, 0, 0.5, 0.5], [0, 0, 0.5, 0.5]]}
NEAR = {"name": "markov", "rows": [[0.5, 0.5, 0, 0], [0.5, 0.5, 0, 0], [0, 0, 0.98, 0.02], [0, 0, 0.98, 0.02]]}
"""From the ids 0 and 1 nearly everything is accepted, from 2 and 3 about half; neither leaves its half."""


def test_students_t_is_that_of_the_library():
    for degrees in [*range(1, 60), 163, 164, 999, 4000]:
        for mass in (0.5, 0.95, 0.999):
            assert quantile(degrees, mass) == pytest.approx(stdtrit(degrees, (1 + mass) / 2), rel=1e-9)


def counts(*values):
    return np.array(values, dtype=np.int64)


def summarised(*models, **changes):
    parts = {"diagnostics": {"population": {}}, **changes}
    return run(config(*models, **parts), quiet=True).numbers


# --- the formula ------------------------------------------------------------------------------------------------


def test_by_hand():
    """A = (3, 1), T = (4, 4): r = 1/2, residuals (1, -1), SE = sqrt(2 * 2) / 8; t(1, .975) = 12.7062."""
    found = interval(counts(3, 1), counts(4, 4), counts(3, 1))
    assert found["estimate"] == 0.5
    assert found["standard_error"] == 0.25
    assert found["high"] - found["estimate"] == pytest.approx(12.7062047 / 4)
    assert found["estimate"] - found["low"] == pytest.approx(12.7062047 / 4)
    assert found["clusters"] == 2
    assert found["design_effect"] == pytest.approx(1 / 16 / (1 / 4 / 7))  # 8 independent tokens: r (1 - r) / 7


def test_by_hand_with_clusters_of_different_sizes():
    """A = (2, 3, 0), T = (2, 6, 2): r = 1/2, residuals (1, 0, -1), SE = sqrt(3/2 * 2) / 10."""
    found = interval(counts(2, 3, 0), counts(2, 6, 2), counts(2, 3, 0))
    assert found["standard_error"] == pytest.approx(math.sqrt(3) / 10)
    assert found["high"] == pytest.approx(0.5 + 4.30265273 * math.sqrt(3) / 10)


def test_clusters_of_one_unit_have_no_design_effect():
    worth = counts(1, 0, 0, 1, 1, 0, 1)
    assert interval(worth, np.ones_like(worth), worth)["design_effect"] == pytest.approx(1)


def test_units_worth_more_than_one_have_no_design_effect_either():
    worth = counts(4, 0, 2, 1)
    assert interval(worth, np.ones_like(worth), worth**2)["design_effect"] == pytest.approx(1)


@pytest.mark.parametrize(("parts", "wholes"), [((), ()), ((3,), (4,)), ((3, 0, 0), (4, 0, 0)), ((0, 0), (0, 0))])
def test_less_than_two_clusters_say_nothing(parts, wholes):
    assert interval(counts(*parts), counts(*wholes), counts(*parts)) is None


def test_a_cluster_without_units_is_none():
    assert interval(counts(3, 0, 1), counts(4, 0, 4), counts(3, 0, 1)) == interval(
        counts(3, 1), counts(4, 4), counts(3, 1)
    )


def test_where_nothing_varies_there_is_no_design_effect():
    found = interval(counts(4, 2), counts(4, 2), counts(4, 2))
    assert (found["standard_error"], found["design_effect"]) == (0, None)


def simulated(rng, clusters):
    """Clusters whose sizes and rates differ and hang together: longer ones accept more."""
    wholes = rng.integers(5, 80, clusters)
    return rng.binomial(wholes, rng.beta(2 + wholes / 20, 3)), wholes


TRUTH = float(np.average((2 + np.arange(5, 80) / 20) / (5 + np.arange(5, 80) / 20), weights=np.arange(5, 80)))


@pytest.mark.parametrize("clusters", [8, 30])
def test_intervals_cover_and_those_of_independent_tokens_do_not(clusters):
    rng, covered, naive, trials = np.random.default_rng(0), 0, 0, 3000
    for _ in range(trials):
        parts, wholes = simulated(rng, clusters)
        found = interval(parts, wholes, parts)
        covered += found["low"] < TRUTH < found["high"]
        ratio = parts.sum() / wholes.sum()
        naive += abs(ratio - TRUTH) < 1.96 * math.sqrt(ratio * (1 - ratio) / wholes.sum())
    assert 0.92 < covered / trials < 0.965
    assert naive / trials < 0.6


# --- a run ------------------------------------------------------------------------------------------------------


def recounted(folder, prompt):
    """Counters of one prompt from the debug record of its rounds."""
    events = [json.loads(line) for line in (folder / "events.jsonl").read_text().splitlines()]
    rounds = [event for event in events if event["event"] == "round"]
    found = {"rounds": 0, "proposed": 0, "positions_tested": 0, "accepted": 0, "emitted": 0}
    for event in rounds:
        for row, place in enumerate(event["prompt"]):
            if place == prompt:
                proposed, accepted = event["proposed"][row], event["accepted"][row]
                found["rounds"] += proposed > 0
                found["proposed"] += proposed
                found["positions_tested"] += min(accepted + 1, proposed)
                found["accepted"] += accepted
                found["emitted"] += event["emitted"][row]
    return found


@pytest.mark.parametrize("batch_size", [None, 2])
def test_every_prompt_is_counted_apart_and_all_of_them_make_the_line(tmp_path, batch_size):
    """Prompts of two lengths, in batches of one prompt and of several, rows that end at different rounds."""
    prompts = {"name": "ids", "ids": [[0], [1, 2], [2], [0, 0]], "select": [3, 0, 1]}
    changes = {"num_samples": 3, "batch_size": batch_size, "max_tokens": 21, "log_level": "debug"}
    ending = A | {"eos_id": 0}
    whole = config(ending, B, prompts=prompts, diagnostics={"population": {}}, **changes)
    numbers = run(whole, folder=tmp_path, quiet=True).numbers
    each = numbers["diagnostics"]["population"]["prompts"]
    assert [one["prompt"] for one in each] == [0, 1, 3]
    for one in each:
        assert one["samples"] == 3
        assert {name: one[name] for name in recounted(tmp_path, one["prompt"])} == recounted(tmp_path, one["prompt"])
        assert one["per_position_acceptance"] == one["accepted"] / one["positions_tested"]
        assert one["mean_accepted_len"] == one["accepted"] / one["rounds"]
    for name in ("rounds", "proposed", "positions_tested", "accepted", "emitted"):
        assert sum(one[name] for one in each) == numbers[name]
    intervals = numbers["diagnostics"]["population"]["intervals"]
    for name in ("per_position_acceptance", "mean_accepted_len"):
        assert intervals[name]["estimate"] == numbers[name]
        assert intervals[name]["clusters"] == 3


def test_one_prompt_has_no_interval_but_its_samples_have():
    found = summarised(A, B, num_samples=4)["diagnostics"]["population"]
    assert found["intervals"] == {"per_position_acceptance": None, "mean_accepted_len": None}
    (only,) = found["prompts"]
    assert only["intervals"]["per_position_acceptance"]["clusters"] == 4
    assert only["intervals"]["per_position_acceptance"]["estimate"] == only["per_position_acceptance"]


def test_one_sample_has_no_interval():
    (only,) = summarised(A, B)["diagnostics"]["population"]["prompts"]
    assert only["intervals"] == {"per_position_acceptance": None, "mean_accepted_len": None}


def test_samples_of_one_prompt_are_one_cluster():
    """More samples of prompts that differ narrow the intervals of each prompt, and not that over prompts."""
    prompts = {"name": "ids", "ids": [[0], [2], [1], [3]]}
    found = summarised(TRAPS, NEAR, prompts=prompts, num_samples=100)["diagnostics"]["population"]
    over, within = found["intervals"]["per_position_acceptance"], found["prompts"][1]["intervals"]
    assert (over["clusters"], within["per_position_acceptance"]["clusters"]) == (4, 100)
    assert over["standard_error"] > 0.1 > 10 * within["per_position_acceptance"]["standard_error"]
    assert over["design_effect"] > 100
    assert within["per_position_acceptance"]["design_effect"] < 3


def test_a_rule_without_positions_has_lengths_only(monkeypatch):
    monkeypatch.setattr("specfw.acceptance.stochastic.Stochastic.stops_at_rejection", False)
    prompts = {"name": "ids", "ids": [[0], [1]]}
    found = summarised(A, B, prompts=prompts, num_samples=2)["diagnostics"]["population"]
    assert found["intervals"]["per_position_acceptance"] is None
    assert found["intervals"]["mean_accepted_len"]["clusters"] == 2
    assert math.isnan(found["prompts"][0]["per_position_acceptance"])


def test_plain_decoding_and_no_tokens_at_all():
    plain = summarised(A, None, drafting={"name": "none"})["diagnostics"]["population"]
    assert plain["intervals"] == {"per_position_acceptance": None, "mean_accepted_len": None}
    assert (plain["prompts"][0]["emitted"], plain["prompts"][0]["rounds"]) == (32, 0)
    assert math.isnan(plain["prompts"][0]["mean_accepted_len"])
    nothing = summarised(A, B, max_tokens=0)["diagnostics"]["population"]
    assert nothing["prompts"] == []


def test_it_is_on_by_default_and_costs_no_evaluation():
    import specfw

    assert specfw.compose(["pair=iid"])["diagnostics"]["population"] == {"enabled": True}
    syncs = [summarised(A, B, diagnostics=asked)["host_syncs"] for asked in ({}, {"population": {}})]
    assert syncs[0] == syncs[1]
