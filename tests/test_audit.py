"""The audit's arithmetic: every ratio an e-value, edges cheap, impossible tokens fatal, faults named on toy pairs."""

import itertools
import json
from dataclasses import replace

from specfw.config.composing import conf_dir
from specfw.errors import FailedCheckError
from specfw.models._toy import ToyModel, by_token
from specfw.parts import Models
from specfw.sampling.chain import SamplerChain
from specfw.verification.audit import e_process, rows
from specfw.verification.audit.auditing import Auditor
from specfw.verification.audit.claim import claim, others, relaxed
from specfw.verification.audit.e_process import EDGE, combine, paths, shared_coin
from specfw.verification.audit.rows import Scores, joined, scores
from specfw.verification.audit.source import Case
from specfw.verification.audit.text import Text
from specfw.verification.audit.transform import uniformity

import numpy as np
import pytest
import yaml
from kit import ORDER, decoder, emitted, iid, markov, rule, start
from scipy.stats import binom

MLX_LM = ["bias", "repetition", "presence", "frequency", "top_p", "min_p", "xtc", "top_k", "temperature"]
ORDERS = {"seed": ORDER, "mlx_lm": MLX_LM, "hf": ["bias", "repetition", "temperature", "top_k", "top_p", "min_p"]}
P, Q = [0.4, 0.3, 0.2, 0.1], [0.1, 0.2, 0.3, 0.4]
XTC = {"xtc": {"probability": 0.5, "threshold": 0.15}}
RULES = {"plain": None, "sampler_match": "sampler_match", "stochastic": "stochastic"}


def chains(order=ORDER, **steps):
    node = {"order": order, **steps}
    return claim(node, node, "sampler", "draft_sampler")


def texts_of(claimed, tokens, ids=(0, 0)):
    return tuple(Text(0, sample, tuple(ids), tuple(map(int, row)), claimed) for sample, row in enumerate(tokens))


def case(texts, target, drafter=None, **changes):
    return Case(Models(target, drafter), greedy_drafts=False, texts=texts, prefill_chunk=512)._replace(**changes)


def audited(texts, target, drafter=None, alpha=1e-6, seed=0, **changes):
    return Auditor(seed=seed, alpha=alpha, orders=ORDERS).audit(case(texts, target, drafter, **changes)).numbers


def draw(law, count, seed=0):
    return np.random.default_rng(seed).choice(len(law), p=np.array(law) / np.sum(law), size=(1, count))


def scored(claimed, tokens, target, drafter=None, seed=0):
    (text,) = texts_of(claimed, [tokens])
    return joined(list(scores(case((text,), target, drafter), text, others(claimed.chain, ORDERS), seed)))


# --- every alternative is a law -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "steps",
    [{}, XTC, {**XTC, "temperature": {"value": 1.4}, "top_p": {"p": 0.85}}, {"top_k": {"k": 3}, "min_p": {"p": 0.3}}],
    ids=["plain", "xtc", "filtered", "top_k"],
)
def test_products_of_all_texts_have_mean_one(steps):
    """Enumerated: sum over texts of prod p times the product of every alternative is 1, so it is an e-value."""
    each = scored(chains(**steps), range(4), iid(P), iid(Q))
    length, total = 5, {}
    for text in itertools.product(range(4), repeat=length):
        at = list(text)
        one = Scores(
            each.p[at], each.edge[at], {name: row[at] for name, row in each.others.items()}, each.branches[:, at], {}
        )
        weight = np.prod((1 - EDGE) * one.p + EDGE * one.edge)
        for name, path in paths(one, 0.5 if "xtc" in steps else 0.0).items():
            total[name] = total.get(name, 0) + (weight * np.exp(path[-1]) if weight else 0)
    assert {"temperature_x0.9", "p_power_1.1", "ratio_power_+0.3", "q_power_-0.1", "q_share_0.1"} <= set(total)
    assert ({"no_xtc", "xtc_coin_of_1.25", "xtc_coin_of_2", "xtc_coin_of_8"} <= set(total)) == ("xtc" in steps)
    for name, mean in total.items():
        # less than 1 where the alternative has mass that the claim does not allow; never more
        assert mean < 1 + 1e-5, name
        if not {"top_p", "top_k"} & set(steps):
            assert mean > 1 - 1e-5, name


def test_a_shared_coin_is_a_law_of_whole_texts():
    branches = np.log(np.array([[0.1, 0.2, 0.7], [0.5, 0.3, 0.2]]))
    for length in (2, 3, 8):
        laws = [shared_coin(branches[:, list(text)], 0.3, length) for text in itertools.product(range(3), repeat=5)]
        for ends in range(5):
            prefixes = np.array(laws).reshape((3,) * 5 + (5,))[..., ends]
            assert np.exp(prefixes).sum() / 3 ** (4 - ends) == pytest.approx(1)


def test_blocks_of_a_shared_coin_by_hand():
    branches = np.log(np.array([[0.1, 0.2, 0.7], [0.5, 0.3, 0.2]]))
    on, off = np.exp(branches)
    pair = [0.3 * on[i] * on[j] + 0.7 * off[i] * off[j] for i, j in ((0, 1), (1, 2))]
    single = [0.3 * on[i] + 0.7 * off[i] for i in range(3)]
    aligned = (pair[0] * single[2] + single[0] * pair[1]) / 2
    renewed = np.exp(e_process.renewed(branches, 0.3, 0.5)[-1])
    assert np.exp(shared_coin(branches, 0.3, 2)[-1]) == pytest.approx((aligned + renewed) / 2)
    half = np.exp(e_process.renewed(branches[:, :2], 0.3, 0.5)[-1])
    assert half == pytest.approx((pair[0] + single[0] * single[1]) / 2)


def test_the_mean_and_where_it_crossed():
    one, two = {"a": np.log([2.0, 8.0, 4.0]), "b": np.log([0.5, 0.5, 0.5])}, {"a": np.log([4.0])}
    found = combine([one, two], [3, 1], 0.25)
    np.testing.assert_allclose(np.exp(found.log_mean), [1.25, 4.25, 2.25, 8.25])
    assert (found.at, found.crossed, found.strongest) == (3, 1, "a")
    np.testing.assert_allclose(np.exp([found.logs["a"], found.logs["b"]]), [16, 0.5])
    assert combine([one, two], [3, 1], 0.01).crossed is None
    assert combine([], [], 0.01).log_e_value == 0


# --- the chains beside the claimed one ----------------------------------------------------------------------------


def test_orders_that_come_to_the_same_are_one_and_lacking_orders_none():
    both = {"temperature": {"value": 0.8}, "top_p": {"p": 0.9}}
    assert set(others(chains(**both).chain, ORDERS)) == {"temperature_x0.9", "temperature_x1.1", "order_mlx_lm"}
    again = {**ORDERS, "llama_cpp": MLX_LM}
    assert "order_mlx_lm+llama_cpp" in others(chains(**both).chain, again)
    assert not [name for name in others(chains(**XTC).chain, ORDERS) if name.startswith("order")]
    with_xtc = others(chains(**both, **XTC).chain, ORDERS)
    assert "order_hf" not in with_xtc
    assert with_xtc["no_xtc"].describe() == ["temperature(value=0.8)", "top_p(p=0.9)"]
    assert with_xtc["temperature_x0.9"].describe()[0] == f"temperature(value={0.8 * 0.9})"
    assert others(chains(order=["top_p"], top_p={"p": 0.5}).chain, {}) == {}


def test_relaxing_widens_every_filter():
    steps = {"top_k": {"k": 2}, "top_p": {"p": 0.9995}, "min_p": {"p": 5e-4}, "xtc": {"probability": 0.5}}
    loose = dict(relaxed(chains(**steps).chain).steps)
    assert loose["top_k"].k == 3
    assert loose["xtc"].threshold == pytest.approx(0.101)
    assert set(loose) == {"top_k", "xtc"}  # top_p and min_p are off by then


EDGES = {
    "min_p": ([0.5, 0.3, 0.15, 0.05], {"min_p": {"p": 0.3005}}, 2),
    "top_p": ([0.5, 0.3, 0.15, 0.05], {"top_p": {"p": 0.7995}}, 2),
    "top_k": ([0.5, 0.3, 0.15, 0.05], {"top_k": {"k": 2}}, 2),
    "xtc": ([0.5, 0.3, 0.1005, 0.0995], {"xtc": {"probability": 1.0, "threshold": 0.1}}, 1),
}


@pytest.mark.parametrize("name", EDGES)
def test_a_token_at_an_edge_is_counted_and_one_beyond_is_fatal(name):
    law, steps, edge = EDGES[name]
    inside, beyond = (3, 0) if name == "xtc" else (0, 3)
    found = audited(texts_of(chains(**steps), [[inside, edge, inside]]), iid(law))
    assert (found["verdict"], found["edge_tokens"], found["impossible_tokens"]) == ("passed", 1, 0)
    found = audited(texts_of(chains(**steps), [[inside, edge, inside, beyond]], ids=(0, 0, 0)), iid(law))
    assert (found["verdict"], found["named"], found["edge_tokens"]) == ("failed", found["named"], 1)
    first = found["first_impossible"]
    assert (first["prompt"], first["sample"], first["position"], first["id"]) == (0, 0, 6, beyond)
    assert (found["first_rejected_after"], found["log10_e_value"]) == (4, np.inf)
    assert (found["named"] in first["possible_under"]) != (found["named"] == "impossible_token")


def test_an_edge_costs_a_bounded_factor():
    law, steps, edge = EDGES["min_p"]
    for name, log in audited(texts_of(chains(**steps), [[edge]]), iid(law))["alternatives"].items():
        assert -6.1 < log < 6.4, name


# --- transforms -----------------------------------------------------------------------------------------------------


def test_transforms_of_a_right_text_are_uniform_and_of_a_wrong_one_are_not():
    right = scored(chains(), draw(P, 4000)[0], iid(P), iid(Q)).transforms
    assert set(right) == {"ids", "falling_p", "q_over_p"}
    for transform in right.values():
        found = uniformity([transform])
        assert found.ks_p > 1e-3
        assert abs(found.lag1_z) < 4
    wrong = scored(chains(), draw(Q, 4000)[0], iid(P), iid(Q)).transforms
    assert all(uniformity([transform]).ks_p < 1e-9 for transform in wrong.values())


def test_lag_1_sees_neighbours_within_a_text_only():
    rng = np.random.default_rng(1)
    steps = rng.random(2001)
    dependent = np.where(rng.random(2000) < 0.3, steps[:-1], rng.random(2000))
    copied = np.repeat(rng.random(1000), 2)
    found = uniformity([copied])
    assert found.lag1 == pytest.approx(0.5, abs=0.06)
    assert found.lag1_z > 10
    assert abs(uniformity([dependent]).lag1_z) < 4
    assert np.isnan(uniformity([copied[:1], copied[1:2]]).lag1_z)


def test_the_draws_of_the_transform_are_keyed_by_their_place():
    tokens = [0, 1, 2, 3] * 3
    first = scored(chains(), tokens, iid(P), seed=5).transforms["ids"]
    np.testing.assert_array_equal(first, scored(chains(), tokens, iid(P), seed=5).transforms["ids"])
    assert (first != scored(chains(), tokens, iid(P), seed=6).transforms["ids"]).all()
    begins, width = np.array([0, 0.4, 0.7, 0.9]), np.array(P)
    within = (first - np.tile(begins, 3)) / np.tile(width, 3)
    assert ((within >= -1e-6) & (within <= 1 + 1e-6)).all()
    assert len(set(np.round(within, 5))) == len(tokens)


# --- replay ---------------------------------------------------------------------------------------------------------


def test_chunks_change_nothing(monkeypatch):
    model, drafter = markov([[0.1, 0.2, 0.7], [0.5, 0.3, 0.2], [0.25, 0.25, 0.5]]), markov([[0.4, 0.4, 0.2]] * 3)
    claimed = chains(repetition={"penalty": 1.3}, presence={"penalty": 0.5, "window": 3}, xtc={"probability": 0.4})
    tokens = draw([1, 1, 1], 23)[0]
    whole = scored(claimed, tokens, model, drafter)
    monkeypatch.setattr(rows, "MOST_POSITIONS", 4)
    parts = scored(claimed, tokens, model, drafter)
    np.testing.assert_allclose(parts.p, whole.p, rtol=1e-6)
    np.testing.assert_allclose(parts.branches, whole.branches, rtol=1e-6)
    for name, row in whole.others.items():
        np.testing.assert_allclose(parts.others[name], row, rtol=1e-5)
    for name, transform in whole.transforms.items():
        np.testing.assert_allclose(parts.transforms[name], transform, atol=1e-6)


def test_a_row_that_is_no_distribution_is_named():
    broken = ToyModel("toy", np.array([[0.5, 0.5], [np.nan, 0.5]]), by_token)
    with pytest.raises(
        FailedCheckError, match="prompt 0, sample 0, position 3: the row of the relaxed chain sums to nan"
    ):
        audited(texts_of(chains(), [[1, 0, 0]]), broken)


# --- faults are named on toys -----------------------------------------------------------------------------------------

T = 2000


def shared_coins(count, block, seed=0):
    """Tokens of P under XTC whose coin holds for `block` of them."""
    rng = np.random.default_rng(seed)
    touched, whole = np.array([0, 0, 0.2, 0.1]) / 0.3, np.array(P)
    coins = np.repeat(rng.random(count // block + 1) < 0.5, block)[:count]
    return [[rng.choice(4, p=touched if coin else whole) for coin in coins]]


def powered(law, exponent):
    row = np.array(law) ** exponent
    return row / row.sum()


HOT = {"temperature": {"value": 2.0}, "top_p": {"p": 0.65}}
HOT_IN_MLX_LM_ORDER = powered([0.4, 0.3], 0.5)  # the tempered row keeps three ids
PEAKED = [0.7, 0.2, 0.07, 0.03]
FAULTS = {
    "colder than claimed": (PEAKED, lambda: draw(powered(PEAKED, 1.3), T), {}, "temperature_x0.9"),
    "hotter than claimed": (PEAKED, lambda: draw(powered(PEAKED, 0.75), T), {}, "p_power_0.9"),
    "another order": (P, lambda: draw(HOT_IN_MLX_LM_ORDER, T), HOT, "order_mlx_lm"),
    "no xtc": (P, lambda: draw(P, T), XTC, "no_xtc"),
    "one coin for two": (P, lambda: shared_coins(T, 2), XTC, "xtc_coin_of_2"),
    "one coin for four": (P, lambda: shared_coins(T, 4), XTC, "xtc_coin_of_4"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_faults_are_named(fault):
    law, tokens, steps, name = FAULTS[fault]
    found = audited(texts_of(chains(**steps), tokens()), iid(law))
    assert (found["verdict"], found["named"]) == ("failed", name)
    assert found["log10_e_value"] >= 6
    assert found["first_rejected_after"] < T


def test_a_shared_coin_shows_in_the_correlation_of_neighbours_alone():
    """F1 of the known faults: marginals are right, so a test of frequencies is blind."""
    wrong = audited(texts_of(chains(**XTC), shared_coins(T, 4)), iid(P))["uniformity"]
    right = audited(texts_of(chains(**XTC), shared_coins(T, 1)), iid(P))["uniformity"]
    assert wrong["xtc"]["lag1_z"] > 6
    assert abs(right["xtc"]["lag1_z"]) < 4
    assert wrong["ids"]["ks_p"] > 1e-4


def test_drawing_from_the_target_for_the_residual_is_seen_with_the_drafter_at_hand():
    from test_losslessness import ResampleFromTarget

    tokens = emitted(start(decoder(iid(P), iid(Q), ResampleFromTarget(), 4, max_tokens=T)))
    found = audited(texts_of(chains(), tokens), iid(P), iid(Q))
    assert found["verdict"] == "failed"
    assert found["named"] in ("ratio_power_+0.1", "ratio_power_+0.3", "q_share_0.3", "q_share_0.1")
    assert found["first_rejected_after"] < 1200


# --- right texts are quiet --------------------------------------------------------------------------------------------

MARKOV_P = [[0.1, 0.2, 0.4, 0.3], [0.5, 0.3, 0.1, 0.1], [0.25, 0.25, 0.4, 0.1], [0.3, 0.3, 0.3, 0.1]]
MARKOV_Q = [[0.4, 0.4, 0.1, 0.1], [0.1, 0.3, 0.5, 0.1], [0.6, 0.2, 0.1, 0.1], [0.1, 0.2, 0.3, 0.4]]
STEPS = {**XTC, "temperature": {"value": 1.3}, "top_p": {"p": 0.95}, "repetition": {"penalty": 1.1, "window": 4}}


@pytest.mark.parametrize("name", RULES)
def test_right_runs_are_rejected_no_oftener_than_they_may_be(name):
    """Ville: at alpha = .05 at most 5 % of right texts are ever rejected, here among 80."""
    texts, alpha = 80, 0.05
    claimed = chains(**STEPS)
    target, drafter = markov(MARKOV_P), markov(MARKOV_Q)
    parts = decoder(target, RULES[name] and drafter, RULES[name] or rule("sampler_match"), 3, sampler=claimed.chain)
    tokens = emitted(start(replace(parts, max_tokens=60, seed=4), samples=texts))
    rejected = 0
    for text in texts_of(claimed, tokens):
        found = audited((text,), target, drafter, alpha=alpha)
        assert found["edge_tokens"] == found["impossible_tokens"] == 0
        rejected += found["verdict"] == "failed"
    assert rejected <= binom.isf(1e-4, texts, alpha)
    together = audited(texts_of(claimed, tokens), target, drafter)
    assert together["verdict"] == "passed"
    for order in together["uniformity"].values():
        assert order["ks_p"] > 1e-4
        assert abs(order["lag1_z"]) < 4


# --- greedy -----------------------------------------------------------------------------------------------------------

GREEDY = {"temperature": {"value": 0}}
ROWS = [[0.1, 0.2, 0.7], [0.5, 0.4, 0.1], [0.3, 0.3001, 0.3999]]


def greedy_text(target, claimed, length=12):
    return emitted(start(decoder(target, None, "greedy_argmax", sampler=claimed.chain, max_tokens=length)))


def test_greedy_text_is_the_argmax_or_differs_with_its_gaps():
    target, claimed = markov(ROWS), chains(**GREEDY, repetition={"penalty": 1.2})
    (tokens,) = greedy_text(target, claimed)
    found = audited(texts_of(claimed, [tokens]), target)
    assert (found["verdict"], found["tokens"], found["greedy"]["differences"]) == ("passed", 12, 0)
    assert np.isnan(found["log10_e_value"])
    tokens[5] = (tokens[5] + 1) % 3
    found = audited(texts_of(claimed, [tokens]), target)
    first = found["greedy"]["first_difference"]
    assert (found["verdict"], found["named"]) == ("failed", "not_the_argmax")
    assert (first["position"], first["id"], first["argmax"]) == (7, tokens[5], (tokens[5] - 1) % 3)
    assert first["gap"] >= first["top_2_gap"] > 0


def test_gaps_are_those_of_the_logits_and_near_ties_are_edges():
    target, claimed = iid([0.3, 0.3003, 0.3997]), chains(**GREEDY)
    found = audited(texts_of(claimed, [[2, 0]]), target)["greedy"]["first_difference"]
    assert found["gap"] == pytest.approx(np.log(0.3997 / 0.3), rel=1e-5)
    assert found["top_2_gap"] == pytest.approx(np.log(0.3997 / 0.3003), rel=1e-5)
    tie = iid([0.3998, 0.4, 0.2002])
    found = audited(texts_of(claimed, [[1, 0, 1]]), tie)
    assert (found["verdict"], found["edge_tokens"], found["greedy"]["near_ties"]) == ("passed", 1, 1)


def test_nothing_emitted_is_unchecked():
    assert audited(texts_of(chains(), [[]]), iid(P))["verdict"] == "unchecked"


def test_texts_of_different_claims_stand_side_by_side():
    right = (
        *texts_of(chains(), draw(P, 50)),
        *texts_of(chains(**XTC), shared_coins(50, 1)),
        *texts_of(chains(**GREEDY), [[0, 0]]),
    )
    found = audited(right, iid(P))
    assert (found["verdict"], found["texts"], found["tokens"]) == ("passed", 3, 102)
    assert json.dumps(found)


def test_presets_are_the_orders_of_the_option():
    listed = yaml.safe_load((conf_dir() / "task" / "audit.yaml").read_text())["orders"]
    presets = {path.stem: yaml.safe_load(path.read_text())["order"] for path in (conf_dir() / "sampler").glob("*.yaml")}
    assert listed == presets
    for order in listed.values():
        SamplerChain.from_config({"order": order})
