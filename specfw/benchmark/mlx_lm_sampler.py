"""A sampler chain of ours in the words of mlx-lm's make_sampler, which knows five steps in one order."""

from collections.abc import Mapping
from typing import Any

from specfw.sampling.base import Step
from specfw.sampling.chain import SamplerChain

ORDER = ("top_p", "min_p", "xtc", "top_k", "temperature")
COMMUTING = (frozenset({"top_k", "temperature"}), frozenset({"top_k", "min_p"}))
"""Steps whose order makes no difference: each keeps a number or a share of the largest, whatever the other does."""


def settings(chain: SamplerChain) -> dict[str, Any]:
    """Arguments of make_sampler that draw as `chain` does, ties between equal logits apart.

    Raises:
        ValueError: it cannot; the sentence names the step.
    """
    steps = dict(chain.steps)
    if chain.is_greedy:
        for name, step in steps.items():
            _require(not step.reorders, chain, name, "is no step of its sampler")
        return {"temp": 0.0}
    for name in steps:
        _require(name in ORDER, chain, name, "is no step of its sampler")
    _require_order(chain, list(steps))
    return {key: value for name, step in steps.items() for key, value in _arguments(chain, name, step).items()} | (
        {} if "temperature" in steps else {"temp": 1.0}
    )


def _require_order(chain: SamplerChain, names: list[str]) -> None:
    for place, name in enumerate(names):
        for later in names[place + 1 :]:
            right = ORDER.index(name) < ORDER.index(later) or frozenset({name, later}) in COMMUTING
            _require(right, chain, later, f"acts after {name} here and before it there (sampler=mlx_lm has its order)")


def _arguments(chain: SamplerChain, name: str, step: Step) -> Mapping[str, Any]:
    given: Any = step
    match name:
        case "temperature":
            return {"temp": given.value}
        case "top_k":
            return {"top_k": given.k}
        case "top_p":
            _require(given.min_tokens_to_keep == 1, chain, name, "has no min_tokens_to_keep there")
            return {"top_p": given.p}
        case "min_p":
            return {"min_p": given.p, "min_tokens_to_keep": given.min_tokens_to_keep}
        case _:
            excluded = list(given.excluded)
            return {
                "xtc_probability": given.probability,
                "xtc_threshold": given.threshold,
                "xtc_special_tokens": excluded,
            }


def _require(holds: bool, chain: SamplerChain, name: str, why: str) -> None:
    if not holds:
        raise ValueError(
            f"mlx-lm cannot draw as this chain does: {chain.key}.{name} {why}; "
            "task.arms=[plain,rules] leaves its arms out"
        )
