"""Every registered rule, enumerated: the joint law of K + 1 tokens is the target's, or the declared surrogate's."""

import itertools
import json
from fractions import Fraction
from pathlib import Path

from specfw import registry
from specfw.acceptance.block import prefix_weights, stop_chances
from specfw.distribution import Dense
from specfw.types import Block
from specfw.verification.contract import first_acceptance
from specfw.verification.exact import declared, enumerate_rule, iid, joint, markov, total_variation
from specfw.verification.pairs import one_hot_rows, pairs, random_pair

import mlx.core as mx
import numpy as np
import pytest

GOLDEN = json.loads((Path(__file__).parent / "golden_acceptance_rules.json").read_text())
PAIRS = GOLDEN["pairs"]
RULES = {name: registry.component("acceptance", name)() for name in registry.names("acceptance")}
SAMPLING = {name: rule for name, rule in RULES.items() if rule.domain == "any"}
CHAIN_RULES = ["sampler_match", "stochastic", "block"]


def numbers(fractions):
    return [float(Fraction(x)) for x in fractions]


def golden_pair(name, k):
    pair = PAIRS[name]
    if name == "M":
        return markov_pair(pair, k)
    return iid(numbers(pair["p"]), numbers(pair["q"]), k)


def markov_pair(pair, k):
    p, q = ((numbers(pair[f"{m}_start"]), [numbers(row) for row in pair[f"{m}_rows"]]) for m in "pq")
    return markov(p, q, k)


GOLDEN_PAIRS = {f"{name}{k}": golden_pair(name, k) for name, k in itertools.product("ABCEM", (1, 2, 3))}


@pytest.mark.parametrize("name", sorted(SAMPLING))
def test_joint_law_is_the_declared_one_on_the_golden_pairs(name):
    rule = SAMPLING[name]
    for pair in GOLDEN_PAIRS.values():
        assert total_variation(enumerate_rule(rule, pair).emitted, joint(declared(rule, pair))) < 1e-12


def test_argmax_against_argmax_is_biased_by_the_published_amount():
    for name, distance in (("A", 1 / 3), ("B", 1 / 2)):
        pair = golden_pair(name, 1)
        emitted = enumerate_rule(RULES["argmax_against_argmax"], pair).emitted.sum(1)
        assert total_variation(emitted, pair.p[0]) == pytest.approx(distance, abs=1e-12)


@pytest.mark.parametrize("rule", CHAIN_RULES)
@pytest.mark.parametrize("pair", sorted(PAIRS))
def test_golden_chains(pair, rule):
    chains = PAIRS[pair].get("chain", {})
    for k, values in chains.items():
        found = enumerate_rule(RULES[rule], golden_pair(pair, int(k)))
        expected = values[rule]
        assert found.expected_accepted == pytest.approx(float(Fraction(expected["expected_accepted"])), abs=1e-12)
        law = [float(Fraction(x)) for x in expected["accepted_length_law"].values()]
        np.testing.assert_allclose(found.accepted, law, atol=1e-12)


@pytest.mark.parametrize("pair", sorted(set(PAIRS) - {"M"}))
def test_golden_one_position(pair):
    golden = PAIRS[pair]["one_position"]
    with mx.stream(mx.cpu):
        p, q = (Dense(mx.array([numbers(PAIRS[pair][key])], dtype=mx.float64)) for key in "pq")
        assert p.overlap(q).item() == pytest.approx(float(Fraction(golden["sum_min"])), abs=1e-12)
        assert p.product(q).item() == pytest.approx(float(Fraction(golden["sum_prod"])), abs=1e-12)
        assert q.at(p.argmax()).item() == pytest.approx(float(Fraction(golden["q_at_target_argmax"])), abs=1e-12)
        residual = p.excess(q).normalised().probs
        np.testing.assert_allclose(np.array(residual)[0], numbers(golden["residual"]), atol=1e-12)


GUMBEL_CHAINS = {"A2": "10/9", "A3": "38/27", "B2": "133/144", "B3": "1939/1728", "M2": "7/6", "M3": "37/24"}


@pytest.mark.parametrize("pair", GUMBEL_CHAINS)
def test_golden_gumbel_chains(pair):
    found = enumerate_rule(RULES["gumbel"], GOLDEN_PAIRS[pair]).expected_accepted
    assert found == pytest.approx(float(Fraction(GUMBEL_CHAINS[pair])), abs=1e-12)


@pytest.mark.parametrize("pair", sorted(set(PAIRS) - {"M"}))
def test_golden_gumbel_closed_form(pair):
    closed = first_acceptance(RULES["gumbel"], golden_pair(pair, 1))
    assert closed == pytest.approx(float(Fraction(PAIRS[pair]["one_position"]["gumbel_coupled"])), abs=1e-12)


def test_golden_block_table():
    """Prefix weights and stop chances of toy A at two draft tokens."""
    for line in GOLDEN["block_verification_toy_A_gamma_2"]:
        p, q = (numbers(PAIRS["A"][key]) for key in "pq")
        with mx.stream(mx.cpu):
            rows = [Dense(mx.array([[row] * count], dtype=mx.float64)) for row, count in ((p, 3), (q, 2))]
            block = Block(*rows, mx.array([line["drafted"]]), mx.array([2]))
            weights, chances = np.array(prefix_weights(block)), np.array(stop_chances(block))
        np.testing.assert_allclose(weights[0], numbers(line["prefix_weight"])[1:], atol=1e-12)
        np.testing.assert_allclose(chances[0], numbers(line["accept_probability"]), atol=1e-12)


def joint_ceiling(pair):
    """Sum over i of 1 - TV(p^{1:i}, q^{1:i}): what no rule may exceed."""
    lengths = range(1, pair.draft_tokens + 1)
    return sum(1 - total_variation(joint(pair.p[:i]), joint(pair.q[:i])) for i in lengths)


@pytest.mark.parametrize("pair", sorted(PAIRS))
def test_golden_joint_ceiling(pair):
    for k, values in PAIRS[pair].get("chain", {}).items():
        golden = float(Fraction(values["joint_ceiling"]))
        assert joint_ceiling(golden_pair(pair, int(k))) == pytest.approx(golden, abs=1e-12)


def test_expected_lengths_are_ordered():
    """On 200 pairs: stochastic <= block <= joint ceiling, and sum_prod <= gumbel <= sum_min."""
    strict = 0
    for pair in pairs(200):
        length = {name: enumerate_rule(RULES[name], pair).expected_accepted for name in ("stochastic", "block")}
        ladder = [*length.values(), joint_ceiling(pair)]
        assert (np.diff(ladder) >= -1e-12).all()
        strict += ladder[1] > ladder[0] + 1e-9
        closed = [first_acceptance(RULES[name], pair) for name in ("sampler_match", "gumbel", "stochastic")]
        assert (np.diff(closed) >= -1e-12).all()
    assert strict > 20


def test_block_of_toy_a_shows_no_distortion():
    """Acceptance at first places is sum_min, though the mean length exceeds stochastic's."""
    for k in (1, 2, 3):
        pair = golden_pair("A", k)
        found = enumerate_rule(RULES["block"], pair)
        assert found.blocks @ found.survival[:, 0] == pytest.approx(2 / 3, abs=1e-12)


def test_gumbel_under_a_point_mass_drafter_is_sampler_match():
    """Its survival and its text's law, block by block."""
    for seed in range(50):
        pair = random_pair(seed)
        pair = pair._replace(q=random_pair(seed, one_hot_rows).q)
        match, gumbel = (enumerate_rule(RULES[name], pair) for name in ("sampler_match", "gumbel"))
        drafted = match.blocks > 0
        np.testing.assert_allclose(gumbel.survival[drafted], match.survival[drafted], atol=1e-12)
        np.testing.assert_allclose(gumbel.accepted, match.accepted, atol=1e-12)
