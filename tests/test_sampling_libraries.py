"""The presets against the libraries they are named after, row by row, and where mlx-lm is wrong on purpose.

mlx-lm runs; transformers' warpers (no torch here) and llama.cpp's samplers are restated in numpy.
"""

import functools
import math

import specfw
from specfw.config.composing import conf_dir
from specfw.distribution import Dense, Survivors
from specfw.registry import component, names
from specfw.sampling.chain import SamplerChain
from specfw.types import History

import mlx.core as mx
import numpy as np
import pytest
import yaml
from mlx_lm import sample_utils

PRESETS = ("seed", "mlx_lm", "llama_cpp", "hf")
V = 97


@pytest.fixture(autouse=True)
def _no_compilation():
    """mlx-lm compiles its filters, and on a CPU that calls a C++ compiler for seconds."""
    mx.disable_compile()
    yield
    mx.enable_compile()


@functools.cache
def written(name):
    """The values of a preset's file."""
    values = yaml.safe_load((conf_dir() / "sampler" / f"{name}.yaml").read_text())
    return {key: value for key, value in values.items() if key != "defaults"}


def preset(name, **strengths):
    base = written(name)
    steps = {key: {**base.get(key, {}), **strengths.get(key, {})} for key in (base.keys() | strengths) - {"order"}}
    return SamplerChain.from_config({"order": base["order"], **steps})


def probs(chain, logits, tokens=None, coin=None):
    tokens = np.zeros(1, dtype=np.int64) if tokens is None else np.array(tokens)
    history = History((tokens,), np.array([len(tokens)]), mx.zeros((1, 0), dtype=mx.int32))
    rows = []
    for place, row in enumerate(np.float32(logits)):
        coins = None if coin is None else mx.array([[coin[place]]])
        law = chain.distribution(mx.array(row)[None, None], history, coins)
        law = law.aligned(Dense(mx.zeros((1, 1, len(row))))) if isinstance(law, Survivors) else law.probs
        rows.append(np.array(law)[0, 0])
    return np.stack(rows)


def softmax(values):
    weights = np.exp(np.float64(values) - np.max(values, axis=-1, keepdims=True))
    return weights / weights.sum(axis=-1, keepdims=True)


def random_rows(rows=20, vocab=V, seed=1):
    return np.random.default_rng(seed).normal(size=(rows, vocab)).astype(np.float32) * np.float32(2)


@pytest.mark.parametrize("name", PRESETS)
def test_a_preset_sets_order_and_conventions_and_no_strength(name):
    for step in written(name).keys() - {"order"}:
        assert component("filter", step).strength not in written(name)[step]
    assert preset(name).steps == ()
    composed = specfw.compose([f"sampler={name}", "pair=iid"])["sampler"]
    assert composed.keys() == {"order", *names("filter")}
    assert SamplerChain.from_config(composed).order == tuple(written(name)["order"])
    assert SamplerChain.from_config(composed).steps == ()


def test_the_default_order_lists_every_step():
    order = written("seed")["order"]
    assert sorted(order) == list(names("filter"))
    filters = [name for name in order if name in ("temperature", "top_k", "top_p", "min_p")]
    assert filters == ["temperature", "top_k", "top_p", "min_p"]


# mlx-lm


def mlx_lm(logits, tokens=(), temperature=1.0, processors=None, **filters):
    """What mlx-lm's own functions make of rows, one call a row as in its plain decoding."""
    rows = []
    for row in logits:
        values = mx.array(row)[None] + 0
        for processor in sample_utils.make_logits_processors(**(processors or {})):
            values = processor(mx.array(list(tokens)), values)
        values = values - mx.logsumexp(values, keepdims=True)
        if "top_p" in filters:
            values = sample_utils.apply_top_p(values, filters["top_p"])
        if "min_p" in filters:
            values = sample_utils.apply_min_p(values, filters["min_p"], filters.get("min_tokens_to_keep", 1))
        if "xtc" in filters:
            values = sample_utils.apply_xtc(values, 1.0, filters["xtc"], filters.get("special", []))
        if "top_k" in filters:
            values = sample_utils.apply_top_k(values, filters["top_k"])
        rows.append(np.array(values)[0])
    return softmax(np.stack(rows) / temperature)


FILTERS = [
    ({"top_k": 1}, {"top_k": {"k": 1}}),
    ({"top_k": 5}, {"top_k": {"k": 5}}),
    ({"top_k": V - 1}, {"top_k": {"k": V - 1}}),
    ({"top_p": 0.9}, {"top_p": {"p": 0.9}}),
    ({"top_p": 0.05}, {"top_p": {"p": 0.05}}),
    ({"min_p": 0.1}, {"min_p": {"p": 0.1}}),
    ({"min_p": 1.0, "min_tokens_to_keep": 4}, {"min_p": {"p": 1.0, "min_tokens_to_keep": 4}}),
    ({"xtc": 0.05}, {"xtc": {"probability": 1.0, "threshold": 0.05}}),
    ({"xtc": 0.0, "special": [3, 50]}, {"xtc": {"probability": 1.0, "threshold": 0.0, "excluded": [3, 50]}}),
    ({"top_p": 0.95, "min_p": 0.02, "xtc": 0.1, "top_k": 9}, None),
]


@pytest.mark.parametrize(("theirs", "ours"), FILTERS)
@pytest.mark.parametrize("temperature", [0.5, 1.0, 1.7])
def test_filters_agree_with_mlx_lm(theirs, ours, temperature):
    ours = ours or {
        "top_p": {"p": 0.95},
        "min_p": {"p": 0.02},
        "xtc": {"probability": 1.0, "threshold": 0.1},
        "top_k": {"k": 9},
    }
    logits = random_rows()
    chain = preset("mlx_lm", temperature={"value": temperature}, **ours)
    expected = mlx_lm(logits, temperature=temperature, **theirs)
    np.testing.assert_allclose(probs(chain, logits, coin=np.zeros(20)), expected, atol=2e-6)


def test_xtc_agrees_with_mlx_lm_when_the_coin_says_no():
    logits = random_rows()
    chain = preset("mlx_lm", xtc={"probability": 0.5, "threshold": 0.05})
    np.testing.assert_allclose(probs(chain, logits, coin=np.full(20, 0.5)), mlx_lm(logits), atol=2e-6)


def test_top_p_keeps_ties_as_mlx_lm_does():
    logits = np.log(np.array([[0.1, 0.4, 0.2, 0.2, 0.1], [0.2] * 5], dtype=np.float32))
    expected = mlx_lm(logits, top_p=0.5)
    np.testing.assert_allclose(probs(preset("mlx_lm", top_p={"p": 0.5}), logits), expected, atol=2e-6)


PROCESSORS = [
    ({"repetition_penalty": 1.3}, {"repetition": {"penalty": 1.3}}),
    ({"presence_penalty": 0.8}, {"presence": {"penalty": 0.8}}),
    ({"frequency_penalty": 0.4}, {"frequency": {"penalty": 0.4}}),
    ({"logit_bias": {3: 2.0, 9: -100.0}}, {"bias": {"values": {3: 2.0, 9: -100.0}}}),
    (
        {
            "logit_bias": {3: 2.0},
            "repetition_penalty": 1.5,
            "presence_penalty": -0.5,
            "frequency_penalty": 0.3,
        },
        {
            "bias": {"values": {3: 2.0}},
            "repetition": {"penalty": 1.5},
            "presence": {"penalty": -0.5},
            "frequency": {"penalty": 0.3},
        },
    ),
]


@pytest.mark.parametrize(("theirs", "ours"), PROCESSORS)
@pytest.mark.parametrize("length", [1, 7, 20, 21, 60])
def test_processors_agree_with_mlx_lm(theirs, ours, length):
    tokens, logits = np.random.default_rng(length).integers(0, 12, size=length), random_rows(4)
    chain = preset("mlx_lm", temperature={"value": 0.8}, **ours)
    expected = mlx_lm(logits, tokens.tolist(), temperature=0.8, processors=theirs)
    np.testing.assert_allclose(probs(chain, logits, tokens), expected, atol=2e-6)


def test_mlx_lm_draws_one_xtc_coin_a_call_and_ours_one_a_position():
    # known fault F1: the rows of one verified block are touched all together or not at all
    rows = mx.broadcast_to(mx.log(mx.array([0.4, 0.3, 0.2, 0.1])), (5, 4))
    touched = [np.array(sample_utils.apply_xtc(rows, 0.5, 0.15, []))[:, 0] == -math.inf for _ in range(40)]
    assert all(calls.all() or not calls.any() for calls in touched)
    chain = preset("mlx_lm", xtc={"probability": 0.5, "threshold": 0.15})
    ours = np.array(chain.distribution(rows[None], None, mx.array([[0.1, 0.9, 0.2, 0.8, 0.3]])).probs)[0, :, 0] == 0
    assert ours.tolist() == [True, False, True, False, True]


def test_mlx_lm_penalties_write_into_the_callers_logits_and_ours_do_not():
    # known fault F10: evaluating p twice on one row halves it twice
    theirs = mx.array([[1.0, 1.0, 1.0]])
    (processor,) = sample_utils.make_logits_processors(repetition_penalty=2.0)
    assert [np.array(processor(mx.array([1]), theirs)).tolist() for _ in range(2)] == [[[1, 0.5, 1]], [[1, 0.25, 1]]]
    ours, chain = np.ones((1, 3), dtype=np.float32), preset("mlx_lm", repetition={"penalty": 2.0})
    once, twice = (probs(chain, ours, [1]) for _ in range(2))
    np.testing.assert_array_equal(once, twice)
    np.testing.assert_allclose(once, softmax([[1, 0.5, 1]]), atol=1e-6)


def test_the_processor_of_mlx_lm_sees_what_it_is_given_and_ours_the_whole_text():
    # known fault F2: its speculative loop hands processors only the last prompt token
    logits, prompt = random_rows(1), [3, 5, 7]
    theirs = {"repetition_penalty": 1.8}
    ours = probs(preset("mlx_lm", repetition={"penalty": 1.8}), logits, prompt)
    np.testing.assert_allclose(ours, mlx_lm(logits, prompt, processors=theirs), atol=2e-6)
    assert np.abs(ours - mlx_lm(logits, prompt[-1:], processors=theirs)).max() > 1e-3


def test_where_mlx_lm_refuses_or_overflows_ours_has_an_answer():
    # known fault F11
    logits = random_rows(2)
    for k in (V, V + 1):
        with pytest.raises(ValueError, match="top_k"):
            sample_utils.apply_top_k(mx.array(logits), k)
        np.testing.assert_allclose(probs(preset("mlx_lm", top_k={"k": k}), logits), softmax(logits), atol=2e-6)
    assert not np.isfinite(np.array(mx.array(logits) * (1.0 / 1e-40))).all()
    cold = probs(preset("mlx_lm", temperature={"value": 1e-40}), logits)
    assert np.array_equal(cold.argmax(axis=-1), logits.argmax(axis=-1))
    assert (cold.max(axis=-1) == 1).all()


# transformers


def hf(logits, tokens=(), penalty=1.0, temperature=1.0, top_k=0, top_p=1.0, min_p=0.0):
    scores = np.float64(logits)
    seen = np.isin(np.arange(scores.shape[-1]), tokens)
    scores = np.where(seen, np.where(scores < 0, scores * penalty, scores / penalty), scores) / temperature
    if top_k:
        edge = -np.sort(-scores, axis=-1)[:, min(top_k, scores.shape[-1]) - 1 :][:, :1]
        scores = np.where(scores < edge, -np.inf, scores)
    if top_p < 1:
        order = np.argsort(scores, axis=-1, kind="stable")
        below = np.cumsum(np.take_along_axis(softmax(scores), order, axis=-1), axis=-1) <= 1 - top_p
        below[:, -1] = False
        removed = np.zeros_like(below)
        np.put_along_axis(removed, order, below, axis=-1)
        scores = np.where(removed, -np.inf, scores)
    if min_p:
        p = softmax(scores)
        scores = np.where(p < min_p * p.max(axis=-1, keepdims=True), -np.inf, scores)
    return softmax(scores)


@pytest.mark.parametrize(
    "strengths",
    [
        {"temperature": 0.6},
        {"top_k": 7},
        {"top_k": V + 3},
        {"top_p": 0.8},
        {"min_p": 0.1},
        {"penalty": 1.4},
        {"penalty": 0.7, "temperature": 1.3, "top_k": 40, "top_p": 0.9, "min_p": 0.03},
    ],
)
def test_the_hf_preset_agrees_with_transformers(strengths):
    logits, tokens = random_rows(), np.random.default_rng(4).integers(0, V, size=80)
    fields = {"penalty": "repetition", "temperature": "temperature"}
    ours = {
        fields.get(name, name): {component("filter", fields.get(name, name)).strength: value}
        for name, value in strengths.items()
    }
    np.testing.assert_allclose(probs(preset("hf", **ours), logits, tokens), hf(logits, tokens, **strengths), atol=2e-6)


def test_the_hf_preset_keeps_ties_at_the_edge_of_top_k():
    logits = np.array([[0.0, 2.0, 1.0, 1.0, 1.0]], dtype=np.float32)
    np.testing.assert_allclose(probs(preset("hf", top_k={"k": 2}), logits), hf(logits, top_k=2), atol=2e-6)


def test_what_transformers_does_not_have_is_refused_in_its_order():
    with pytest.raises(ValueError, match=r"^sampler\.order must list every configured step, xtc is missing"):
        preset("hf", xtc={"probability": 0.5})


# llama.cpp


def llama_cpp(row, tokens, strengths):
    """Its chain on one row: candidates sorted once, each sampler cutting the list."""
    repeat, frequency, presence, top_k, top_p, min_p, threshold, temperature = strengths
    count = np.bincount(tokens[-64:], minlength=len(row))
    row = np.where(count > 0, np.where(row <= 0, row * repeat, row / repeat), row)
    row = row - count * frequency - (count > 0) * presence
    order = np.argsort(-row, kind="stable")[:top_k]
    reached = np.cumsum(softmax(row[order]))
    order = order[: int(np.argmax(reached >= top_p)) + 1]
    order = order[row[order] >= row[order[0]] + math.log(min_p)]
    last = int((softmax(row[order]) >= threshold).sum()) - 1
    order = order[max(last, 0) :]
    law = np.zeros(len(row))
    law[order] = softmax(row[order] / temperature)
    return law


def test_the_llama_cpp_preset_agrees_with_its_chain():
    logits, tokens = random_rows(), np.random.default_rng(5).integers(0, 30, size=100)
    values = (1.2, 0.1, 0.3, 20, 0.95, 0.02, 0.12, 0.8)
    keys = ("repetition", "frequency", "presence", "top_k", "top_p", "min_p", "xtc", "temperature")
    strengths = {name: {component("filter", name).strength: value} for name, value in zip(keys, values, strict=True)}
    strengths["xtc"] = {"probability": 1.0, "threshold": 0.12}
    expected = np.stack([llama_cpp(np.float64(row), tokens, values) for row in logits])
    found = probs(preset("llama_cpp", **strengths), logits, tokens, coin=np.zeros(20))
    np.testing.assert_allclose(found, expected, atol=2e-6)
