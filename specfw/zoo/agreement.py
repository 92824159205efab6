"""How far a drafter's rows overlap its target's, on text and on what the target writes itself."""

from collections.abc import Iterable
from typing import Any, NamedTuple

from specfw.distribution import from_logits
from specfw.zoo.heldout import WINDOW

import mlx.core as mx
from mlx_lm.models.cache import make_prompt_cache

PROMPT = 32


class Agreement(NamedTuple):
    """Means over positions, at one temperature of both models.

    Attributes:
        sum_min: sum_x min(p, q), what modified rejection sampling accepts.
        sum_prod: sum_x p q, how often two independent draws are equal.
        positions: how many.
    """

    sum_min: float
    sum_prod: float
    positions: int


def agreement(target: Any, drafter: Any, batches: Iterable[mx.array], temperature: float) -> Agreement:
    """Both models' rows after every token but the last.

    Args:
        target: mlx-lm's model.
        drafter: another one, with the same tokenizer.
        batches: [B, L] int32 each.
        temperature: above 0.
    """
    overlap, product, count = 0.0, 0.0, 0
    for tokens in batches:
        p, q = (from_logits(model(tokens[:, :-1]) / temperature) for model in (target, drafter))
        least, equal = p.overlap(q), p.product(q)
        overlap += float(least.sum())
        product += float(equal.sum())
        count += least.size
    return Agreement(overlap / count, product / count, count)


def samples(target: Any, prompts: mx.array, temperature: float, seed: int) -> mx.array:
    """What the target writes after prompts.

    Args:
        target: mlx-lm's model.
        prompts: [B, P] int32.
        temperature: above 0.
        seed: of the draws.

    Returns:
        [B, WINDOW + 1] int32, the prompt included.
    """
    cache = make_prompt_cache(target)
    keys = mx.random.split(mx.random.key(seed), WINDOW + 1 - prompts.shape[1])
    text, latest = [prompts], prompts
    for key in keys:
        rows = target(latest, cache=cache)[:, -1] / temperature
        latest = mx.random.categorical(rows, key=key)[:, None].astype(mx.int32)
        mx.eval(latest)
        text.append(latest)
    return mx.concatenate(text, axis=1)
