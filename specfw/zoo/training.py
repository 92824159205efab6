"""The training loop: AdamW under a warmed-up cosine, resumed from its last checkpoint as if never interrupted."""

import json
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, final

from specfw.registry import require
from specfw.zoo import checkpoints
from specfw.zoo.batches import Batches
from specfw.zoo.objective import Objective

import mlx.core as mx
from mlx.nn.utils import value_and_grad
from mlx.optimizers import AdamW, clip_grad_norm, cosine_decay, join_schedules, linear_schedule
from mlx.utils import tree_map

LOG = "log.jsonl"


@final
@dataclass(frozen=True, kw_only=True)
class Recipe:
    """The hyperparameters of a run.

    Attributes:
        steps: of the whole schedule.
        rate: the highest learning rate.
        warm_up: steps in which it is reached.
        final_share: of `rate`, where the cosine ends.
        weight_decay: of AdamW.
        clip: the largest norm of a gradient.
        streams: threads of MLX among which a batch is split; on a CPU each works on one core.
        checkpoint_s: seconds between checkpoints.
        log_every: steps between lines of the log.
        eval_every: steps between measurements on held-out text.
    """

    steps: int
    rate: float = 3e-3
    warm_up: int = 100
    final_share: float = 0.02
    weight_decay: float = 0.1
    clip: float = 1.0
    streams: int = 2
    checkpoint_s: float = 600.0
    log_every: int = 20
    eval_every: int = 500

    def __post_init__(self) -> None:
        require("steps", self.steps > self.warm_up, f"more than warm_up ({self.warm_up})", self.steps)
        require("rate", 0 < self.rate < 1, "in (0, 1)", self.rate)
        require("warm_up", self.warm_up >= 1, "1 or more", self.warm_up)
        require("streams", self.streams >= 1, "1 or more", self.streams)

    def optimizer(self) -> AdamW:
        """AdamW whose rate rises linearly, then falls along a half cosine."""
        rise = linear_schedule(self.rate / self.warm_up, self.rate, self.warm_up)
        fall = cosine_decay(self.rate, self.steps - self.warm_up, self.rate * self.final_share)
        schedule = join_schedules([rise, fall], [self.warm_up])
        return AdamW(schedule, betas=[0.9, 0.95], weight_decay=self.weight_decay, bias_correction=True)


def train(
    model: Any,
    objective: Objective,
    batches: Batches,
    recipe: Recipe,
    folder: Path,
    held_out: Callable[[Any], float],
) -> None:
    """Train to the end of the schedule, starting from the checkpoint in `folder` if there is one.

    Args:
        model: changed in place.
        objective: (model, tokens [B, L + 1]) -> loss.
        batches: what each step sees.
        recipe: how.
        folder: outside the work tree; receives checkpoints and the log.
        held_out: the loss on text never trained on, in nats a token.
    """
    optimizer = recipe.optimizer()
    optimizer.init(model.trainable_parameters())
    done = checkpoints.restore(folder, model, optimizer)
    step = _step(model, objective, optimizer, recipe)
    started = saved = time.monotonic()
    losses: list[mx.array] = []
    for index in range(done, recipe.steps):
        losses.append(step(mx.array(batches.at(index))))
        mx.eval(losses[-1], model.state, optimizer.state)
        now = time.monotonic()
        if (index + 1) % recipe.log_every == 0:
            _log(folder, step=index + 1, loss=float(mx.mean(mx.stack(losses))), seconds=round(now - started, 1))
            losses.clear()
        if (index + 1) % recipe.eval_every == 0 or index + 1 == recipe.steps:
            _log(folder, step=index + 1, held_out=held_out(model))
        if now - saved >= recipe.checkpoint_s or index + 1 == recipe.steps:
            checkpoints.save(folder, model, optimizer, index + 1)
            saved = now


def _step(model: Any, objective: Objective, optimizer: AdamW, recipe: Recipe) -> Callable[[mx.array], mx.array]:
    gradient = value_and_grad(model, objective)
    streams = [mx.new_stream(mx.default_device()) for _ in range(recipe.streams)]

    def step(tokens: mx.array) -> mx.array:
        parts = []
        for stream, part in zip(streams, mx.split(tokens, len(streams)), strict=True):
            with mx.stream(stream):
                parts.append(gradient(model, part))
        losses, gradients = zip(*parts, strict=True)
        mean = tree_map(lambda *leaves: sum(leaves) / len(leaves), *gradients)
        clipped, _ = clip_grad_norm(mean, recipe.clip)  # type: ignore[no-untyped-call]
        optimizer.update(model, clipped)
        return mx.mean(mx.stack(list(losses)))

    state = [model.state, optimizer.state]
    compiled: Callable[[mx.array], mx.array] = mx.compile(step, inputs=state, outputs=state)
    return compiled


def _log(folder: Path, **values: float) -> None:
    with (folder / LOG).open("a", encoding="utf-8") as file:
        file.write(json.dumps(values) + "\n")
