"""Every filter against its definition in plain numpy: sets, ties, forms, boundaries, large vocabularies."""

import math

from specfw.distribution import Dense, Survivors
from specfw.randomness import Noise
from specfw.sampling.selection import first, largest, nucleus, top

import kit
import mlx.core as mx
import numpy as np
import pytest

SIZES = (32768, 32769)


def law(logits, coin=None, **steps):
    return kit.chain(**steps).distribution(mx.array(logits)[None], None, None if coin is None else mx.array(coin)[None])


def dense(logits, coin=None, **steps):
    rows = law(logits, coin, **steps)
    return np.array(
        rows.aligned(Dense(mx.zeros((1, *np.shape(logits))))) if isinstance(rows, Survivors) else rows.probs
    )[0]


def softmax(logits):
    weights = np.exp(np.float64(logits) - np.max(logits, axis=-1, keepdims=True))
    return weights / weights.sum(axis=-1, keepdims=True)


def ranks(values):
    """Place of every entry when values fall and, among equals, ids rise."""
    order = np.argsort(-values, axis=-1, kind="stable")
    return np.argsort(order, axis=-1, kind="stable")


def only(kept, logits):
    weights = np.where(kept, softmax(logits), 0)
    return weights / weights.sum(axis=-1, keepdims=True)


def random_rows(vocab, rows=3, seed=0, spread=2.0):
    return np.random.default_rng(seed).normal(size=(rows, vocab)).astype(np.float32) * np.float32(spread)


# selection


@pytest.mark.parametrize(("width", "count"), [(7, 1), (600, 2), (5000, 3), (5000, 64), (150_000, 2), (1000, 999)])
@pytest.mark.parametrize("levels", [1, 2, 5, None])
def test_largest_takes_the_lowest_places_among_equals(width, count, levels):
    draws = np.random.default_rng(width + count)
    values = draws.normal(size=(3, width)) if levels is None else draws.integers(0, levels, size=(3, width))
    values = values.astype(np.float32)
    places = np.array(largest(mx.array(values), count))
    assert (np.diff(places, axis=-1) > 0).all()
    expected = np.argsort(-values, axis=-1, kind="stable")[:, :count]
    assert np.array_equal(places, np.sort(expected, axis=-1))
    assert np.array_equal(np.array(top(mx.array(values), count)), ranks(values) < count)


def test_largest_never_leaves_the_row():
    for values in (np.full((1, 1001), math.nan), np.full((1, 1001), -math.inf)):
        places = np.array(largest(mx.array(values.astype(np.float32)), 3))
        assert (places < 1001).all()


def test_zeros_of_either_sign_are_equal():
    values = mx.array([[-0.0, 1.0, 0.0, -0.0]])
    assert np.array(largest(values, 2)).tolist() == [[0, 1]]


@pytest.mark.parametrize("width", [1, 2, 511, 512, 513, 4097, 20_000])
@pytest.mark.parametrize("levels", [1, 3, None])
def test_nucleus_is_the_smallest_that_holds_the_mass(width, levels):
    draws = np.random.default_rng(width)
    # a narrow spread: an entry below 1e-7 of the mass is beyond what float32 sums can tell
    values = draws.normal(size=(2, width)) / 2 if levels is None else draws.integers(0, levels, size=(2, width))
    probs = softmax(values).astype(np.float32)
    falling = -np.sort(-probs.astype(np.float64), axis=-1)
    reached = np.cumsum(falling, axis=-1)
    for size in {1, 2, width // 3 + 1, width}:
        if size > width:
            continue
        # half way into the last entry that is needed, so that rounding cannot decide
        mass = float(reached[0, size - 1] - falling[0, size - 1] / 2)
        edge, count = nucleus(mx.array(probs), mass)
        expected = (reached - falling < mass).sum(axis=-1)
        assert np.array(count)[0, 0] == size
        assert abs(np.array(count)[1, 0] - expected[1]) <= (levels is not None)
        kept = np.array(first(mx.array(probs), edge, count))[0]
        assert np.array_equal(kept, ranks(probs)[0] < size)


# temperature


@pytest.mark.parametrize("value", [0.1, 0.7, 1.0, 1.5, 100.0])
def test_temperature_divides(value):
    logits = random_rows(50)
    np.testing.assert_allclose(dense(logits, temperature={"value": value}), softmax(logits / value), atol=1e-6)


@pytest.mark.parametrize("value", [1e-300, 1e-40, 1e-30, 1e-8])
def test_a_tiny_temperature_is_the_maximum_and_nothing_overflows(value):
    logits = np.array([[3.0, -1e5, 4.0, -math.inf, 4.0], [1e30, 0.0, 1e29, -1e30, 2.0]], dtype=np.float32)
    expected = [[0, 0, 0.5, 0, 0.5], [1, 0, 0, 0, 0]]
    np.testing.assert_array_equal(dense(logits, temperature={"value": value}), expected)


@pytest.mark.parametrize("value", [1e30, 1e38, 1e300])
def test_a_huge_temperature_is_uniform_on_what_is_left(value):
    logits = np.array([[3.0, -1e5, 4.0, -math.inf, 4.0]], dtype=np.float32)
    np.testing.assert_allclose(dense(logits, temperature={"value": value}), [[0.25, 0.25, 0.25, 0, 0.25]])


# top_k


@pytest.mark.parametrize("vocab", [1, 2, 8, 16, 17, 1000])
def test_top_k_at_every_boundary(vocab):
    logits = random_rows(vocab)
    for k in sorted({1, 2, vocab // 8, vocab // 8 + 1, vocab - 1, vocab, vocab + 1, 2**40} - {0}):
        rows = law(logits, top_k={"k": k}, temperature={"value": 0.5})
        expected = only(ranks(logits) < k, logits / 0.5)
        np.testing.assert_allclose(dense(logits, top_k={"k": k}, temperature={"value": 0.5}), expected, atol=1e-6)
        assert isinstance(rows, Survivors) == (k * 8 <= vocab or k == 1)


def test_top_k_keeps_exactly_k_lowest_ids_first():
    logits = [[0.0, 2.0, 1.0, 1.0, 1.0, -1.0], [1.0] * 6]
    np.testing.assert_allclose((dense(logits, top_k={"k": 3}) > 0), [[0, 1, 1, 1, 0, 0], [1, 1, 1, 0, 0, 0]])
    kept = dense(logits, top_k={"k": 3, "ties": "keep"}) > 0
    np.testing.assert_allclose(kept, [[0, 1, 1, 1, 1, 0], [1] * 6])


@pytest.mark.parametrize("steps", [{"top_p": {"p": 0.6}}, {"min_p": {"p": 0.3}}, {"temperature": {"value": 2.0}}])
def test_survivors_and_dense_rows_are_one_law(steps):
    # 63 of 504 ids survive with their ids, 64 of 504 stay dense: all but the first 63 are made impossible
    logits = random_rows(504)
    impossible = np.where(ranks(logits) < 63, logits, -1e9)
    sparse, full = law(logits, top_k={"k": 63}, **steps), law(impossible, top_k={"k": 64}, **steps)
    assert isinstance(sparse, Survivors)
    assert isinstance(full, Dense)
    ids = np.array(sparse.ids)
    assert (np.diff(ids, axis=-1) > 0).all()
    np.testing.assert_allclose(np.array(full.aligned(sparse)), np.array(sparse.probs), atol=1e-6)


def test_a_second_truncation_acts_on_survivors():
    logits = random_rows(400)
    rows = kit.chain(order=["top_k", "top_p", "min_p"], top_k={"k": 40}, top_p={"p": 0.5}, min_p={"p": 0.2})
    kept = ranks(logits) < 40
    probs = only(kept, logits)
    falling = -np.sort(-probs, axis=-1)
    count = (np.cumsum(falling, axis=-1) - falling < 0.5).sum(axis=-1, keepdims=True)
    kept &= (ranks(logits) < count) & (probs >= 0.2 * probs.max(axis=-1, keepdims=True))
    found = rows.distribution(mx.array(logits)[None], None, None)
    assert found.probs.shape == (1, 3, 40)
    np.testing.assert_allclose(np.array(found.aligned(Dense(mx.zeros((1, 3, 400)))))[0], only(kept, logits), atol=1e-6)


# top_p and min_p


@pytest.mark.parametrize("vocab", [5, 700, *SIZES])
@pytest.mark.parametrize("share", [0.1, 0.5, 0.9])
def test_top_p_keeps_the_nucleus(vocab, share):
    logits = random_rows(vocab, rows=1, spread=0.5)
    probs = softmax(logits)
    falling = -np.sort(-probs, axis=-1)
    size = max(1, int(share * vocab))
    p = float(np.cumsum(falling, axis=-1)[0, size - 1] - falling[0, size - 1] / 2)
    found = dense(logits, top_p={"p": p})
    assert np.array_equal(found > 0, ranks(logits) < size)
    np.testing.assert_allclose(found, only(ranks(logits) < size, logits), atol=1e-6)


def test_top_p_ties_at_the_edge():
    logits = np.log([[0.1, 0.4, 0.2, 0.2, 0.1], [0.2] * 5])
    assert (dense(logits, top_p={"p": 0.5}) > 0).tolist() == [[0, 1, 1, 0, 0], [1, 1, 1, 0, 0]]
    assert (dense(logits, top_p={"p": 0.5, "ties": "keep"}) > 0).tolist() == [[0, 1, 1, 1, 0], [1] * 5]


@pytest.mark.parametrize("p", [5e-324, 1e-45, 1e-9])
def test_a_tiny_p_keeps_one_id(p):
    logits = np.array([[1.0, 3.0, 3.0, 2.0]], dtype=np.float32)
    assert dense(logits, top_p={"p": p}).tolist() == [[0, 1, 0, 0]]


@pytest.mark.parametrize("vocab", [40, 5000])
def test_a_p_just_below_one_loses_nothing_that_float32_can_see(vocab):
    np.testing.assert_allclose(
        dense(random_rows(vocab), top_p={"p": 1 - 1e-16}), softmax(random_rows(vocab)), atol=1e-6
    )


@pytest.mark.parametrize("vocab", [5, 700, *SIZES])
@pytest.mark.parametrize("p", [1e-6, 0.05, 0.5, 1.0])
def test_min_p_keeps_what_is_near_the_top(vocab, p):
    logits = random_rows(vocab)
    kept = np.float64(logits) - logits.max(axis=-1, keepdims=True) >= math.log(p)
    found = dense(logits, min_p={"p": p})
    assert np.array_equal(found > 0, kept)
    np.testing.assert_allclose(found, only(kept, logits), atol=1e-6)


def test_min_p_of_one_keeps_every_maximum():
    assert (dense([[2.0, 1.0, 2.0]], min_p={"p": 1.0}) > 0).tolist() == [[1, 0, 1]]


@pytest.mark.parametrize("steps", [{"top_p": {"p": 0.01}}, {"min_p": {"p": 1.0}}])
@pytest.mark.parametrize("count", [1, 2, 3, 20, 25])
def test_min_tokens_to_keep(steps, count):
    (name, fields), logits = next(iter(steps.items())), random_rows(20)
    found = dense(logits, **{name: {**fields, "min_tokens_to_keep": count}})
    assert np.array_equal(found > 0, ranks(logits) < count)


@pytest.mark.parametrize("vocab", SIZES)
def test_top_k_at_large_vocabularies(vocab):
    logits = random_rows(vocab)
    found = dense(logits, top_k={"k": 50})
    np.testing.assert_allclose(found, only(ranks(logits) < 50, logits), atol=1e-6)


# xtc


def test_xtc_removes_all_top_choices_but_the_least():
    logits = np.log([[0.4, 0.3, 0.2, 0.1]])
    xtc = {"probability": 1.0, "threshold": 0.15}
    np.testing.assert_allclose(dense(logits, [0.999], xtc=xtc), [[0, 0, 2 / 3, 1 / 3]], atol=1e-6)
    np.testing.assert_allclose(dense(logits, [0.0], xtc={**xtc, "threshold": 0.5}), np.exp(logits), atol=1e-6)
    np.testing.assert_allclose(dense(logits, [0.0], xtc={**xtc, "threshold": 0.0}), [[0, 0, 0, 1]], atol=1e-6)


def test_xtc_acts_where_its_own_coin_is_below_the_probability():
    logits = np.log([[0.4, 0.3, 0.2, 0.1]] * 4)
    rows = dense(logits, [0.0, 0.49, 0.5, 0.99], xtc={"probability": 0.5, "threshold": 0.15})
    assert (rows[:, 0] > 0).tolist() == [False, False, True, True]


def test_xtc_never_removes_excluded_ids():
    logits = np.log([[0.4, 0.3, 0.2, 0.1]])
    xtc = {"probability": 1.0, "threshold": 0.15, "excluded": [0, 77]}
    np.testing.assert_allclose(dense(logits, [0.0], xtc=xtc), [[4 / 7, 0, 2 / 7, 1 / 7]], atol=1e-6)


def test_xtc_ties():
    logits = np.log([[0.4, 0.2, 0.2, 0.2], [0.25] * 4])
    xtc = {"probability": 1.0, "threshold": 0.1}
    assert (dense(logits, [0.0, 0.0], xtc=xtc) > 0).tolist() == [[0, 1, 1, 1], [1] * 4]
    assert (dense(logits, [0.0, 0.0], xtc={**xtc, "ties": "drop"}) > 0).tolist() == [[0, 0, 0, 1]] * 2


def test_xtc_takes_only_ids_above_the_threshold():
    xtc = {"probability": 1.0, "threshold": 0.5, "ties": "drop"}
    assert dense([[3.0, 3.0]], [0.0], xtc=xtc).tolist() == [[0.5, 0.5]]


def test_xtc_on_survivors():
    logits = np.concatenate([np.log([[0.1, 0.3, 0.2, 0.4]]), np.full((1, 40), -9.0)], axis=1)
    xtc = {"probability": 1.0, "threshold": 0.15, "excluded": [3]}
    found = dense(logits, [0.0], order=["top_k", "xtc"], top_k={"k": 4}, xtc=xtc)
    np.testing.assert_allclose(found[0, :4], [1 / 7, 0, 2 / 7, 4 / 7], atol=1e-5)


def test_the_coins_of_a_block_are_independent():
    blocks, places = 2000, 5
    noise = Noise(
        seed=3,
        prompt=np.arange(blocks),
        sample=np.zeros(blocks, dtype=np.int64),
        position=np.full(blocks, 7),
        round=0,
        vocab_size=4,
    )
    logits = mx.broadcast_to(mx.log(mx.array([0.4, 0.3, 0.2, 0.1])), (blocks, places, 4))
    chain = kit.chain(xtc={"probability": 0.5, "threshold": 0.15})
    touched = np.array(chain.distribution(logits, None, noise.coin(range(places))).probs)[..., 0] == 0
    assert abs(touched.mean() - 0.5) < 4 * 0.5 / math.sqrt(blocks * places)
    lag = np.corrcoef(touched[:, :-1].ravel(), touched[:, 1:].ravel())[0, 1]
    assert abs(lag) < 4 / math.sqrt(blocks * (places - 1))


# bias


def test_bias_adds_and_bans():
    logits = random_rows(6, rows=2)
    added = np.array([0, 1.5, -math.inf, 0, -2.0, -math.inf])
    found = dense(logits, bias={"values": {1: 1.5, 4: -2.0, 5: -math.inf}, "ban": [2, 900]})
    np.testing.assert_allclose(found, softmax(logits + added), atol=1e-6)
    assert (found[:, [2, 5]] == 0).all()


def test_bias_on_survivors():
    logits = random_rows(80, rows=2)
    found = dense(logits, order=["top_k", "bias"], top_k={"k": 5}, bias={"values": {int(logits[0].argmax()): -3.0}})
    shifted = logits.copy()
    shifted[:, logits[0].argmax()] -= 3
    np.testing.assert_allclose(found, only(ranks(logits) < 5, shifted), atol=1e-6)


@pytest.mark.parametrize("steps", [{}, {"temperature": {"value": 0}}, {"top_k": {"k": 2}}, {"top_p": {"p": 0.5}}])
def test_a_row_that_a_ban_empties_is_nan(steps):
    assert np.isnan(np.array(law(random_rows(20), bias={"ban": list(range(20))}, **steps).probs)).all()
