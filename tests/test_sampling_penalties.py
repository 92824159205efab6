"""Bias from the past: repetition, frequency, presence and DRY against plain loops over plain lists."""

import itertools

from specfw.distribution import Dense, Survivors
from specfw.sampling.dry import MATCH_LIMIT
from specfw.types import History

import kit
import mlx.core as mx
import numpy as np
import pytest

V = 11
SHAPES = [(0, 1), (1, 1), (3, 1), (3, 4), (5, 6), (5, 2)]  # (D drafts, T positions): drafter style and target style
WINDOWS = (0, 1, 3, 7, 1000)


def lazily(tokens):
    """The same tokens as the end of a graph that has not been computed."""
    return mx.maximum(mx.array(tokens.astype(np.int32)) + 1, 0) - 1


def scene(seed, drafts, lengths=(9, 4)):
    draws = np.random.default_rng(seed)
    committed = tuple(draws.integers(0, 5, size=length) for length in lengths)
    tokens = draws.integers(0, 5, size=(len(lengths), drafts))
    prompts = np.array([length // 2 for length in lengths])
    return History(committed, prompts, lazily(tokens)), tokens


def seen_by(history, tokens, row, place, positions, window, include_prompt):
    """What position `place` of `positions` looks back at, as a list."""
    drafts = tokens.shape[1] - positions + 1 + place
    text = [*history.committed[row].tolist(), *tokens[row, :drafts].tolist()]
    start = max(0, len(text) - window) if window else 0
    if not include_prompt:
        start = max(start, int(history.prompt_lengths[row]))
    return text[start:]


def softmax(values):
    weights = np.exp(values - values.max(axis=-1, keepdims=True))
    return weights / weights.sum(axis=-1, keepdims=True)


def laws(history, logits, order=kit.ORDER, **steps):
    rows = kit.chain(order=order, **steps).distribution(mx.array(logits), history, None)
    return np.array(rows.aligned(Dense(mx.zeros(logits.shape))) if isinstance(rows, Survivors) else rows.probs)


def expected(history, tokens, logits, penalise, window=0, include_prompt=True):
    out = np.float64(logits)
    for row, place in np.ndindex(*logits.shape[:2]):
        text = seen_by(history, tokens, row, place, logits.shape[1], window, include_prompt)
        for token in range(logits.shape[2]):
            out[row, place, token] = penalise(out[row, place, token], token, text)
    return softmax(out)


def logits_for(positions, seed=0, vocab=V):
    return np.random.default_rng(seed).normal(size=(2, positions, vocab)).astype(np.float32) * 2


PENALTIES = {
    "repetition": (1.7, lambda x, token, text: x if token not in text else x * 1.7 if x < 0 else x / 1.7),
    "frequency": (0.6, lambda x, token, text: x - 0.6 * text.count(token)),
    "presence": (-0.9, lambda x, token, text: x + 0.9 * (token in text)),
}


@pytest.mark.parametrize("name", PENALTIES)
@pytest.mark.parametrize(("drafts", "positions"), SHAPES)
def test_penalties_see_what_stands_before_each_position(name, drafts, positions):
    penalty, rule = PENALTIES[name]
    logits = logits_for(positions)
    for (seed, window), include_prompt in itertools.product(enumerate(WINDOWS), (True, False)):
        history, tokens = scene(seed, drafts)
        fields = {"penalty": penalty, "window": window, "include_prompt": include_prompt}
        found = laws(history, logits, **{name: fields})
        reference = expected(history, tokens, logits, rule, window, include_prompt)
        np.testing.assert_allclose(found, reference, atol=2e-6, err_msg=f"{window=} {include_prompt=}")


@pytest.mark.parametrize("name", PENALTIES)
def test_penalties_act_on_survivors(name):
    penalty, rule = PENALTIES[name]
    logits, (history, tokens) = logits_for(4, vocab=40), scene(1, 3)
    found = laws(history, logits, order=["top_k", name], top_k={"k": 5}, **{name: {"penalty": penalty}})
    kept = np.argsort(np.argsort(-logits, axis=-1), axis=-1) < 5
    reference = np.where(kept, expected(history, tokens, logits, rule), 0)
    np.testing.assert_allclose(found, reference / reference.sum(axis=-1, keepdims=True), atol=2e-6)


@pytest.mark.parametrize("name", ["repetition", "frequency", "presence", "dry"])
def test_nothing_written_yet_penalises_nothing(name):
    logits = logits_for(1)
    history = History((np.zeros(0, dtype=np.int64),) * 2, np.zeros(2, dtype=np.int64), mx.zeros((2, 0), dtype=mx.int32))
    strength = {"multiplier": 2.0} if name == "dry" else {"penalty": 2.0}
    np.testing.assert_allclose(laws(history, logits, **{name: strength}), softmax(np.float64(logits)), atol=1e-6)


def test_an_empty_text_with_drafts_counts_the_drafts():
    tokens = np.array([[1, 2, 1, 2]] * 2)
    history = History((np.zeros(0, dtype=np.int64),) * 2, np.zeros(2, dtype=np.int64), lazily(tokens))
    logits = logits_for(5)
    found = laws(history, logits, frequency={"penalty": 0.6})
    np.testing.assert_allclose(found, expected(history, tokens, logits, PENALTIES["frequency"][1]), atol=2e-6)
    found = laws(history, logits, dry={"multiplier": 0.6})
    reference = expected(history, tokens, logits, dry_rule(0.6, 1.75, 2, ()))
    np.testing.assert_allclose(found, reference, atol=2e-6)


@pytest.mark.parametrize("name", PENALTIES)
def test_ids_beyond_the_vocabulary_are_passed_over(name):
    penalty, rule = PENALTIES[name]
    tokens = np.array([[V, 3, V + 1], [V - 1, V, V + 90]])
    history = History((np.array([V, V + 5, 2]), np.array([V + 1])), np.array([1, 1]), lazily(tokens))
    found = laws(history, logits_for(4), **{name: {"penalty": penalty}})
    np.testing.assert_allclose(found, expected(history, tokens, logits_for(4), rule), atol=2e-6)


@pytest.mark.parametrize("sign", [-2.0, 2.0])
def test_greedy_decoding_feels_a_penalty_as_plain_decoding_does(sign):
    # known faults B52, B53: position by position, with the drafts before it
    history, tokens = scene(3, 4)
    logits = logits_for(5)
    found = laws(history, logits, temperature={"value": 0}, frequency={"penalty": sign})
    reference = expected(history, tokens, logits, lambda x, token, text: x - sign * text.count(token))
    assert np.array_equal(found.argmax(axis=-1), reference.argmax(axis=-1))
    assert (found.max(axis=-1) == 1).all()
    assert not np.array_equal(found.argmax(axis=-1), logits.argmax(axis=-1))


# DRY


def dry_rule(multiplier, base, allowed_length, breakers):
    """The definition, token by token: how long a repeat would `token` extend?"""

    def penalise(x, token, text):
        longest = 0
        if token in breakers:
            return x
        for end in range(len(text) - 1):
            if text[end + 1] != token:
                continue
            length = 0
            while length <= end and text[end - length] == text[-1 - length] and text[end - length] not in breakers:
                length += 1
            longest = max(longest, min(length, MATCH_LIMIT))
        return x - multiplier * base ** (longest - allowed_length) if longest >= allowed_length else x

    return penalise


@pytest.mark.parametrize(("drafts", "positions"), SHAPES)
@pytest.mark.parametrize("breakers", [(), (0,), (1, 3, 10)])
def test_dry_is_its_definition(drafts, positions, breakers):
    logits = logits_for(positions)
    for (seed, window), include_prompt, allowed in itertools.product(enumerate(WINDOWS), (True, False), (1, 2, 3)):
        draws = np.random.default_rng(seed)
        committed = tuple(draws.integers(0, 3, size=length) for length in (40, 13))
        tokens = draws.integers(0, 3, size=(2, drafts))
        history = History(committed, np.array([20, 5]), lazily(tokens))
        fields = {"multiplier": 0.3, "base": 1.4, "allowed_length": allowed, "breakers": breakers}
        found = laws(history, logits, dry={**fields, "window": window, "include_prompt": include_prompt})
        rule = dry_rule(0.3, 1.4, allowed, breakers)
        reference = expected(history, tokens, logits, rule, window, include_prompt)
        np.testing.assert_allclose(found, reference, atol=2e-6, err_msg=f"{window=} {include_prompt=} {allowed=}")


@pytest.mark.parametrize("length", [MATCH_LIMIT - 1, MATCH_LIMIT, MATCH_LIMIT + 1, 3 * MATCH_LIMIT])
def test_dry_counts_a_match_up_to_its_limit(length):
    stretch = np.random.default_rng(0).permutation(1000)[:length] + 10
    text = np.concatenate([[1], stretch, [5, 2], stretch])
    history = History((text,), np.array([0]), mx.zeros((1, 0), dtype=mx.int32))
    found = laws(history, np.zeros((1, 1, 1100)), dry={"multiplier": 0.001, "base": 1.1, "allowed_length": 2})[0, 0]
    penalty = 0.001 * 1.1 ** (min(length, MATCH_LIMIT) - 2)
    np.testing.assert_allclose(np.log(found[0] / found[5]), penalty, rtol=1e-3)
    assert (np.delete(found, 5) == found[0]).all()


def test_dry_bans_where_its_penalty_leaves_float32():
    history = History((np.array([1, 2, 3, 4, 1, 2, 3]),), np.array([0]), mx.zeros((1, 0), dtype=mx.int32))
    found = laws(history, np.zeros((1, 1, V)), dry={"multiplier": 1e30, "base": 1e30})[0, 0]
    np.testing.assert_allclose(found, (np.arange(V) != 4) / (V - 1), atol=1e-6)


def test_dry_on_survivors():
    logits, (history, tokens) = logits_for(4, vocab=40), scene(2, 3, (30, 12))
    found = laws(history, logits, order=["top_k", "dry"], top_k={"k": 5}, dry={"multiplier": 0.8, "allowed_length": 1})
    kept = np.argsort(np.argsort(-logits, axis=-1), axis=-1) < 5
    reference = np.where(kept, expected(history, tokens, logits, dry_rule(0.8, 1.75, 1, ())), 0)
    np.testing.assert_allclose(found, reference / reference.sum(axis=-1, keepdims=True), atol=2e-6)
