"""Keys never meet, uniforms do not depend on how they are asked for, noise and draws have their full tails."""

import itertools

from specfw import randomness
from specfw.distribution import Dense
from specfw.randomness import Noise, Stream, exponentials, keys, uniforms
from specfw.sampling.chain import SamplerChain
from specfw.verification.statistics import chi_square

import mlx.core as mx
import numpy as np
import pytest
from kit import ALPHA, ORDER
from scipy import stats

SMALLEST, LARGEST = 0.0, float(np.nextafter(np.float32(1), np.float32(0)))


def whole(key):
    """Keys [..., 2] as 64-bit numbers."""
    halves = np.array(key).astype(np.uint64)
    return (halves[..., 0] << np.uint64(32)) | halves[..., 1]


def grid(*sizes):
    return np.meshgrid(*(np.arange(size) for size in sizes), indexing="ij")


def test_keys_never_meet():
    """Over streams, prompts, samples, positions, rounds, with and without a round, and seeds."""
    found = [whole(keys(seed, stream, *grid(6, 6, 40, 12))) for seed in (0, 1, 2**40) for stream in Stream]
    found += [whole(keys(0, stream, *grid(6, 6, 500))) for stream in Stream]
    flat = np.concatenate([one.ravel() for one in found])
    assert len(np.unique(flat)) == len(flat) > 400_000


def test_coordinates_are_not_interchangeable():
    orders = list(itertools.permutations((1, 2, 3, 4)))
    assert len({int(whole(keys(0, Stream.DRAFT, *order))) for order in orders}) == len(orders)


NEIGHBOURS = {
    "prompt": (1, 0, 0, 0),
    "sample": (0, 1, 0, 0),
    "position": (0, 0, 1, 0),
    "round": (0, 0, 0, 1),
    "position + 1, round - 1": (0, 0, 1, -1),
}


def independent(one, other):
    """Chi-square of the joint law of two uniforms on a grid of 16 by 16."""
    table = np.histogram2d(one.ravel(), other.ravel(), bins=16, range=[(0, 1), (0, 1)])[0]
    return stats.chisquare(table.ravel()).pvalue > ALPHA


@pytest.mark.parametrize("step", NEIGHBOURS)
def test_neighbours_are_independent(step):
    places = [coordinate + 1 for coordinate in grid(8, 8, 60, 8)]
    moved = [coordinate + add for coordinate, add in zip(places, NEIGHBOURS[step], strict=True)]
    one, other = (np.array(uniforms(keys(3, Stream.DRAFT, *where), 1)) for where in (places, moved))
    assert independent(one, other)


def test_streams_and_seeds_are_independent():
    places = grid(8, 8, 500)
    base = np.array(uniforms(keys(3, Stream.TARGET, *places), 1))
    for seed, stream in ((3, Stream.COIN), (3, Stream.ACCEPT), (4, Stream.TARGET), (3 + 2**32, Stream.TARGET)):
        assert independent(base, np.array(uniforms(keys(seed, stream, *places), 1)))


def noise(**changes):
    row = {"prompt": [0, 1, 7], "sample": [0, 2, 0], "position": [5, 9, 5]}
    columns = {name: np.array(values, dtype=np.int64) for name, values in row.items()}
    return Noise(**{"seed": 1, "round": 2, "vocab_size": 600, **columns, **changes})


def test_draws_do_not_depend_on_how_many_are_asked_for():
    """A draw in MLX depends on the shape asked; here rows and places are asked for one by one and together."""
    together = noise()
    for row in range(3):
        one = noise(**{name: getattr(together, name)[row : row + 1] for name in ("prompt", "sample", "position")})
        for name in ("accept", "residual"):
            np.testing.assert_array_equal(np.array(getattr(one, name)())[0], np.array(getattr(together, name)())[row])
        for draw in ("target", "coin"):
            everything = np.array(getattr(together, draw)(range(4)))[row]
            for offset in range(4):
                np.testing.assert_array_equal(np.array(getattr(one, draw)([offset]))[0, 0], everything[offset])
        np.testing.assert_array_equal(np.array(one.draft(3))[0], np.array(together.draft(3))[row])


def test_target_noise_belongs_to_the_position_and_the_rest_to_the_round_too():
    here, later = noise(), noise(position=np.array([3, 7, 3]), round=9)
    np.testing.assert_array_equal(np.array(here.target([0])), np.array(later.target([2])))
    np.testing.assert_array_equal(np.array(here.coin([0])), np.array(later.coin([2])))
    again = noise(round=9)
    for name in ("accept", "residual"):
        assert (np.array(getattr(here, name)()) != np.array(getattr(again, name)())).all()
    assert (np.array(here.draft(0)) != np.array(again.draft(0))).all()
    assert (np.array(here.draft(2)) != np.array(later.draft(4))).all()
    assert (np.array(here.draft(0)) != np.array(here.draft(1))).all()
    moved = noise(position=here.position + 2)
    np.testing.assert_array_equal(np.array(here.draft(2)), np.array(moved.draft(0)))


def test_uniforms_are_uniform_on_the_half_open_interval():
    drawn = np.array(uniforms(keys(0, Stream.AUDIT, np.arange(50)), 20_000))
    assert drawn.min() >= 0
    assert drawn.max() < 1
    assert stats.kstest(drawn.ravel(), "uniform").pvalue > ALPHA


def test_the_noise_as_gumbel_numbers_has_both_tails():
    """Large noise comes from small u, where float32 is fine-grained: the largest of many values are all different."""
    drawn = -np.log(np.array(exponentials(keys(1, Stream.TARGET, np.arange(64)), 2**17)).ravel())
    assert stats.kstest(drawn[::8], "gumbel_r").pvalue > ALPHA
    assert len(np.unique(np.partition(drawn, -500)[-500:])) > 490
    for level in (10.0, 13.0):
        expected = len(drawn) * stats.gumbel_r.sf(level)
        assert abs((drawn > level).sum() - expected) < 5 * np.sqrt(expected) + 1
    assert drawn.min() < -2.5


@pytest.mark.parametrize("extreme", [SMALLEST, LARGEST])
def test_an_extreme_uniform_gives_finite_noise(monkeypatch, extreme):
    monkeypatch.setattr(randomness, "uniforms", lambda key, count: mx.full((*key.shape[:-1], count), extreme))
    drawn = -np.log(np.array(exponentials(keys(0, Stream.TARGET, np.arange(3)), 5)))
    assert np.isfinite(drawn).all()
    assert drawn.max() == pytest.approx(-np.log(2.0**-33) if extreme == SMALLEST else -np.log(24 * np.log(2)), abs=1e-3)


def test_u_zero_on_a_filtered_id_does_not_win(monkeypatch):
    """Without care: 0 / 0 is NaN, and argmax returns a NaN's index."""
    sampler = SamplerChain.from_config({"order": ORDER, "min_p": {"p": 0.5}})
    row = sampler.distribution(mx.log(mx.array([[[0.1, 0.4, 0.05, 0.45]]])), None, None)

    def zero_where_filtered(key, count):
        return mx.broadcast_to(mx.array([0.0, 0.7, 0.0, 0.999]), (*key.shape[:-1], count))

    monkeypatch.setattr(randomness, "uniforms", zero_where_filtered)
    one = {name: np.zeros(1, dtype=np.int64) for name in ("prompt", "sample", "position")}
    assert row.race(noise(**one, vocab_size=4).target([0])).item() == 1
    monkeypatch.setattr(randomness, "exponentials", lambda _key, _size: mx.array([[[0.0, 1.0, 0.0, 3.0]]]))
    assert row.race(noise(**one, vocab_size=4).target([0])).item() == 1


SIZES = [32768, 32769, 151936, 262144]


def draws(probs, chosen, chunk=128):
    """Draws of one row [V] by uniforms [N, 2], some at a time."""
    parts = [mx.array(chosen[start : start + chunk].astype(np.float32)) for start in range(0, len(chosen), chunk)]
    wide = [Dense(mx.broadcast_to(mx.array(probs), (len(part), len(probs)))).draw(part) for part in parts]
    return np.concatenate([np.array(one) for one in wide])


@pytest.mark.parametrize("size", SIZES)
def test_every_id_has_its_width(size):
    """The middle of an id's interval draws it, in every block and at every place of a block."""
    flat = np.full(size, 1 / size, dtype=np.float32)
    blocks = np.arange(0, size - 511, 512)
    inside = np.random.default_rng(size).integers(512, size=len(blocks))
    middles = np.stack([(blocks + 256) / size, (inside + 0.5) / 512], axis=1)
    np.testing.assert_array_equal(draws(flat, middles), blocks + inside)
    block = blocks[len(blocks) // 2]
    everywhere = np.stack([np.full(512, (block + 256) / size), (np.arange(512) + 0.5) / 512], axis=1)
    np.testing.assert_array_equal(draws(flat, everywhere), block + np.arange(512))


@pytest.mark.parametrize("size", SIZES[2:])
def test_blocks_are_drawn_in_proportion(size):
    rng = np.random.default_rng(size)
    probs = rng.dirichlet(np.full(size, 0.3)).astype(np.float32)
    probs[rng.random(size) < 0.3] = 0
    drawn = draws(probs, np.array(uniforms(keys(0, Stream.RESIDUAL, np.arange(3000)), 2)))
    assert (probs[drawn] > 0).all()
    masses = np.pad(probs, (0, -size % 512)).reshape(-1, 512).sum(axis=1, dtype=np.float64)
    assert chi_square(np.bincount(drawn // 512, minlength=len(masses)), masses).p_value > ALPHA
