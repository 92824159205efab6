"""The shipped pair on the reference BLAS, where one row and K + 1 rows give the same bits."""

from specfw.models.checkpoint import Checkpoint

import mlx.core as mx
import numpy as np
import pytest
from kit import chain, decoder, emitted, start

PROMPT = "def fibonacci(n):\n"
LENGTH = 120


@pytest.fixture(scope="module")
def pair():
    return Checkpoint(path="zoo:target").load("target"), Checkpoint(path="zoo:drafter").load("drafter")


@pytest.fixture(scope="module")
def prompt(pair):
    return tuple(pair[0].tokenizer.encode(PROMPT))


def text(parts, prompt, **changes):
    return emitted(start(parts, prompts=[prompt], **changes))[0]


def mlx_lm_greedy(prompt, length):
    from specfw.zoo import folder

    from mlx_lm import load
    from mlx_lm.generate import generate_step

    model, _ = load(str(folder("target")))
    # the checkpoint's float16 weights in float32, as specfw computes them on a CPU
    model.set_dtype(mx.float32)
    steps = generate_step(mx.array(list(prompt)), model, max_tokens=length)
    return [int(token) for token, _ in steps]


def test_greedy_is_mlx_lms_plain_greedy_text(pair, prompt):
    expected = mlx_lm_greedy(prompt, LENGTH)
    greedy = {"sampler": chain(temperature={"value": 0}), "max_tokens": LENGTH}
    assert text(decoder(pair[0], None, "greedy_argmax", **greedy), prompt) == expected
    for k in (1, 4):
        assert text(decoder(*pair, "greedy_argmax", k, **greedy), prompt) == expected


@pytest.mark.parametrize("temperature", [0.7, 1.0])
def test_sampler_match_is_plain_decoding_at_the_same_seed(pair, prompt, temperature):
    sampled = {"sampler": chain(temperature={"value": temperature}), "max_tokens": 60, "seed": 5}
    plain = text(decoder(pair[0], None, "sampler_match", **sampled), prompt)
    for k in (1, 3, 8):
        assert text(decoder(*pair, "sampler_match", k, **sampled), prompt) == plain
    itself = decoder(pair[0], pair[0], "sampler_match", 3, **sampled)
    assert text(itself, prompt) == plain
    assert text(decoder(*pair, "sampler_match", 3, **{**sampled, "seed": 6}), prompt) != plain


def test_a_filtered_chain_keeps_the_same_text_too(pair, prompt):
    steps = {"temperature": {"value": 0.8}, "top_k": {"k": 40}, "top_p": {"p": 0.9}, "repetition": {"penalty": 1.1}}
    sampled = {"sampler": chain(**steps), "max_tokens": 60}
    plain = text(decoder(pair[0], None, "sampler_match", **sampled), prompt)
    for k in (1, 5):
        assert text(decoder(*pair, "sampler_match", k, **sampled), prompt) == plain


def test_rewinding_is_starting_from_scratch(pair, prompt):
    """T6: logits after rounds of rejections are those of a fresh prefill."""
    target = pair[0]
    generation = start(decoder(*pair, "stochastic", 4, max_tokens=40, seed=3), prompts=[prompt])
    for _ in generation:
        pass
    committed = generation.tokens[0, : generation.lengths[0]]
    fresh = target.new_cache(1)
    feed = mx.array(committed[None].astype(np.int32))
    scratch = np.array(target.forward(feed, fresh)[:, -1].astype(mx.float32))
    rewound = np.array(target.forward(feed[:, -1:], generation._cache)[:, -1].astype(mx.float32))
    np.testing.assert_allclose(rewound, scratch, atol=2e-4)
    assert rewound.argmax() == scratch.argmax()


def test_stochastic_accepts_more_than_sampler_match(pair, prompt):
    rates = {}
    for name in ("stochastic", "sampler_match"):
        rounds = list(start(decoder(*pair, name, 4, max_tokens=150, seed=1), prompts=[prompt]))
        accepted = sum(int(o.accepted.sum()) for o in rounds)
        rates[name] = accepted / sum(int(np.minimum(o.accepted + 1, o.proposed).sum()) for o in rounds)
    assert rates["stochastic"] > rates["sampler_match"] + 0.15
