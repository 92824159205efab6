import itertools

from specfw.distribution import Dense, Survivors, from_logits, point_mass
from specfw.randomness import Stream, keys, uniforms
from specfw.summation import block_sum

import mlx.core as mx
import numpy as np
import pytest

SIZES = [1, 2, 511, 512, 513, 4096, 32768, 32769, 151936, 262144]


def both(rng, size, survivors):
    """A row [1, size] with `survivors` non-zero entries, in both forms."""
    probs = np.zeros(size, dtype=np.float32)
    ids = np.sort(rng.choice(size, survivors, replace=False)).astype(np.int32)
    probs[ids] = rng.dirichlet(np.ones(survivors)).astype(np.float32)
    return Dense(mx.array(probs[None])), Survivors(mx.array(ids[None]), mx.array(probs[ids][None]))


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("dtype", [mx.float32, mx.bfloat16, mx.float16])
def test_rows_are_normalised_at_every_vocabulary_size(size, dtype):
    rng = np.random.default_rng(size)
    logits = mx.array(rng.normal(size=(2, size)).astype(np.float32) * 3).astype(dtype).astype(mx.float32)
    row = from_logits(logits)
    exact = np.exp(np.array(logits, dtype=np.float64))
    exact /= exact.sum(-1, keepdims=True)
    assert np.abs(np.array(row.probs, dtype=np.float64).sum(-1) - 1).max() < 1e-5
    assert np.abs(np.array(row.total()) - 1).max() < 1e-5
    np.testing.assert_allclose(np.array(row.probs), exact, rtol=2e-5, atol=1e-12)


def test_one_level_sum_in_half_precision_would_not_do():
    """F6: what softmax of a half-precision row sums to, so that the normaliser is needed at all."""
    logits = mx.zeros((1, 151936), dtype=mx.bfloat16)
    total = np.array(mx.softmax(logits, axis=-1).astype(mx.float32), dtype=np.float64).sum()
    ours = np.array(from_logits(logits.astype(mx.float32)).probs, dtype=np.float64).sum()
    assert abs(ours - 1) < 1e-5
    assert abs(total - 1) > 1e-3


def test_shifting_logits_changes_nothing():
    logits = mx.array([[0.5, -1.25, 3.0, 0.0]])
    shifted = from_logits(logits + 512.0)
    np.testing.assert_allclose(np.array(shifted.probs), np.array(from_logits(logits).probs), rtol=1e-4)


def test_an_empty_row_is_nan_and_stays_so():
    row = from_logits(mx.full((1, 4), -mx.inf))
    assert np.isnan(np.array(row.total())).all()


@pytest.mark.parametrize(("size", "survivors"), [(8, 1), (9, 3), (600, 5), (5000, 77)])
def test_survivors_compute_what_dense_rows_compute(size, survivors):
    rng = np.random.default_rng(size)
    p_dense, p_ids = both(rng, size, survivors)
    q_dense, q_ids = both(rng, size, max(1, survivors - 1))
    ids = mx.array(rng.integers(size, size=(1,)).astype(np.int32))
    for p, q in itertools.product((p_dense, p_ids), (q_dense, q_ids)):
        np.testing.assert_allclose(np.array(p.overlap(q)), np.array(p_dense.overlap(q_dense)), atol=1e-6)
        np.testing.assert_allclose(np.array(p.product(q)), np.array(p_dense.product(q_dense)), atol=1e-6)
        residual = p.excess(q).aligned(p_dense)
        np.testing.assert_allclose(np.array(residual), np.array(p_dense.excess(q_dense).probs), atol=1e-7)
        half = p.excess(q, mx.array([0.5])).aligned(p_dense)
        np.testing.assert_allclose(np.array(half), np.array(p_dense.excess(q_dense, 0.5).probs), atol=1e-7)
    for token in (*np.array(p_ids.ids)[0][:3].tolist(), int(ids.item())):
        asked = mx.array([token], dtype=mx.int32)
        assert p_ids.at(asked).item() == p_dense.at(asked).item()
    for token in np.array(p_ids.ids)[0][:5].tolist():
        seen = mx.array([token], dtype=mx.int32)
        assert p_ids.transform(seen).item() == pytest.approx(p_dense.transform(seen).item(), abs=1e-6)
        falling = p_ids.transform(seen, -p_ids.probs).item()
        assert falling == pytest.approx(p_dense.transform(seen, -p_dense.probs).item(), abs=1e-6)
    assert p_ids.argmax().item() == p_dense.argmax().item()
    assert p_ids.cube_sum().item() == pytest.approx(p_dense.cube_sum().item(), abs=1e-7)
    np.testing.assert_array_equal(np.array(p_ids.mode().aligned(p_dense)), np.array(p_dense.mode().probs))


def test_target_draws_do_not_depend_on_the_form():
    rng = np.random.default_rng(3)
    dense, ids = both(rng, 700, 9)
    noise = mx.array(rng.exponential(size=(400, 700)).astype(np.float32))
    wide = Dense(mx.broadcast_to(dense.probs, (400, 700)))
    narrow = Survivors(mx.broadcast_to(ids.ids, (400, 9)), mx.broadcast_to(ids.probs, (400, 9)))
    np.testing.assert_array_equal(np.array(wide.race(noise)), np.array(narrow.race(noise)))


def test_transform_is_the_mid_distribution():
    """Mean 1/2 and variance (1 - sum p^3) / 12, in whatever order."""
    p = np.array([0.5, 0.2, 0.2, 0.1], dtype=np.float32)
    row = Dense(mx.broadcast_to(mx.array(p), (4, 4)))
    for order in (None, -row.probs, mx.broadcast_to(mx.array([3.0, 3.0, 1.0, 2.0]), (4, 4))):
        m = np.array(row.transform(mx.arange(4, dtype=mx.int32), order), dtype=np.float64)
        assert p @ m == pytest.approx(0.5, abs=1e-6)
        assert p @ (m - 0.5) ** 2 == pytest.approx((1 - row.cube_sum()[0].item()) / 12, abs=1e-6)


def test_rows_and_heads():
    probs = mx.array(np.random.default_rng(0).dirichlet(np.ones(5), size=(3, 4)).astype(np.float32))
    chosen = mx.array([2, 0, 3], dtype=mx.int32)
    np.testing.assert_array_equal(np.array(Dense(probs).row(chosen).probs)[1], np.array(probs)[1, 0])
    assert Dense(probs).head(2).probs.shape == (3, 2, 5)
    point = point_mass(mx.array([[1, 2], [3, 4]], dtype=mx.int32))
    np.testing.assert_array_equal(np.array(point.row(mx.array([1, 0])).ids), [[2], [3]])


def test_where_takes_whole_rows():
    one, other = Dense(mx.array([[1.0, 0.0], [1.0, 0.0]])), Dense(mx.array([[0.0, 1.0], [0.0, 1.0]]))
    np.testing.assert_array_equal(np.array(one.where(mx.array([True, False]), other).probs), [[1, 0], [0, 1]])


@pytest.mark.parametrize("size", [3, 513, 5000])
def test_draws_follow_the_row(size):
    rng = np.random.default_rng(size)
    probs = rng.dirichlet(np.full(size, 0.05)).astype(np.float32)
    probs[probs < 1e-4] = 0
    row = Dense(mx.broadcast_to(mx.array(probs), (20000, size)))
    drawn = np.array(row.draw(uniforms(keys(5, Stream.ACCEPT, np.arange(20000)), 2)))
    assert (probs[drawn] > 0).all()
    from specfw.verification.statistics import chi_square

    assert chi_square(np.bincount(drawn, minlength=size), probs).p_value > 1e-4


@pytest.mark.parametrize("extreme", [0.0, float(np.nextafter(np.float32(1), np.float32(0)))])
def test_extreme_uniforms_never_draw_an_id_without_weight(extreme):
    """B29: u = 0 with p = 0, and the largest u below 1."""
    probs = mx.array([[0.0, 0.25, 0.0, 0.75, 0.0]])
    drawn = Dense(probs).draw(mx.full((1, 2), extreme)).item()
    assert drawn in (1, 3)
    long = mx.zeros((1, 2000)).at[0, 700].add(0.5).at[0, 1300].add(0.5)
    assert Dense(long).draw(mx.full((1, 2), extreme)).item() in (700, 1300)


def test_filtered_ids_lose_every_race():
    row = Dense(mx.array([[0.0, 1e-30, 0.0]]))
    for noise in ([0.0, 150.0, 0.05], [np.nan, 1.0, np.nan], [1e-13, 1e7, 1e-13]):
        assert row.race(mx.array([noise])).item() == 1


def test_block_sum_keeps_float64():
    with mx.stream(mx.cpu):
        values = mx.array([0.1] * 1000, dtype=mx.float64)
        assert abs(block_sum(values).item() - 100) < 1e-12
