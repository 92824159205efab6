"""What takes turns at one size: our rules, the same with a truncation, three in numpy, and a softmax."""

from collections.abc import Callable, Mapping, Sequence
from time import perf_counter
from typing import TypeAlias

from specfw.acceptance._guard import Facts
from specfw.acceptance.base import AcceptanceRule
from specfw.benchmark.deciding import in_numpy
from specfw.benchmark.deciding.arrays import Arrays
from specfw.randomness import Noise
from specfw.sampling.chain import SamplerChain
from specfw.types import Block, Verdict

import mlx.core as mx
import numpy as np

Contender: TypeAlias = Callable[[int], object]
"""Decides once; the number of the repeat gives it draws of its own."""

SOFTMAX = "mx.softmax"
_COPIED_BYTES, _COPIES = 2**26, 9


def chain(top_k: int) -> SamplerChain:
    """Temperature 1, and a truncation unless `top_k` is 0."""
    return SamplerChain.from_config({"order": ["top_k"], "top_k": {"k": top_k}})


def contenders(made: Arrays, rules: Mapping[str, AcceptanceRule], top_k: int, seed: int) -> dict[str, Contender]:
    """By name: `<rule>`, `<rule> top_k`, `<rule> numpy`, and the softmax over the same 2K + 1 rows."""
    target, draft, tokens = (mx.array(part)[None] for part in made)
    rows = mx.concatenate([target, draft], axis=1)[0]
    mx.eval(target, draft, tokens, rows)
    found: dict[str, Contender] = {SOFTMAX: lambda _: mx.eval(mx.softmax(rows, axis=-1))}
    for name, rule in rules.items():
        for suffix, kept in (("", 0), (" top_k", top_k)):
            found[f"{name}{suffix}"] = _ours(rule, chain(kept), (target, draft, tokens), seed)
        if name in in_numpy.RULES:
            found[f"{name} numpy"] = _numpys(in_numpy.RULES[name], made, in_numpy.Random(seed))
    return found


def decided(rule: AcceptanceRule, rows: SamplerChain, logits: Sequence[mx.array], noise: Noise) -> Verdict:
    """A round as the loop decides it: both models' rows, the rule, the check of the block, one evaluation.

    Args:
        rule: of acceptance.
        rows: the chain of both models.
        logits: [1, K+1, V] of the target, [1, K, V] of the drafter, and the draft tokens [1, K] int32.
        noise: its draws.
    """
    target, draft, tokens = logits
    p, q = rows.distribution(target, None, None), rows.distribution(draft, None, None)
    block = Block(p, q, tokens, mx.array([tokens.shape[1]], dtype=mx.int32))
    verdict = rule.decide(block, noise)
    mx.eval(verdict.accepted, verdict.token, verdict.degenerate, Facts.of(block, verdict.survival))
    return verdict


def noise_of(repeat: int, seed: int, vocab_size: int) -> Noise:
    """The draws of a repeat."""
    first = np.zeros(1, dtype=np.int64)
    return Noise(seed=seed, prompt=first, sample=first, position=first, round=repeat, vocab_size=vocab_size)


def _ours(rule: AcceptanceRule, rows: SamplerChain, logits: Sequence[mx.array], seed: int) -> Contender:
    return lambda repeat: decided(rule, rows, logits, noise_of(repeat, seed, logits[0].shape[-1]))


def _numpys(rule: in_numpy.Rule, made: Arrays, draws: in_numpy.Draws) -> Contender:
    return lambda _: rule(made, draws)


def copy_bandwidth() -> float:
    """Bytes a second, those read and those written, of a copy of 64 MiB; the median of nine after one."""
    source = np.ones(_COPIED_BYTES // 4, dtype=np.float32)
    copy = np.empty_like(source)
    taken = []
    for _ in range(1 + _COPIES):
        start = perf_counter()
        np.copyto(copy, source)
        taken.append(perf_counter() - start)
    return 2 * _COPIED_BYTES / float(np.median(taken[1:]))
