"""Toys answer with the rows they were given, and their caches really forget, row by row."""

import math

from specfw.models._toy import REWINDABLE, ToyModel, by_token
from specfw.models.base import prefill
from specfw.models.cache_length import CacheLength
from specfw.models.cycle import Cycle
from specfw.models.iid import Iid
from specfw.models.markov import Markov
from specfw.models.position import Position
from specfw.registry import build, names, schema

import mlx.core as mx
import numpy as np
import pytest
from omegaconf import OmegaConf

SIX = (1, 2, 3, 4, 5, 0)
TOYS = {
    "iid": Iid(probs=(0.5, 0.3, 0.2)),
    "cycle": Cycle(successors=(1, 2, 0), peak=0.8),
    "position": Position(rows=((0.5, 0.3, 0.2), (0.1, 0.1, 0.8))),
    "cache_length": CacheLength(vocab_size=3),
    "markov_1": Markov(vocab_size=3, row_seed=1),
    "markov_3": Markov(order=3, vocab_size=3, row_seed=2, start=1),
}


def feed(model, cache, *rows):
    """Probabilities [B, T, V] after feeding rows of ids."""
    return np.exp(np.array(model.forward(mx.array(np.array(rows, dtype=np.int32)), cache)))


def test_iid_answers_every_token_with_its_row():
    model = Iid(probs=("1/3", 0.5, "1/6")).load("target")
    got = feed(model, model.new_cache(2), [0, 1], [2, 2])
    np.testing.assert_allclose(got, np.tile([1 / 3, 0.5, 1 / 6], (2, 2, 1)), rtol=1e-6)
    assert (model.vocab_size, model.eos_ids, model.batched, model.name) == (3, frozenset(), True, "target (iid)")


def test_a_probability_of_zero_is_a_logit_of_minus_infinity():
    model = Iid(probs=(1, 0)).load("target")
    assert model.forward(mx.array([[0]]), model.new_cache(1)).tolist() == [[[0.0, -math.inf]]]
    assert model.forward(mx.array([[0]]), model.new_cache(1)).dtype == mx.float32


def test_cycle_follows_its_successors():
    model = Cycle(successors=SIX, eos_id=5).load("target")
    got = feed(model, model.new_cache(1), [0, 3, 5])[0]
    assert got.argmax(axis=-1).tolist() == [1, 4, 0]
    assert got.max(axis=-1).tolist() == [1.0, 1.0, 1.0]
    assert model.eos_ids == {5}
    soft = Cycle(successors=SIX, peak=0.5).load("target")
    np.testing.assert_allclose(feed(soft, soft.new_cache(1), [2])[0, 0], [0.1, 0.1, 0.1, 0.5, 0.1, 0.1], rtol=1e-6)


def test_position_takes_the_row_of_the_token_to_be_drawn():
    model = Position(rows=((1, 0, 0), (0, 1, 0), (0, 0, 1))).load("target")
    cache = model.new_cache(2)
    # the first token fed stands at position 0: what follows it stands at 1
    assert feed(model, cache, [0] * 4, [0] * 4).argmax(axis=-1).tolist() == [[1, 2, 0, 1]] * 2
    cache.rewind(np.array([1, 3]))
    assert feed(model, cache, [0], [0]).argmax(axis=-1).tolist() == [[1], [2]]


def test_cache_length_puts_its_peak_on_the_number_of_tokens_held():
    model = CacheLength(vocab_size=4, peak=0.7).load("drafter")
    cache = model.new_cache(1)
    right = feed(model, cache, [0, 0, 0])[0]
    np.testing.assert_allclose(right[:, [1, 2, 3]].diagonal(), 0.7, rtol=1e-6)
    # one place apart, two of them overlap by the closed form of the module
    late = feed(model, cache, [0])[0, 0]
    assert np.minimum(right[-1], late).sum() == pytest.approx(4 * 0.3 / 3, rel=1e-5)


def test_markov_reads_the_digits_of_its_context_from_the_cache():
    rows = [np.eye(3)[index % 3] for index in range(9)]  # after (a, b) comes (3 a + b) mod 3 = b
    rows[3 * 2 + 1] = np.eye(3)[0]  # but after (2, 1) comes 0
    model = Markov(order=2, rows=tuple(map(tuple, rows)), start=2).load("target")
    cache = model.new_cache(2)
    assert feed(model, cache, [1, 2], [0, 1]).argmax(axis=-1).tolist() == [[0, 2], [0, 1]]
    assert feed(model, cache, [1], [1]).argmax(axis=-1).tolist() == [[0], [1]]
    cache.rewind(np.array([1, 0]))
    assert feed(model, cache, [0], [1]).argmax(axis=-1).tolist() == [[0], [1]]


def test_drawn_rows_depend_on_their_seed_alone():
    one, same, other = (Markov(vocab_size=5, row_seed=seed)._table() for seed in (7, 7, 8))
    assert (one == same).all()
    assert not (one == other).any()
    np.testing.assert_allclose(one.sum(axis=1), 1, atol=1e-12)
    peaked = Markov(vocab_size=5, row_seed=7, concentration=0.05)._table()
    assert peaked.max(axis=1).mean() > one.max(axis=1).mean() + 0.2


@pytest.mark.parametrize("spec", TOYS.values(), ids=TOYS)
def test_a_rewound_cache_answers_like_a_fresh_one(spec):
    model, rng = spec.load("target"), np.random.default_rng(3)
    size, rows = 4, [[], [], [], []]
    cache = model.new_cache(size)
    for count in (1, 5, 2, 3, 7, 1, 4):
        fed = rng.integers(0, 3, (size, count))
        got = feed(model, cache, *fed)
        rows = [row + list(new) for row, new in zip(rows, fed, strict=True)]
        for place, row in enumerate(rows):
            scratch = feed(model, model.new_cache(1), row)[0, -count:]
            np.testing.assert_array_equal(got[place], scratch)
        counts = rng.integers(0, count + 1, size)
        cache.rewind(counts)
        rows = [row[: len(row) - drop] for row, drop in zip(rows, counts, strict=True)]
        assert cache.lengths.tolist() == [len(row) for row in rows]


@pytest.mark.parametrize("spec", TOYS.values(), ids=TOYS)
def test_chunks_of_a_prompt_are_the_prompt(spec):
    model = spec.load("target")
    prompt = np.random.default_rng(5).integers(0, 3, (3, 11))
    answers = []
    for chunk in (1, 4, 100):
        cache = model.new_cache(3)
        assert list(prefill(model, cache, prompt, chunk))[-1] == 11
        assert cache.lengths.tolist() == [11] * 3
        answers.append(feed(model, cache, [0], [1], [2]))
    np.testing.assert_array_equal(answers[0], answers[1])
    np.testing.assert_array_equal(answers[0], answers[2])


def test_a_cache_evaluates_before_and_after_its_first_token():
    for spec in TOYS.values():
        model = spec.load("target")
        cache = model.new_cache(2)
        mx.eval(cache.arrays())
        model.forward(mx.array([[1], [2]]), cache)
        mx.eval(cache.arrays())


@pytest.mark.parametrize("spec", TOYS.values(), ids=TOYS)
@pytest.mark.parametrize("counts", [[4, 0], [0, -1]])
def test_a_cache_forgets_no_more_than_it_holds(spec, counts):
    model = spec.load("target")
    cache = model.new_cache(2)
    feed(model, cache, [0, 1, 2], [2, 1, 0])
    with pytest.raises(RuntimeError, match="was asked to forget"):
        cache.rewind(np.array(counts))
    assert cache.lengths.tolist() == [3, 3]


def test_a_context_that_left_the_bounded_tail_cannot_come_back():
    model = TOYS["markov_3"].load("target")
    cache = model.new_cache(1)
    for _ in range(REWINDABLE + 10):
        feed(model, cache, [0])
    with pytest.raises(RuntimeError, match="was asked to forget"):
        cache.rewind(np.array([REWINDABLE + 1]))
    cache.rewind(np.array([REWINDABLE]))
    assert cache.lengths.tolist() == [10]
    assert cache.arrays().shape == (1, REWINDABLE + 2)


def test_a_test_may_give_a_toy_rows_that_are_no_distribution():
    model = ToyModel("toy", np.array([[math.nan, 1.0], [0.5, 0.5]]), by_token)
    assert np.isnan(feed(model, model.new_cache(1), [0])[0, 0]).tolist() == [True, False]


def test_fingerprints_tell_rows_apart():
    one, same, other = (Iid(probs=probs).load("target").fingerprint() for probs in [(0.5, 0.5)] * 2 + [(0.4, 0.6)])
    assert one == same
    assert one["rows"] == [1, 2]
    assert one["sha256"] != other["sha256"]


@pytest.mark.parametrize(
    ("name", "fields", "sentence"),
    [
        ("iid", {"probs": []}, r"model.probs must be at least one row"),
        ("iid", {"probs": [0.5, 0.6]}, r"model.probs must be probabilities that sum to 1 within 1e-06, got 1.1"),
        ("iid", {"probs": [1.5, -0.5]}, r"model.probs must be finite probabilities of at least 0"),
        ("iid", {"probs": [math.nan, 1]}, r"model.probs must be finite"),
        ("iid", {"probs": [math.inf, 1]}, r"model.probs must be finite"),
        ("iid", {"probs": ["1/0", 1]}, r"model.probs must be numbers or fractions"),
        ("iid", {"probs": ["a half", 1]}, r"model.probs must be numbers or fractions"),
        ("iid", {"probs": [True, 0]}, r"model.probs must be numbers or fractions"),
        ("iid", {"probs": [1], "eos_id": 1}, r"model.eos_id must be in \[0, 1\), got 1"),
        ("iid", {"probs": [1], "eos_id": -1}, r"model.eos_id must be in \[0, 1\), got -1"),
        ("cycle", {"successors": []}, r"model.successors must be at least one id"),
        ("cycle", {"successors": [1, 2]}, r"model.successors must be in \[0, 2\), got 2"),
        ("cycle", {"successors": [1, 0], "peak": 1.5}, r"model.peak must be in \[0, 1\]"),
        ("cycle", {"successors": [0], "peak": 0.5}, r"model.peak must be in \[0, 1\], and 1 for one id"),
        ("position", {"rows": [[1], [0.5, 0.5]]}, r"model.rows must be rows of one size, got \[1, 2\]"),
        ("position", {"rows": []}, r"model.rows must be at least one row"),
        ("cache_length", {"vocab_size": 1}, r"model.vocab_size must be at least 2"),
        ("markov", {}, r"model.rows must be given where"),
        ("markov", {"vocab_size": 3}, r"model.rows must be given where"),
        ("markov", {"rows": [[1]], "vocab_size": 1, "row_seed": 1}, r"model.rows must be given where"),
        ("markov", {"rows": [[0.5, 0.5]]}, r"model.rows must be V\^order = 2 rows, got 1"),
        ("markov", {"order": 0, "rows": [[1]]}, r"model.order must be in \[1, 24\], got 0"),
        ("markov", {"order": 20, "vocab_size": 9, "row_seed": 0}, r"model.order must be at most 16777216"),
        ("markov", {"vocab_size": 0, "row_seed": 0}, r"model.vocab_size must be at least 1"),
        ("markov", {"vocab_size": 2, "row_seed": -1}, r"model.row_seed must be at least 0"),
        ("markov", {"vocab_size": 2, "row_seed": 0, "concentration": 0}, r"model.concentration must be in \(0, inf\)"),
        ("markov", {"rows": [[1]], "start": 1}, r"model.start must be in \[0, 1\)"),
    ],
)
def test_what_no_toy_can_be_is_refused_in_one_sentence(name, fields, sentence):
    with pytest.raises(ValueError, match=sentence):
        build("model", {"name": name, **fields})


def test_configurations_hold_fractions_beside_numbers():
    assert {"iid", "cycle", "position", "markov", "cache_length", "checkpoint"} <= set(names("model"))
    node = OmegaConf.merge(OmegaConf.structured(schema(Position, "position")), {"rows": [["1/3", "2/3"], [0.5, 0.5]]})
    model = build("model", OmegaConf.to_container(node)).load("target")
    np.testing.assert_allclose(feed(model, model.new_cache(1), [0, 0])[0], [[0.5, 0.5], [1 / 3, 2 / 3]], rtol=1e-6)
