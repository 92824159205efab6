"""What holds for every step of the sampler chain, because it is registered."""

import dataclasses
import math
from typing import get_type_hints

from specfw import sampling  # noqa: F401 - registers the steps
from specfw.distribution import Survivors
from specfw.registry import component, construct, names
from specfw.sampling.base import Step
from specfw.sampling.chain import SamplerChain
from specfw.types import History

import mlx.core as mx
import numpy as np
import pytest

V = 16
COMMITTED = (np.array([1, 2, 3, 1, 2]), np.array([4, 2, 4]))
PROMPTS = np.array([2, 3])
DRAFTS = [[3, 1, 2, 3], [2, 4, 2, 4]]
STRENGTHS = (0.3, 0.5, 2.0, 3, {1: 1.5, 2: -2.0}, (1, 2))

every_step = pytest.mark.parametrize("name", names("filter"))


def history(drafts=4):
    return History(COMMITTED, PROMPTS, mx.array(DRAFTS, dtype=mx.int32)[:, :drafts])


def acting(name):
    """Fields that make the step act: the first candidate strength it takes."""
    cls = component("filter", name)
    for strength in STRENGTHS:
        try:
            step = construct(cls, {cls.strength: strength}, name)
        except (ValueError, AttributeError):
            continue
        if not step.neutral:
            return {cls.strength: strength}
    raise AssertionError(f"no strength makes {name} act")


def rows(positions=5, vocab=V, dtype=mx.float32, seed=3):
    draws = np.random.default_rng(seed).normal(size=(2, positions, vocab)) * 2
    return mx.array(draws.tolist(), dtype=dtype)


def coins(positions=5):
    return mx.array([[0.1, 0.9, 0.2, 0.8, 0.4], [0.7, 0.3, 0.6, 0.05, 0.95]])[:, 5 - positions :]


def alone(name):
    return SamplerChain.from_config({"order": [name], name: acting(name)})


def dense(row, vocab=V):
    if not isinstance(row, Survivors):
        return np.array(row.probs)
    full = np.zeros((*row.ids.shape[:-1], vocab), dtype=np.array(row.probs).dtype)
    np.put_along_axis(full, np.array(row.ids), np.array(row.probs), axis=-1)
    return full


@every_step
def test_is_a_frozen_keyword_only_dataclass_that_is_neutral_by_default(name):
    cls = component("filter", name)
    assert issubclass(cls, Step)
    assert cls.__module__ == f"specfw.sampling.{name}"
    assert all(field.kw_only for field in dataclasses.fields(cls))
    assert cls().neutral
    with pytest.raises(dataclasses.FrozenInstanceError):
        setattr(cls(), cls.strength, 1)


@every_step
def test_conventions_alone_leave_it_neutral(name):
    cls = component("filter", name)
    conventions = [field for field in dataclasses.fields(cls) if field.name not in (cls.strength, "ban")]
    for field in conventions:
        hint = get_type_hints(cls)[field.name]
        other = {int: 3, bool: False, float: 1.2}.get(hint, (1,) if hint == tuple[int, ...] else "keep")
        other = 0.2 if field.name == "threshold" else other
        assert construct(cls, {field.name: other}, name).neutral


@every_step
def test_a_neutral_step_is_skipped_and_an_acting_one_is_not(name):
    empty = SamplerChain.from_config({"order": []})
    neutral = SamplerChain.from_config({"order": [name], name: {}})
    assert neutral.steps == ()
    plain = np.array(empty.distribution(rows(), None, None).probs)
    assert np.array_equal(plain, dense(neutral.distribution(rows(), None, None)))
    assert not np.allclose(plain, dense(alone(name).distribution(rows(), history(), coins())), atol=1e-3)


@every_step
def test_never_writes_into_the_logits_or_the_history(name):
    logits, past = rows(), history()
    before, drafts = np.array(logits), np.array(past.drafted)
    once, twice = (dense(alone(name).distribution(logits, past, coins())) for _ in range(2))
    assert np.array_equal(before, np.array(logits))
    assert np.array_equal(drafts, np.array(past.drafted))
    assert np.array_equal(COMMITTED[0], [1, 2, 3, 1, 2])
    assert np.array_equal(once, twice)


@every_step
def test_a_position_of_a_block_is_what_it_is_alone(name):
    chain, logits = alone(name), rows()
    block = dense(chain.distribution(logits, history(), coins()))
    for place in range(5):
        one = chain.distribution(logits[:, place : place + 1], history(place), coins()[:, place : place + 1])
        np.testing.assert_array_equal(block[:, place : place + 1], dense(one))


@every_step
def test_a_row_of_a_batch_is_what_it_is_alone(name):
    chain, logits = alone(name), rows()
    batch = dense(chain.distribution(logits, history(), coins()))
    for row in range(2):
        past = History(COMMITTED[row : row + 1], PROMPTS[row : row + 1], history().drafted[row : row + 1])
        one = chain.distribution(logits[row : row + 1], past, coins()[row : row + 1])
        np.testing.assert_array_equal(batch[row : row + 1], dense(one))


@every_step
def test_computes_nothing_before_it_is_asked(name):
    def law(logits, drafted, coin):
        return alone(name).distribution(logits, History(COMMITTED, PROMPTS, drafted), coin).probs

    # inside mx.compile arrays are placeholders, and whatever evaluates one raises; the result is not evaluated
    assert mx.compile(law)(rows(), history().drafted, coins()).shape[:2] == (2, 5)
    with pytest.raises(ValueError, match="eval"):
        mx.compile(lambda drafted: law(rows(), mx.array(np.array(drafted)), coins()))(history().drafted)


@every_step
def test_float64_rows_stay_float64(name):
    with mx.stream(mx.cpu):
        exact = alone(name).distribution(rows(dtype=mx.float64), history(), coins())
        assert exact.probs.dtype == mx.float64
        single = dense(alone(name).distribution(rows(), history(), coins()))
        np.testing.assert_allclose(dense(exact), single, atol=1e-5)


@every_step
@pytest.mark.parametrize("dtype", [mx.bfloat16, mx.float16])
def test_half_precision_is_cast_once(name, dtype):
    half = rows().astype(dtype)
    law = alone(name).distribution(half, history(), coins())
    assert law.probs.dtype == mx.float32
    same = alone(name).distribution(half.astype(mx.float32), history(), coins())
    np.testing.assert_array_equal(dense(law), dense(same))


@every_step
@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_a_broken_logit_breaks_its_own_row_alone(name, bad):
    logits = np.array(rows())
    logits[0, 2, np.argmin(logits[0, 2])] = bad
    law = dense(alone(name).distribution(mx.array(logits), history(), coins()))
    assert np.isnan(law[0, 2]).any()
    law[0, 2] = 1 / V
    np.testing.assert_allclose(law.sum(axis=-1), 1, atol=1e-5)


@every_step
def test_a_row_without_any_id_left_is_not_hidden(name):
    logits = mx.full((2, 5, V), -math.inf)
    assert np.isnan(np.array(alone(name).distribution(logits, history(), coins()).probs)).any(axis=-1).all()


@every_step
def test_an_id_that_is_filtered_stays_filtered(name):
    logits = np.array(rows())
    logits[..., 3:9] = -math.inf
    law = dense(alone(name).distribution(mx.array(logits), history(), coins()))
    assert (law[..., 3:9] == 0).all()
    np.testing.assert_allclose(law.sum(axis=-1), 1, atol=1e-5)


@every_step
def test_tokens_of_a_larger_vocabulary_in_the_history_are_passed_over(name):
    drafted = mx.array([[V, V + 5, 3, V + 900], [V + 1, 2, V, 2]], dtype=mx.int32)
    past = History((np.array([V + 7, V, 3]), np.array([V, V])), np.array([1, 1]), drafted)
    law = dense(alone(name).distribution(rows(), past, coins()))
    np.testing.assert_allclose(law.sum(axis=-1), 1, atol=1e-5)


@every_step
def test_every_boundary_has_an_answer_or_an_error_that_begins_with_the_field(name):
    cls = component("filter", name)
    hints = get_type_hints(cls)
    for field in dataclasses.fields(cls):
        whole = hints[field.name] in (int, float)
        for number in (0, 1, -1, V - 1, V, V + 1, 2**40, 1e-45, 1e300, math.nan, math.inf, -math.inf):
            value = number if whole else [number] if hints[field.name] == tuple[int, ...] else {1: number}
            try:
                chain = SamplerChain.from_config({"order": [name], name: {**acting(name), field.name: value}})
            except ValueError as error:
                assert str(error).startswith(f"sampler.{name}.{field.name}"), error  # noqa: PT017
                assert " must be " in str(error), error  # noqa: PT017
                assert "got " in str(error), error  # noqa: PT017
            else:
                law = dense(chain.distribution(rows(), history(), coins()))
                np.testing.assert_allclose(law.sum(axis=-1), 1, atol=1e-5, err_msg=f"{field.name}={value}")
