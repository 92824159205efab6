"""What training minimises: the text's next token, or a target's whole row (distillation)."""

from collections.abc import Callable
from typing import Any

from specfw.zoo.forward import logits, softmax

import mlx.core as mx

Objective = Callable[[Any, mx.array], mx.array]


def next_token(model: Any, tokens: mx.array) -> mx.array:
    """The mean over positions of -log p(next token), in nats.

    Args:
        model: mlx-lm's llama.
        tokens: [B, L + 1] int32.
    """
    rows = logits(model, tokens[:, :-1])
    return _cross_entropy(rows, softmax(mx.stop_gradient(rows)), tokens[:, 1:])


def distillation(target: Any, text_share: float) -> Objective:
    """The mean of -sum_x p(x) log q(x): KL(p || q) plus p's own entropy, which does not depend on the drafter.

    Args:
        target: mlx-lm's llama, left as it is; p is its row at temperature 1.
        text_share: the weight of `next_token`, in [0, 1]; the rest is the weight of the target's rows.
    """

    def objective(drafter: Any, tokens: mx.array) -> mx.array:
        p = mx.stop_gradient(softmax(logits(target, tokens[:, :-1])))
        rows = logits(drafter, tokens[:, :-1])
        q = softmax(mx.stop_gradient(rows))
        loss = (1 - text_share) * _value_with_gradient(-(p * mx.log(q)).sum(axis=-1), q - p, rows)
        return loss + text_share * _cross_entropy(rows, q, tokens[:, 1:]) if text_share else loss

    return objective


def _cross_entropy(rows: mx.array, q: mx.array, labels: mx.array) -> mx.array:
    label = labels[..., None]
    value = -mx.log(mx.take_along_axis(q, label, axis=-1)).squeeze(-1)
    return _value_with_gradient(value, q, rows) - _gradient_only(mx.take_along_axis(rows, label, axis=-1))


def _value_with_gradient(value: mx.array, gradient: mx.array, rows: mx.array) -> mx.array:
    """mean(value), whose derivative by `rows` is `gradient` over the number of positions.

    The gradient of a cross-entropy is the difference of two softmaxes that are there already: differentiating
    through its logarithm would take the exponentials a second time.
    """
    return value.mean() + _gradient_only((mx.stop_gradient(gradient) * rows).sum(axis=-1))


def _gradient_only(x: mx.array) -> mx.array:
    mean = x.mean()
    return mean - mx.stop_gradient(mean)
