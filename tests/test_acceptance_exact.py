"""Every registered rule, enumerated: the joint law of K + 1 tokens is the target's, or the declared surrogate's."""

import itertools
import json
from fractions import Fraction
from pathlib import Path

from specfw import registry
from specfw.distribution import Dense
from specfw.verification.exact import declared, enumerate_rule, iid, joint, markov, total_variation

import mlx.core as mx
import numpy as np
import pytest

GOLDEN = json.loads((Path(__file__).parent / "golden_acceptance_rules.json").read_text())
PAIRS = GOLDEN["pairs"]
RULES = {name: registry.component("acceptance", name)() for name in registry.names("acceptance")}
SAMPLING = {name: rule for name, rule in RULES.items() if rule.domain == "any"}
CHAIN_RULES = ["sampler_match", "stochastic"]


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
