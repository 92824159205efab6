"""The audit on the shipped pair and on mlx-lm's own output: right texts are quiet, wrong claims are named."""

import functools

from specfw.config.composing import conf_dir
from specfw.distribution import Dense
from specfw.parts import Models
from specfw.randomness import Noise
from specfw.types import Block
from specfw.verification.audit import source
from specfw.verification.audit.auditing import Auditor
from specfw.verification.audit.claim import claim
from specfw.verification.audit.source import Case
from specfw.verification.audit.text import Text

import foreign
import mlx.core as mx
import numpy as np
import pytest
import yaml
from kit import ORDER, chain, config, decoder, emitted, rule, shipped, start
from mlx_lm.models.cache import make_prompt_cache
from scipy.stats import binom
from test_losslessness import ResampleFromTarget

PAIR = [{"name": "checkpoint", "path": f"zoo:{role}"} for role in ("target", "drafter")]
PROMPTS = ("def fibonacci(n):\n", "class Node:\n    def __init__(self", "import os\n", "    for i in range(")
FILTERS = {"temperature": {"value": 0.8}, "top_p": {"p": 0.9}, "min_p": {"p": 0.02}}
TIES = {**FILTERS, "top_p": {"p": 0.9, "ties": "keep"}}  # as mlx-lm cuts


def ids(place):
    return tuple(shipped("target").tokenizer.encode(PROMPTS[place % len(PROMPTS)]))


def audit(case, alpha=1e-6):
    orders = yaml.safe_load((conf_dir() / "task" / "audit.yaml").read_text())["orders"]
    return Auditor(seed=0, alpha=alpha, orders=orders).audit(case).numbers


def audit_lines(path, lines):
    path.write_text("\n".join(lines))
    return audit(source.opened(str(path), config(*PAIR)))


# --- ours -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["plain", "sampler_match", "stochastic"])
def test_right_runs_are_quiet(name):
    sampler = chain(**FILTERS, xtc={"probability": 0.3})
    claimed = claim({"order": ORDER, **FILTERS, "xtc": {"probability": 0.3}}, {"order": ORDER}, "a", "b")
    drafter = None if name == "plain" else shipped("drafter")
    texts = []
    for seed in range(3):
        parts = decoder(shipped("target"), drafter, "sampler_match" if name == "plain" else name, 4, sampler=sampler)
        (tokens,) = emitted(start(parts, prompts=[ids(seed)]))
        texts.append(Text(seed, 0, ids(seed), tuple(tokens), claimed))
    found = audit(Case(Models(shipped("target"), shipped("drafter")), False, tuple(texts), 512))
    assert (found["verdict"], found["tokens"]) == ("passed", 192)
    assert found["log10_e_value"] < 3
    assert found["edge_tokens"] == found["impossible_tokens"] == 0


def untouched():
    return claim({"order": ORDER}, {"order": ORDER}, "sampler", "draft_sampler")


def first_tokens(acceptance, batch, length, seed=0, place=0):
    """[batch, length] texts of the shipped pair, every token the first of a round; so all rows keep in step.

    The rule decides on a block of one draft token, by production's own code, and its bonus token is not used.
    """
    prompt, sampler = ids(place), chain()
    feed = mx.array([prompt] * batch, dtype=mx.int32)
    models = [foreign.module(role) for role in ("target", "drafter")]
    caches = [make_prompt_cache(model) for model in models]
    text = []
    for step in range(length):
        p, q = (
            sampler.distribution(model(feed, cache=cache)[:, -1:], None, None).probs
            for model, cache in zip(models, caches, strict=True)
        )
        noise = Noise(
            seed=seed,
            prompt=np.zeros(batch, dtype=np.int64),
            sample=np.arange(batch),
            position=np.full(batch, len(prompt) + step),
            round=step,
            vocab_size=p.shape[-1],
        )
        draft = Dense(q).draw(noise.draft(0)[:, None])
        block = Block(Dense(mx.concatenate([p, p], axis=1)), Dense(q), draft, mx.ones((batch,), dtype=mx.int32))
        verdict = acceptance.decide(block, noise)
        feed = mx.where(verdict.accepted[:, None] > 0, draft, verdict.token[:, None])
        mx.eval(feed)
        text.append(np.array(feed)[:, 0])
    rows = np.stack(text, axis=1).tolist()
    return [Text(0, sample, prompt, tuple(row), untouched()) for sample, row in enumerate(rows)]


def case_of(texts):
    return Case(Models(shipped("target"), shipped("drafter")), False, tuple(texts), 512)


def test_drawing_from_the_target_for_the_residual_is_rejected_within_1000_tokens():
    found = audit(case_of(first_tokens(ResampleFromTarget(), 25, 40)))
    assert found["verdict"] == "failed"
    assert found["named"] in ("ratio_power_+0.1", "ratio_power_+0.3")
    assert found["first_rejected_after"] <= 1000


@pytest.mark.slow
def test_real_runs_of_that_fault_are_rejected_within_1000_tokens():
    """With the bonus tokens, which are right, between the wrong ones."""
    texts = []
    for seed in range(4):
        parts = decoder(shipped("target"), shipped("drafter"), ResampleFromTarget(), 4, max_tokens=250, seed=seed)
        (tokens,) = emitted(start(parts, prompts=[ids(seed)]))
        texts.append(Text(seed, 0, ids(seed), tuple(tokens), untouched()))
    found = audit(case_of(texts))
    assert found["verdict"] == "failed"
    assert found["named"] in ("ratio_power_+0.1", "ratio_power_+0.3")
    assert found["first_rejected_after"] <= 1000


@pytest.mark.slow
def test_two_hundred_seeds_of_the_shipped_pair_keep_the_promised_rate():
    """Ville: at alpha = .05 a right text is ever rejected with probability .05 at most."""
    seeds, alpha = 200, 0.05
    texts = first_tokens(rule("stochastic"), seeds, 32, seed=7, place=2)
    verdicts = [audit(case_of([text]), alpha) for text in texts]
    assert {found["tokens"] for found in verdicts} == {32}
    assert sum(found["verdict"] == "failed" for found in verdicts) <= binom.isf(1e-4, seeds, alpha)


# --- mlx-lm -----------------------------------------------------------------------------------------------------------


@functools.cache
def plain_of_mlx_lm(length=240, temp=0.8, top_p=0.9, min_p=0.02):
    settings = {"temp": temp, "top_p": top_p, "min_p": min_p}
    return foreign.plain(ids(0), length, 1, **settings)


def test_mlx_lms_plain_text_is_quiet_under_its_own_chain(tmp_path):
    found = audit_lines(tmp_path / "x.jsonl", [foreign.line(ids(0), plain_of_mlx_lm(), **TIES)])
    assert (found["verdict"], found["tokens"], found["impossible_tokens"]) == ("passed", 240, 0)


def test_a_wrong_filter_order_is_named(tmp_path):
    """Below T = 1 our order cuts more than mlx-lm's, so its text holds tokens that ours cannot make."""
    found = audit_lines(tmp_path / "x.jsonl", [foreign.line(ids(0), plain_of_mlx_lm(), ORDER, **TIES)])
    assert (found["verdict"], found["named"]) == ("failed", "order_mlx_lm+llama_cpp")
    assert found["first_rejected_after"] <= 100
    assert "order_mlx_lm+llama_cpp" in found["first_impossible"]["possible_under"]


@pytest.mark.slow
def test_a_wrong_filter_order_is_named_without_impossible_tokens(tmp_path):
    """Above T = 1 our order cuts less."""
    tokens = foreign.plain(ids(0), 200, 2, temp=1.3, top_p=0.9)
    hot = {"temperature": {"value": 1.3}, "top_p": {"p": 0.9, "ties": "keep"}}
    assert audit_lines(tmp_path / "x.jsonl", [foreign.line(ids(0), tokens, **hot)])["verdict"] == "passed"
    found = audit_lines(tmp_path / "y.jsonl", [foreign.line(ids(0), tokens, ORDER, **hot)])
    assert (found["named"], found["impossible_tokens"]) == ("order_mlx_lm+llama_cpp", 0)


@pytest.mark.slow
def test_a_wrong_temperature_is_named(tmp_path):
    tokens = plain_of_mlx_lm(600)
    found = audit_lines(tmp_path / "x.jsonl", [foreign.line(ids(0), tokens, **{**TIES, "temperature": {"value": 1.2}})])
    assert (found["verdict"], found["named"]) == ("failed", "temperature_x0.9")


@pytest.mark.slow
def test_the_coin_that_mlx_lm_shares_in_a_block_is_named(tmp_path):
    steps = {"temperature": {"value": 0.2}, "xtc": {"probability": 0.5, "threshold": 0.05}}
    settings = {"temp": 0.2, "xtc_probability": 0.5, "xtc_threshold": 0.05}
    texts = [foreign.speculative(ids(seed), 300, seed, 2, drafter="target", **settings) for seed in range(3)]
    lines = [foreign.line(ids(seed), tokens, **steps) for seed, tokens in enumerate(texts)]
    found = audit_lines(tmp_path / "x.jsonl", lines)
    assert found["verdict"] == "failed"
    assert found["named"].startswith("xtc_coin_of_")
    plain = [foreign.line(ids(seed), foreign.plain(ids(seed), 150, seed, **settings), **steps) for seed in range(2)]
    assert audit_lines(tmp_path / "y.jsonl", plain)["verdict"] == "passed"
