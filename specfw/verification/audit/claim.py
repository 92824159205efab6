"""What a text claims of itself, and the chains that others would have followed in its place: named alternatives."""

import dataclasses
import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from specfw.sampling.base import Step
from specfw.sampling.chain import SamplerChain
from specfw.sampling.min_p import MinP
from specfw.sampling.temperature import Temperature
from specfw.sampling.top_k import TopK
from specfw.sampling.top_p import TopP
from specfw.sampling.xtc import Xtc

TEMPERATURES = (0.9, 1.1)
LOOSER = 1e-3
"""By how much the threshold of a filter is relaxed to find the tokens at its edge; top_k by one token."""


class Claim(NamedTuple):
    """The law that a text says it follows.

    Attributes:
        chain: the target's.
        draft_chain: the drafter's.
    """

    chain: SamplerChain
    draft_chain: SamplerChain

    def digest(self) -> str:
        """Equal for claims of one law."""
        return json.dumps([self.chain.digest, self.draft_chain.digest])


def claim(sampler: Mapping[str, Any], draft_sampler: Mapping[str, Any], key: str, draft_key: str) -> Claim:
    """The claim in plain values, as a configuration or a foreign file holds them.

    Args:
        sampler: of the target, with its `order`.
        draft_sampler: of the drafter.
        key: full key of `sampler`, for error messages.
        draft_key: full key of `draft_sampler`.

    Raises:
        ValueError: no chain, or one with a random step whose coin is not known.
    """
    made = Claim(SamplerChain.from_config(sampler, key), SamplerChain.from_config(draft_sampler, draft_key))
    for chain in made:
        for name, step in chain.steps:
            if step.random and not isinstance(step, Xtc):
                raise ValueError(f"{chain.key}.order must hold no random step but xtc to be audited, got {name!r}")
    return made


def coin_probability(chain: SamplerChain) -> float:
    """How often XTC's coin touches a position, 0 where there is none."""
    return next((step.probability for _, step in chain.steps if isinstance(step, Xtc)), 0.0)


def relaxed(chain: SamplerChain) -> SamplerChain:
    """The chain with every filter's threshold loosened a little."""
    return _of(chain, {name: _looser(step) for name, step in chain.steps})


def others(chain: SamplerChain, orders: Mapping[str, Sequence[str]]) -> dict[str, SamplerChain]:
    """The named alternatives that are chains: other temperatures, other orders, no XTC.

    An order that lacks a step that acts is no alternative; orders that come to the same are one.

    Args:
        chain: the claimed one, not greedy.
        orders: lists of steps by name.
    """
    steps = dict(chain.steps)
    found = dict(_temperatures(chain))
    if "xtc" in steps:
        found["no_xtc"] = _of(chain, {name: step for name, step in chain.steps if name != "xtc"})
    alike: dict[tuple[str, ...], list[str]] = {}
    for name, order in orders.items():
        acting = tuple(step for step in order if step in steps)
        if set(acting) == set(steps) and acting != tuple(steps):
            alike.setdefault(acting, []).append(name)
    for acting, named in alike.items():
        reordered = tuple((step, steps[step]) for step in acting)
        found[f"order_{'+'.join(named)}"] = dataclasses.replace(chain, steps=reordered)
    return found


def reordering(chain: SamplerChain) -> SamplerChain:
    """What decides a greedy chain: bias and penalties alone."""
    return dataclasses.replace(chain, steps=tuple((name, step) for name, step in chain.steps if step.reorders))


def _temperatures(chain: SamplerChain) -> Iterator[tuple[str, SamplerChain]]:
    if "temperature" not in chain.order:
        return
    held = dict(chain.steps).get("temperature", Temperature())
    assert isinstance(held, Temperature)
    for factor in TEMPERATURES:
        step = Temperature(value=held.value * factor)
        yield f"temperature_x{factor}", _of(chain, {**dict(chain.steps), "temperature": step})


def _of(chain: SamplerChain, steps: Mapping[str, Step]) -> SamplerChain:
    acting = tuple((name, steps[name]) for name in chain.order if name in steps and not steps[name].neutral)
    return dataclasses.replace(chain, steps=acting)


def _looser(step: Step) -> Step:
    match step:
        case MinP():
            return dataclasses.replace(step, p=max(step.p - LOOSER, 0))
        case TopP():
            return dataclasses.replace(step, p=min(step.p + LOOSER, 1))
        case TopK():
            return dataclasses.replace(step, k=step.k + 1)
        case Xtc():
            return dataclasses.replace(step, threshold=min(step.threshold + LOOSER, 0.5))
    return step
