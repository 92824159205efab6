"""The chain as a whole: its order, what it refuses, greedy decoding, what it says of itself."""

import math
import re

from specfw.distribution import Survivors
from specfw.sampling.chain import SamplerChain
from specfw.types import History

import kit
import mlx.core as mx
import numpy as np
import pytest

LOGITS = [[[1.0, 3.0, 2.0, 3.0, -1.0, 0.5, 0.0, -2.0]]]
HISTORY = History((np.array([1, 1, 3]),), np.array([1]), mx.zeros((1, 0), dtype=mx.int32))


def law(chain, logits=LOGITS, coin=0.0):
    return chain.distribution(mx.array(logits), HISTORY, mx.array([[coin]]))


def drawn(chain, logits=LOGITS):
    """The id of a greedy chain."""
    row = law(chain, logits)
    assert isinstance(row, Survivors)
    assert row.probs.tolist() == [[[1.0]]]
    return row.ids.item()


def test_an_empty_chain_is_the_softmax():
    row = np.array(law(kit.chain(order=[])).probs)[0, 0]
    np.testing.assert_allclose(row, np.exp(LOGITS[0][0]) / np.exp(LOGITS[0][0]).sum(), atol=1e-6)


def test_order_is_data():
    strengths = {"temperature": {"value": 4.0}, "top_p": {"p": 0.5}, "repetition": {"penalty": 1.5}}
    orders = (["temperature", "top_p", "repetition"], ["top_p", "temperature", "repetition"], kit.ORDER)
    chains = [kit.chain(order=order, **strengths) for order in orders]
    first, second, third = (np.array(law(chain).probs)[0, 0] for chain in chains)
    assert not np.allclose(first, second, atol=1e-2)
    assert not np.allclose(first, third, atol=1e-2)
    assert len({chain.digest for chain in chains}) == 3


def test_describe_says_what_acts_in_order():
    chain = kit.chain(top_k={"k": 2, "ties": "keep"}, temperature={"value": 0.5}, top_p={"p": 1.0}, bias={"ban": [3]})
    assert chain.describe() == ["bias(ban=(3,))", "temperature(value=0.5)", "top_k(k=2, ties=keep)"]
    assert chain.order == tuple(kit.ORDER)


def test_the_digest_knows_order_and_acting_steps_and_nothing_else():
    chain = kit.chain(temperature={"value": 0.5})
    assert re.fullmatch("[0-9a-f]{12}", chain.digest)
    assert chain.digest == kit.chain("draft_sampler", temperature={"value": 0.5}, xtc={"threshold": 0.2}).digest
    others = [
        kit.chain(temperature={"value": 0.6}),
        kit.chain(temperature={"value": 0.5}, top_k={"k": 1}),
        kit.chain(temperature={"value": 0.5}, bias={"values": {1: -math.inf}}),
        kit.chain(temperature={"value": 0.5}, bias={"values": {2: -math.inf}}),
        kit.chain(order=kit.ORDER[1:], temperature={"value": 0.5}),
    ]
    assert len({chain.digest, *(other.digest for other in others)}) == 6


def test_needs_only_what_acts():
    plain = kit.chain(temperature={"value": 0.5}, repetition={"window": 3}, xtc={"threshold": 0.2})
    assert not plain.needs_coin
    assert not plain.needs_history
    plain.distribution(mx.array(LOGITS), None, None)
    assert kit.chain(xtc={"probability": 0.5}).needs_coin
    for name, strength in (("repetition", "penalty"), ("frequency", "penalty"), ("dry", "multiplier")):
        assert kit.chain(**{name: {strength: 2.0}}).needs_history


@pytest.mark.parametrize(
    ("node", "message"),
    [
        ({}, "s.order must be a list of steps, got None"),
        ({"order": "temperature"}, "s.order must be a list of steps, got 'temperature'"),
        ({"order": ["tempo"]}, "s.order must be made of: bias, .*, xtc, got 'tempo'"),
        ({"order": [["xtc"]]}, r"s.order must be made of: .*, got \['xtc'\]"),
        ({"order": ["xtc", "top_k", "xtc"]}, "s.order must be a list that names each step once, got 'xtc'"),
        ({"order": [], "tempo": {"value": 1}}, "s.tempo is not a step; allowed: bias, .*, xtc"),
        ({"order": [], "temperature": 0.7}, "s.temperature must be a mapping with the keys value, got 0.7"),
        ({"order": [], "top_k": {"n": 3}}, "s.top_k.n is not a key; allowed: k, ties"),
        ({"order": [], "top_k": {"k": 3}}, "s.order must list every configured step, top_k is missing: s.top_k.k is 3"),
        ({"order": ["top_k"], "top_k": {"k": -1}}, r"s.top_k.k must be in \[0, inf\), got -1"),
        ({"order": ["top_k"], "top_k": {"k": 2.5}}, "s.top_k.k must be of type int, got 2.5"),
        ({"order": ["top_k"], "top_k": {"ties": "some"}}, "s.top_k.ties must be one of: drop, keep, got 'some'"),
        ({"order": ["top_p"], "top_p": {"p": 0}}, r"s.top_p.p must be in \(0, 1\], got 0.0"),
        ({"order": ["min_p"], "min_p": {"p": 1.5}}, r"s.min_p.p must be in \[0, 1\], got 1.5"),
        (
            {"order": ["repetition"], "repetition": {"penalty": 0}},
            r"s.repetition.penalty must be in \[1e-30, .*got 0.0",
        ),
        ({"order": ["bias"], "bias": {"values": {-1: 2.0}}}, r"s.bias.values must be made of token ids .*, got -1"),
        ({"order": ["bias"], "bias": {"values": {4: math.inf}}}, r"s.bias.values.4 must be in .* or -inf, got inf"),
        ({"order": ["bias"], "bias": {"ban": [2, -3]}}, "s.bias.ban must be made of token ids .*, got -3"),
        ({"order": ["dry"], "dry": {"include_prompt": "yes"}}, "s.dry.include_prompt must be true or false, got 'yes'"),
    ],
)
def test_refusals_name_key_allowed_and_value(node, message):
    with pytest.raises(ValueError, match=f"^{message}$"):
        SamplerChain.from_config(node, "s")


def test_an_unlisted_neutral_step_is_no_error():
    assert kit.chain(order=["temperature"], top_k={"k": 0, "ties": "keep"}, dry={"window": 9}).steps == ()


def test_ids_are_held_against_the_vocabulary():
    chain = kit.chain(bias={"values": {7: 1.0}, "ban": [3]}, dry={"multiplier": 1.0, "breakers": [8]})
    chain.check(9)
    with pytest.raises(ValueError, match=r"^sampler\.dry\.breakers must be ids in \[0, 8\), got 8$"):
        chain.check(8)
    with pytest.raises(ValueError, match=r"^sampler\.bias\.values must be ids in \[0, 7\), got 7$"):
        chain.check(7)
    kit.chain(dry={"breakers": [8]}).check(2)


# greedy


@pytest.mark.parametrize(
    "steps", [{"temperature": {"value": 0}}, {"temperature": {"value": -0.0}}, {"top_k": {"k": 1}}]
)
def test_greedy_takes_the_lowest_id_among_the_maxima(steps):
    chain = kit.chain(**steps)
    assert chain.is_greedy
    assert drawn(chain) == 1
    assert drawn(kit.chain(**steps, bias={"ban": [1]})) == 3
    assert drawn(kit.chain(**steps, bias={"values": {4: 9.0}})) == 4
    assert drawn(kit.chain(**steps, repetition={"penalty": 4.0})) == 2
    assert drawn(kit.chain(**steps, frequency={"penalty": 0.1})) == 3


@pytest.mark.parametrize("steps", [{}, {"temperature": {"value": 1e-300}}, {"top_k": {"k": 1, "ties": "keep"}}])
def test_what_is_not_greedy(steps):
    chain = kit.chain(**steps)
    assert not chain.is_greedy
    row = law(chain)
    assert np.count_nonzero(np.array(row.probs)) >= 2


def test_greedy_does_what_the_sampled_chain_tends_to():
    # a filter before a penalty decides what the penalty can promote
    order = ["top_k", "frequency", "temperature"]
    steps = {"top_k": {"k": 2}, "frequency": {"penalty": 5.0}}
    greedy = kit.chain(order=order, temperature={"value": 0}, **steps)
    cold = kit.chain(order=order, temperature={"value": 1e-30}, **steps)
    assert drawn(greedy) == np.argmax(np.array(law(cold).probs)) == 3
    assert drawn(kit.chain(temperature={"value": 0}, frequency={"penalty": 5.0})) == 2
    one = kit.chain(order=order, top_k={"k": 1}, frequency={"penalty": 5.0})
    assert one.is_greedy
    assert drawn(one) == 1


def test_filters_do_not_touch_the_greedy_choice():
    steps = {"top_p": {"p": 0.3}, "min_p": {"p": 1.0}, "top_k": {"k": 5}}
    assert drawn(kit.chain(temperature={"value": 0}, **steps)) == 1


def test_a_random_step_in_a_greedy_chain_is_refused_with_both_keys():
    message = (
        r"^sampler\.xtc\.probability must be 0 where sampler\.temperature\.value makes decoding greedy \(0\.0\), got"
    )
    for order in (kit.ORDER, ["xtc", "temperature"]):
        with pytest.raises(ValueError, match=message):
            kit.chain(order=order, temperature={"value": 0}, xtc={"probability": 0.1})
    message = r"^draft_sampler\.xtc\.probability must be 0 where draft_sampler\.top_k\.k makes decoding greedy \(1\)"
    with pytest.raises(ValueError, match=message):
        kit.chain("draft_sampler", top_k={"k": 1}, xtc={"probability": 0.1})


def test_top_k_of_one_after_a_random_step_is_drawn():
    chain = kit.chain(order=["xtc", "top_k"], top_k={"k": 1}, xtc={"probability": 0.5, "threshold": 0.1})
    assert not chain.is_greedy
    assert [law(chain, coin=coin).ids.item() for coin in (0.5, 0.49)] == [1, 2]


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_greedy_does_not_hide_a_broken_row(bad):
    logits = np.array(LOGITS * 2)
    logits[1, 0, 4] = bad
    rows = kit.chain(temperature={"value": 0}).distribution(mx.array(logits), None, None)
    assert np.isnan(np.array(rows.probs)).ravel().tolist() == [False, True]


def test_every_form_of_a_greedy_chain_is_a_point_mass_for_every_position():
    logits = mx.random.normal((3, 5, 64), key=mx.random.key(0))
    rows = kit.chain(temperature={"value": 0}).distribution(logits, None, None)
    assert rows.probs.shape == (3, 5, 1)
    assert np.array_equal(np.array(rows.ids)[..., 0], np.array(logits).argmax(axis=-1))
