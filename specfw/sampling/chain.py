"""The sampler chain: one ordered list of steps, and the only way from logits to a distribution."""

import dataclasses
import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Self, final

from specfw.distribution import Categorical, from_logits, point_mass
from specfw.registry import component, construct, names, require
from specfw.sampling.base import Logits, Scene, Step
from specfw.types import History

import mlx.core as mx


@final
@dataclass(frozen=True, kw_only=True)
class SamplerChain:
    """Steps in the order they act, for target and drafter alike.

    Attributes:
        order: every listed step, neutral ones included.
        steps: (name, step) of those that act, in order; neutral ones are skipped entirely.
        key: where the chain stands in the configuration, for error messages.
    """

    order: tuple[str, ...]
    steps: tuple[tuple[str, Step], ...]
    key: str = "sampler"

    @classmethod
    def from_config(cls, node: Mapping[str, Any], key: str = "sampler") -> Self:
        """Build the chain from `order` and a mapping of fields for each step; a missing step is neutral.

        Args:
            node: plain values.
            key: full key of `node`.

        Raises:
            ValueError: an unknown step or field, a value out of range, a step twice in the order, a configured
                step missing from it, or a random step in a greedy chain; with its full key.
        """
        steps = {name: _step(name, values, key) for name, values in node.items() if name != "order"}
        order = _order(node.get("order"), key)
        for name, step in steps.items():
            if name not in order and not step.neutral:
                raise ValueError(
                    f"{key}.order must list every configured step, {name} is missing: "
                    f"{key}.{name}.{step.strength} is {getattr(step, step.strength)!r}"
                )
        active = tuple((name, steps[name]) for name in order if name in steps and not steps[name].neutral)
        chain = cls(order=order, steps=active, key=key)
        chain._refuse_random_greedy()
        return chain

    def distribution(self, logits: mx.array, history: History | None, coin: mx.array | None) -> Categorical:
        """The law of the token at each position; lazy, and the logits are left as they are.

        Args:
            logits: [B, T, V] in any floating type; cast to float32 here, once (float64 stays).
            history: what the positions may look back at; may be None unless `needs_history`.
            coin: [B, T] uniform; may be None unless `needs_coin`.

        Returns:
            Rows [B, T, V]. A row is NaN if a logit is NaN or +inf or if no id is left.
        """
        values = logits if logits.dtype == mx.float64 else logits.astype(mx.float32)
        if any(step.removes for _, step in self.steps):
            # a broken logit must not vanish behind a filter: it breaks its row as a whole
            values = values + 0 * mx.max(values, axis=-1, keepdims=True)
        state, scene = Logits(values, None, values.shape[-1]), Scene(history, coin)
        if self.is_greedy:
            return _lowest_maximum(_run(self._deciding(), state, scene))
        state = _run(self.steps, state, scene)
        return from_logits(state.values, state.ids)

    @property
    def is_greedy(self) -> bool:
        """Whether every row is a point mass: temperature 0, or top_k 1 that no random step acts before."""
        return self._greedy_step() is not None

    @property
    def needs_coin(self) -> bool:
        """Whether `distribution` uses the coin."""
        return any(step.random for _, step in self.steps)

    @property
    def needs_history(self) -> bool:
        """Whether `distribution` looks at the history."""
        return any(step.remembers for _, step in self.steps)

    @property
    def digest(self) -> str:
        """12 hexadecimal digits of the SHA-256 of the order and of every field of the steps that act."""
        fields = {name: dataclasses.asdict(step) for name, step in self.steps}  # type: ignore[call-overload]
        text = json.dumps([self.order, fields], sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:12]

    def describe(self) -> list[str]:
        """The steps that act, in order, each with the fields that are not at their defaults."""
        return [f"{name}({_changed(step)})" for name, step in self.steps]

    def check(self, vocab_size: int) -> None:
        """Refuse token ids that the target's vocabulary does not have.

        Raises:
            ValueError: names the key, the allowed interval and the id.
        """
        for name, step in self.steps:
            for field, ids in step.named_ids().items():
                for token in ids:
                    require(f"{self.key}.{name}.{field}", token < vocab_size, f"ids in [0, {vocab_size})", token)

    def _deciding(self) -> tuple[tuple[str, Step], ...]:
        """The steps up to the last that may change which id is largest."""
        last = max((place for place, (_, step) in enumerate(self.steps) if step.reorders), default=-1)
        return self.steps[: last + 1]

    def _greedy_step(self) -> tuple[str, Step] | None:
        after_random = False
        for name, step in self.steps:
            if step.greedy(after_random):
                return name, step
            after_random = after_random or step.random
        return None

    def _refuse_random_greedy(self) -> None:
        greedy = self._greedy_step()
        for name, step in self.steps:
            if greedy is not None and step.random:
                field, decided = f"{self.key}.{name}.{step.strength}", greedy[1].strength
                raise ValueError(
                    f"{field} must be 0 where {self.key}.{greedy[0]}.{decided} makes decoding greedy "
                    f"({getattr(greedy[1], decided)!r}), got {getattr(step, step.strength)!r}"
                )


def _step(name: str, values: Any, key: str) -> Step:
    if name not in names("filter"):
        raise ValueError(f"{key}.{name} is not a step; allowed: {', '.join(names('filter'))}")
    cls, where = component("filter", name), f"{key}.{name}"
    fields = ", ".join(field.name for field in dataclasses.fields(cls))
    require(where, isinstance(values, Mapping), f"a mapping with the keys {fields}", values)
    step: Step = construct(cls, values, where)
    return step


def _order(given: Any, key: str) -> tuple[str, ...]:
    require(f"{key}.order", isinstance(given, list | tuple), "a list of steps", given)
    order = tuple(given)
    for place, name in enumerate(order):
        require(f"{key}.order", name in names("filter"), f"made of: {', '.join(names('filter'))}", name)
        require(f"{key}.order", name not in order[:place], "a list that names each step once", name)
    return order


def _run(steps: Iterable[tuple[str, Step]], state: Logits, scene: Scene) -> Logits:
    for _, step in steps:
        state = step.apply(state, scene)
    return state


def _lowest_maximum(state: Logits) -> Categorical:
    """A point mass on the lowest id among the maxima; NaN where the row is broken or empty."""
    entry = mx.argmax(state.values, axis=-1).astype(mx.int32)
    ids = entry if state.ids is None else mx.take_along_axis(state.ids, entry[..., None], axis=-1)[..., 0]
    mass = point_mass(ids, state.values.dtype)
    return mass._replace(probs=mass.probs + 0 * mx.max(state.values, axis=-1, keepdims=True))


def _changed(step: Step) -> str:
    fields = dataclasses.fields(step)  # type: ignore[arg-type]
    plain = type(step)()
    changed = (field.name for field in fields if getattr(step, field.name) != getattr(plain, field.name))
    return ", ".join(f"{name}={getattr(step, name)}" for name in changed)
