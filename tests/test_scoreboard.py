"""What other rules would have accepted: golden lengths, the run's own law, predictions of other runs, cuts."""

import itertools
import json
import math
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from types import SimpleNamespace

from specfw import compose, registry, terminal
from specfw.acceptance.base import AcceptanceRule
from specfw.acceptance.stochastic import Stochastic
from specfw.diagnostics.base import Observer, Setting
from specfw.diagnostics.calibration import Calibration
from specfw.diagnostics.scoreboard import Scoreboard, ceiling, rivals
from specfw.distribution import Dense
from specfw.drafting.model import ModelDrafting
from specfw.experiment import run
from specfw.registry import build
from specfw.types import Block, Round
from specfw.verification.exact import float64

import mlx.core as mx
import numpy as np
import pytest
from kit import chain, config, decoder, iid, markov, rule, shipped, start
from test_losslessness import MARKOV_P, MARKOV_Q

GOLDEN = json.loads((Path(__file__).parent / "golden_acceptance_rules.json").read_text())
A = [Fraction(1, 3), Fraction(2, 3)]
TOY_A = {"sampler-match": 52 / 81, "gumbel": 10 / 9, "stochastic": 10 / 9, "block": 11 / 9, "joint_ceiling": 4 / 3}
P, Q = [0.1, 0.2, 0.3, 0.4], [0.4, 0.3, 0.2, 0.1]
LOSSLESS = ["stochastic", "sampler_match", "block", "gumbel"]


def observed(acceptance, target, drafter, k=4, *, samples=64, point_mass=False, **changes):
    """A run under the scoreboard and the calibration; the rounds, and both."""
    active = rule(acceptance) if isinstance(acceptance, str) else acceptance
    observers = tuple(
        one.open(Setting(rule=active, point_mass=point_mass)) for one in (Scoreboard(), Calibration(sorting=True))
    )
    rounds = list(start(decoder(target, drafter, active, k, observers=observers, **changes), samples=samples))
    return rounds, observers[0].numbers(), observers[1].numbers()


def measured(rounds):
    """Accepted draft tokens of every round that drafted."""
    return np.concatenate([o.accepted[o.proposed > 0] for o in rounds])


def of_every_block(acceptance, p, q, k, lengths=None, proposed=None):
    """The observer on every block of an iid pair, each as often as it is drafted (a whole number of times)."""
    tokens = np.array(list(itertools.product(range(len(p)), repeat=k)))
    weights = np.prod([[q[token] for token in block] for block in tokens], axis=1)
    unit = math.lcm(*(weight.denominator for weight in weights))
    tokens = np.repeat(tokens, [int(weight * unit) for weight in weights], axis=0)
    rows = [
        np.broadcast_to(np.array(row, dtype=np.float32), (len(tokens), n, len(p))) for row, n in ((p, k + 1), (q, k))
    ]
    own = np.full(len(tokens), k) if lengths is None else lengths(len(tokens))
    block = Block(*(Dense(mx.array(row)) for row in rows), mx.array(tokens.astype(np.int32)), mx.array(own))
    active = rule(acceptance)
    verdict = SimpleNamespace(survival=active.law(block))
    observer = Scoreboard().open(Setting(rule=active, point_mass=False))
    trace = [np.array(one) for one in observer.trace(Round(block, verdict, block.target.probs))]
    observer.observe(SimpleNamespace(proposed=own if proposed is None else proposed(tokens)), trace)
    return observer.numbers()


def lengths(numbers):
    return {name: found["mean_accepted_len"] for name, found in numbers.items()}


# --- golden numbers -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("acceptance", LOSSLESS)
def test_toy_a_by_every_block(acceptance):
    """Whatever rule ran: 52/81, 10/9, 10/9, 11/9, and no rule beyond 4/3."""
    assert lengths(of_every_block(acceptance, A, A[::-1], 2)) == pytest.approx(TOY_A, abs=1e-6)


@pytest.mark.parametrize(("pair", "k"), [("A", 3), ("B", 2), ("E", 2)])
def test_golden_lengths_of_other_pairs(pair, k):
    golden = GOLDEN["pairs"][pair]
    p, q = ([Fraction(value) for value in golden[key]] for key in "pq")
    found = lengths(of_every_block("stochastic", p, q, k))
    chain = golden["chain"][str(k)]
    assert found["joint_ceiling"] == pytest.approx(float(Fraction(chain["joint_ceiling"])), abs=1e-6)
    for name in ("sampler_match", "stochastic", "block"):
        assert found[rule(name).id] == pytest.approx(float(Fraction(chain[name]["expected_accepted"])), abs=1e-6), name


def test_a_run_of_toy_a_sits_on_them():
    _, found, _ = observed("stochastic", iid(map(float, A)), iid(map(float, A[::-1])), 2, samples=200, max_tokens=63)
    for name, golden in TOY_A.items():
        # of a difference the error is stated; of a mean it follows from the length being at most 2
        assert found[name]["mean_accepted_len"] == pytest.approx(golden, abs=4 / math.sqrt(200 * 28)), name
        assert found[name]["difference"] == pytest.approx(
            golden - 10 / 9, abs=4 * found[name]["standard_error"] + 1e-6
        ), name


def test_the_ceiling_is_capped_at_the_end_only_and_never_overflows():
    p, q = np.array([[0.5, 0.1, 0.5]]), np.array([[0.25, 0.4, 0.25]])
    np.testing.assert_allclose(ceiling(p, q), [[1, 0.5, 1]], rtol=1e-12)
    tiny = np.full((1, 64), 1e-30, dtype=np.float32)
    up, down = np.ones_like(tiny), tiny
    assert (ceiling(up, down) == 1).all()
    there_and_back = ceiling(np.hstack([up, down, 0.5 * up]), np.hstack([down, up, up]))
    np.testing.assert_allclose(there_and_back[0, 127:130], [1, 0.5, 0.25], rtol=1e-9)
    assert ceiling(np.array([[0.5, 0.0, 1.0]]), np.array([[0.5, 0.5, 1e-9]])).tolist() == [[1, 0, 0]]


# --- the run's own rule -------------------------------------------------------------------------------------------


class Laws(Observer):
    """Sum of the survival that was decided by, of every round, up to K'."""

    def __init__(self):
        self.lengths = []

    def trace(self, graph):
        return (graph.verdict.survival,)

    def observe(self, outcome, trace):
        for row in np.nonzero(outcome.proposed)[0]:
            self.lengths.append(trace[0][row, : outcome.proposed[row]].sum(dtype=np.float64))

    def numbers(self):
        return {}


@pytest.mark.parametrize("acceptance", LOSSLESS)
def test_the_own_entry_is_the_law_that_was_decided_by(acceptance):
    active, laws = rule(acceptance), Laws()
    board = Scoreboard().open(Setting(rule=active, point_mass=False))
    parts = decoder(markov(MARKOV_P), markov(MARKOV_Q), active, observers=(laws, board), eos_ids=frozenset({0}))
    cuts = {int(k) for o in start(parts, samples=64) for k in o.proposed}
    own = next(iter(board.numbers().items()))
    assert own[0] == active.id
    assert own[1]["mean_accepted_len"] == pytest.approx(np.mean(laws.lengths), rel=1e-6)
    assert (own[1]["difference"], own[1]["standard_error"]) == (0, 0)
    assert cuts == {0, 1, 2, 3, 4}


@pytest.mark.parametrize("acceptance", LOSSLESS)
def test_the_own_entry_is_what_the_check_of_lengths_expects(acceptance):
    """At K' = 1 the terms of that check are lengths."""
    rounds, found, checks = observed(acceptance, markov(MARKOV_P), markov(MARKOV_Q), 1, max_tokens=40)
    total = found[rule(acceptance).id]["mean_accepted_len"] * len(measured(rounds))
    assert total == pytest.approx(checks["lengths"]["expected"], rel=1e-6)


def test_differences_are_paired_over_rounds():
    """By hand, on three rounds of one draft token: lengths of the rules are min(1, r) and p."""
    found = of_every_block("sampler_match", [Fraction(1, 2), Fraction(1, 2)], [Fraction(1, 3), Fraction(2, 3)], 1)
    # the blocks are a, b, b: stochastic 1, 3/4, 3/4; sampler match 1/2 each
    differences = np.array([1 / 2, 1 / 4, 1 / 4])
    assert found["stochastic"]["difference"] == pytest.approx(differences.mean())
    assert found["stochastic"]["standard_error"] == pytest.approx(differences.std(ddof=1) / math.sqrt(3))
    assert found["block"] == pytest.approx(found["stochastic"])
    assert found["sampler-match"] == {"mean_accepted_len": 0.5, "difference": 0, "standard_error": 0}


# --- other rules --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("ran", LOSSLESS)
def test_a_run_of_one_rule_predicts_a_run_of_another_where_contexts_do_not_matter(ran):
    _, found, _ = observed(ran, iid(P), iid(Q), samples=128, seed=1)
    for other in LOSSLESS:
        accepted = measured(observed(other, iid(P), iid(Q), samples=128, seed=2)[0])
        predicted = found[rule(other).id]["mean_accepted_len"]
        assert abs(predicted - accepted.mean()) < 5 * math.sqrt(2) * accepted.std() / math.sqrt(len(accepted)), other


def round_of(active, p, q, k):
    """Exactly, of a Markov pair, after each token: the expected length [V] of a round and where it ends [V, V]."""
    tokens = np.array(list(itertools.product(range(len(p)), repeat=k)))
    expected, ends = np.zeros(len(p)), np.zeros((len(p), len(p)))
    for first in range(len(p)):
        before = np.hstack([np.full((len(tokens), 1), first), tokens])
        with mx.stream(mx.cpu):
            rows = (Dense(float64(p[before])), Dense(float64(q[before[:, :-1]])))
            block = Block(*rows, mx.array(tokens.astype(np.int32)), mx.full((len(tokens),), k, dtype=mx.int32))
            survival = np.array(active.law(block))
            counts = [mx.full((len(tokens),), n, dtype=mx.int32) for n in range(k + 1)]
            following = [np.nan_to_num(np.array(active.next_token(block, n)[0].probs)) for n in counts]
        weights = np.prod(q[before[:, :-1], tokens], axis=1)
        stops = -np.diff(np.pad(survival, [(0, 0), (1, 1)], constant_values=((0, 0), (1, 0))), axis=1)
        expected[first] = weights @ survival.sum(axis=1)
        ends[first] = sum((weights * stops[:, n]) @ row for n, row in enumerate(following))
    return expected, ends


SHIFTED = {"sampler_match": 1.748, "gumbel": 1.7777, "stochastic": 1.8053, "block": 1.7982}
"""What stochastic accepts on pair=markov where rounds begin as those of each rule do."""


@pytest.mark.parametrize("ran", LOSSLESS)
def test_the_prediction_is_of_the_contexts_of_the_run(ran):
    """context_shift: a run of another rule starts its rounds elsewhere, and the exact amount is known here."""
    p, q = (np.array(compose(["pair=markov"])[role]["rows"]) for role in ("target", "drafter"))
    _, ends = round_of(rule(ran), p, q, 4)
    begins = np.linalg.matrix_power(ends, 200)[0]
    exact = float(begins @ round_of(rule("stochastic"), p, q, 4)[0])
    assert exact == pytest.approx(SHIFTED[ran], abs=1e-4)
    _, found, _ = observed(ran, markov(p), markov(q), samples=200, max_tokens=400)
    # about four standard errors of the mean of 30,000 rounds; the shift of sampler_match is 0.057
    assert found["stochastic"]["mean_accepted_len"] == pytest.approx(exact, abs=0.032)


def test_which_rules_are_listed():
    _, found, _ = observed("stochastic", iid(P), iid(Q), samples=1)
    assert set(found) == {"stochastic", "block", "gumbel", "sampler-match", "joint_ceiling"}
    assert set(rivals(rule("argmax_against_argmax"))) == {rule(name) for name in LOSSLESS}


def test_a_lossy_rule_is_listed_beside_the_lossless_ones_when_it_runs():
    _, found, _ = observed("argmax_against_argmax", iid(P), iid(Q))
    assert next(iter(found)) == "argmax-against-argmax"
    assert set(found) == {"argmax-against-argmax", *TOY_A}


def test_a_rule_with_a_key_that_must_be_given_is_left_out(monkeypatch):
    def refuse(group, node):
        if node["name"] == "block":
            raise ValueError("acceptance: a key must be given")
        return build(group, node)

    monkeypatch.setattr("specfw.diagnostics.scoreboard.build", refuse)
    assert {one.id for one in rivals(rule("stochastic"))} == {"gumbel", "sampler-match"}


def test_under_a_greedy_drafter_all_rules_have_one_law():
    drafting = ModelDrafting(proposal="greedy")
    _, found, _ = observed("stochastic", markov(MARKOV_P), markov(MARKOV_Q), drafting=drafting, point_mass=True)
    assert len(found) == len(TOY_A)
    for name, entry in found.items():
        assert entry["difference"] == pytest.approx(0, abs=1e-6), name


def test_nothing_sorts(monkeypatch):
    def sorting(*_, **__):
        raise AssertionError("sorted")

    monkeypatch.setattr(mx, "argsort", sorting)
    monkeypatch.setattr(mx, "sort", sorting)
    active = rule("stochastic")
    observer = Scoreboard().open(Setting(rule=active, point_mass=False))
    for _ in start(decoder(iid(P), iid(Q), active, observers=(observer,))):
        pass
    assert observer.numbers()["gumbel"]["mean_accepted_len"] > 0


# --- cuts ---------------------------------------------------------------------------------------------------------


def test_lengths_are_cut_at_the_end_of_sequence_like_the_counters():
    """K' of every block: through its first 1. By hand on toy A: a second place counts after a only."""
    through_first = lambda tokens: np.where(tokens[:, 0] == 1, 1, 2)  # noqa: E731
    found = of_every_block("stochastic", A, A[::-1], 2, proposed=through_first)
    # stochastic: r = (1/2, 2 -> 1); a (2/3) is 1/2, then aa 1/4, ab 1/2; b is 1
    assert found["stochastic"]["mean_accepted_len"] == pytest.approx(2 / 3 + 2 / 3 * (2 / 3 / 4 + 1 / 3 / 2), abs=1e-6)
    # block judges the whole block even so: P(n >= 1) is 1/4, 1, 1, 1 on aa, ab, ba, bb; P(n >= 2) 1/4, 1
    assert found["block"]["mean_accepted_len"] == pytest.approx((4 / 4 + 2 + 2 + 1) / 9 + (4 / 4 + 2) / 9, abs=1e-6)
    # the ceiling at the second place: aa 1/4, ab 1
    assert found["joint_ceiling"]["mean_accepted_len"] == pytest.approx(2 / 3 + (4 / 4 + 2) / 9, abs=1e-6)


@pytest.mark.parametrize("acceptance", LOSSLESS)
def test_ends_of_sequence_do_not_bias_the_own_entry(acceptance):
    rounds, found, _ = observed(acceptance, iid(P), iid(Q), samples=2000, eos_ids=frozenset({0}), max_tokens=40)
    accepted = measured(rounds)
    error = accepted.std() / math.sqrt(len(accepted))
    assert abs(found[rule(acceptance).id]["mean_accepted_len"] - accepted.mean()) < 5 * error


def test_rows_of_a_batch_have_their_own_length():
    """Half of the rows draft one token, half two: the mean of the two runs."""
    halves = lambda count: np.where(np.arange(count) % 2, 2, 1)  # noqa: E731
    p, q = [Fraction(1, 2), Fraction(1, 2)], [Fraction(1, 2), Fraction(1, 2)]
    found = of_every_block("block", p, q, 2, lengths=halves)
    assert found["block"]["mean_accepted_len"] == found["joint_ceiling"]["mean_accepted_len"] == 1.5
    assert found["sampler-match"]["mean_accepted_len"] == pytest.approx((1 / 2 + 3 / 4) / 2)


def test_a_row_that_drafts_nothing_is_no_round():
    some = lambda count: np.where(np.arange(count) % 3, 0, 2)  # noqa: E731
    found = of_every_block("block", A, A, 2, lengths=some)
    assert found["block"]["mean_accepted_len"] == pytest.approx(2)


def test_draft_lengths_near_max_tokens():
    """Five tokens in the first round, three are left, so the second drafts two."""
    rounds, found, _ = observed("stochastic", iid(P), iid(P), max_tokens=8)
    assert {int(k) for o in rounds for k in o.proposed} == {2, 4}
    assert found["block"]["mean_accepted_len"] == pytest.approx(measured(rounds).mean())


# --- runs ---------------------------------------------------------------------------------------------------------

IID = ({"name": "iid", "probs": P}, {"name": "iid", "probs": Q})


def scored(*models, **changes):
    parts = {"diagnostics": {"scoreboard": {}}, **changes}
    return run(config(*models, **parts), quiet=True).numbers["diagnostics"]["scoreboard"]


def test_plain_decoding_a_greedy_target_and_no_tokens_have_no_scoreboard():
    assert scored(IID[0], None, drafting={"name": "none"}) == {}
    assert scored(*IID, sampler={"temperature": {"value": 0}}) == {}
    assert scored(*IID, max_tokens=0) == {}


@pytest.mark.parametrize("asked", ["stochastic", "sampler_match"])
def test_without_rows_there_is_sampler_match_alone(asked):
    found = scored(*IID, drafting={"name": "model", "report_distribution": False}, acceptance={"name": asked})
    assert set(found) == {"sampler-match"}
    assert found["sampler-match"]["mean_accepted_len"] > 0


def test_one_round_has_no_error():
    found = scored(*IID, max_tokens=2)
    assert math.isnan(found["block"]["standard_error"])


@pytest.mark.parametrize("steps", [{"top_k": {"k": 20}}, {"top_p": {"p": 0.9}}], ids=["survivors", "dense"])
def test_on_filtered_rows_of_the_shipped_pair(steps):
    sampler = chain(temperature={"value": 0.8}, **steps)
    prompt = [tuple(shipped("target").tokenizer.encode("import os\n"))]
    observer = Scoreboard().open(Setting(rule=rule("stochastic"), point_mass=False))
    parts = decoder(
        shipped("target"), shipped("drafter"), "stochastic", sampler=sampler, observers=(observer,), max_tokens=60
    )
    for _ in start(parts, prompt):
        pass
    found = lengths(observer.numbers())
    assert found["sampler-match"] < found["gumbel"] < found["joint_ceiling"]
    assert 0 < found["stochastic"] < found["joint_ceiling"] < 4


def test_it_is_on_unless_left_out_and_costs_no_evaluation():
    assert compose(["pair=iid"])["diagnostics"]["scoreboard"] == {"enabled": True}
    syncs = [
        run(config(*IID, diagnostics=asked), quiet=True).numbers["host_syncs"] for asked in ({}, {"scoreboard": {}})
    ]
    assert syncs[0] == syncs[1]


def shown(capsys, **changes):
    terminal.show(run(config(*IID, diagnostics={"scoreboard": {}}, **changes), quiet=True))
    return capsys.readouterr().err


def test_the_table_at_the_end_of_a_run(capsys):
    lines = shown(capsys).splitlines()
    head = next(place for place, line in enumerate(lines) if line.startswith("accepted a round"))
    rows = [line.split() for line in lines[head + 1 : head + 6]]
    assert {row[0] for row in rows} == set(TOY_A)
    assert [float(row[1]) for row in rows] == sorted(float(row[1]) for row in rows)
    assert next(len(row) for row in rows if row[0] == "stochastic") == 2
    assert all(float(row[3]) >= 0 for row in rows if row[0] != "stochastic")


def test_there_is_no_table_of_one_rule(capsys):
    assert "accepted a round" not in shown(capsys, drafting={"name": "model", "report_distribution": False})


def test_a_rule_of_the_user_is_listed(monkeypatch):
    @dataclass(frozen=True, kw_only=True)
    class Half(AcceptanceRule):
        id, label, preserves_target = "half", "accepts less than it may", True
        residual, expected_acceptance = Stochastic.residual, Stochastic.expected_acceptance

        def survival(self, block):
            return Stochastic().law(block) / 2

    monkeypatch.setitem(registry._components["acceptance"], "half", Half)
    _, found, _ = observed("stochastic", iid(P), iid(Q))
    assert found["half"]["mean_accepted_len"] == pytest.approx(found["stochastic"]["mean_accepted_len"] / 2)
