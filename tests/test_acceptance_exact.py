"""Every registered rule, enumerated: the joint law of K + 1 tokens is the target's, or the declared surrogate's."""

import itertools
import json
from fractions import Fraction
from pathlib import Path

from specfw import registry
from specfw.acceptance.base import Needs
from specfw.distribution import Dense
from specfw.verification.exact import Pair, declared, enumerate_rule, iid, joint, markov, total_variation

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


def random_pair(seed, zeros=False, onehot=False):
    rng = np.random.default_rng(seed)
    size, k = int(rng.integers(2, 5)), int(rng.integers(1, 4))

    def rows(j):
        drawn = rng.dirichlet(np.full(size, rng.choice([0.3, 1.0, 3.0])), size=(size,) * j)
        if zeros:
            drawn = np.where(rng.random(drawn.shape) < 0.35, 0, drawn)
            drawn[..., rng.integers(size)] += 1e-3
            drawn /= drawn.sum(-1, keepdims=True)
        if onehot:
            drawn = np.eye(size)[drawn.argmax(-1)]
        return drawn

    return Pair(tuple(rows(j) for j in range(k + 1)), tuple(rows(j) for j in range(k)))


def tied_pair(seed):
    rng = np.random.default_rng(seed)
    values = rng.integers(1, 3, size=(3, 4)).astype(float)
    p, q = values[0] / values[0].sum(), values[1] / values[1].sum()
    return iid(p, q, int(rng.integers(1, 4)))


def pairs():
    for seed in range(60):
        yield f"random{seed}", random_pair(seed)
        yield f"zeros{seed}", random_pair(1000 + seed, zeros=True)
        yield f"onehot{seed}", random_pair(2000 + seed, onehot=True)
        yield f"ties{seed}", tied_pair(3000 + seed)
    for name, k in itertools.product("ABCEM", (1, 2, 3)):
        yield f"{name}{k}", golden_pair(name, k)


ALL_PAIRS = dict(pairs())


@pytest.mark.parametrize("name", sorted(SAMPLING))
def test_joint_law_is_the_declared_one(name):
    rule = SAMPLING[name]
    laws = ((enumerate_rule(rule, pair).emitted, joint(declared(rule, pair))) for pair in ALL_PAIRS.values())
    assert len(ALL_PAIRS) >= 200
    assert max(total_variation(*law) for law in laws) < 1e-9


@pytest.mark.parametrize("seed", range(40))
def test_greedy_rule_on_its_domain(seed):
    pair = random_pair(seed, onehot=True)
    found = enumerate_rule(RULES["greedy_argmax"], pair)
    assert total_variation(found.emitted, joint(pair.p)) < 1e-12


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


@pytest.mark.parametrize("name", sorted(SAMPLING))
def test_survivor_rows_give_the_law_of_dense_rows(name):
    for seed in range(30):
        pair = random_pair(seed, zeros=True)
        dense = enumerate_rule(SAMPLING[name], pair)
        ids = enumerate_rule(SAMPLING[name], pair, survivors=pair.vocab_size)
        np.testing.assert_allclose(ids.emitted, dense.emitted, atol=1e-12)
    for seed in range(10):
        p, q = truncated_rows(seed)
        pair = iid(p, q, 2)
        dense, ids = (enumerate_rule(SAMPLING[name], pair, survivors=s) for s in (None, 2))
        np.testing.assert_allclose(ids.emitted, dense.emitted, atol=1e-12)


def truncated_rows(seed):
    rng = np.random.default_rng(seed)
    rows = np.zeros((2, 4))
    for row in rows:
        row[rng.choice(4, size=2, replace=False)] = rng.dirichlet([1, 1])
    return rows


@pytest.mark.parametrize("name", sorted(RULES))
def test_first_acceptance_is_the_closed_form(name):
    rule = RULES[name]
    for seed in range(40):
        pair = random_pair(seed, onehot=rule.domain == "greedy_target")
        found = enumerate_rule(rule, pair)
        with mx.stream(mx.cpu):
            p, q = (Dense(mx.array([rows[0].tolist()], dtype=mx.float64)) for rows in pair)
            expected = rule.expected_acceptance(p, q).item()
        assert (found.blocks @ found.survival)[0] == pytest.approx(expected, abs=1e-9)


@pytest.mark.parametrize("name", sorted(RULES))
def test_declarations(name):
    rule = RULES[name]
    assert rule.id == name.replace("_", "-")
    assert rule.label
    assert isinstance(rule.needs, Needs)
    for seed in range(20):
        survival = enumerate_rule(rule, random_pair(seed)).survival
        assert (survival >= 0).all()
        assert (np.diff(survival, axis=1) <= 1e-15).all()
        assert (survival <= 1).all()
