"""The repeats at every size: contenders take turns in rotating order, and a first turn does not count."""

from collections.abc import Callable, Mapping
from statistics import median
from typing import Any, NamedTuple

from specfw.acceptance.base import AcceptanceRule
from specfw.benchmark.arms import Clock
from specfw.benchmark.deciding import in_torch
from specfw.benchmark.deciding.arrays import arrays
from specfw.benchmark.deciding.contenders import SOFTMAX, contenders, copy_bandwidth
from specfw.benchmark.measuring import rotated
from specfw.benchmark.numbers import Ratio, paired

import mlx.core as mx

MATCH, STOCHASTIC = "sampler_match", "stochastic"


class Size(NamedTuple):
    """All times at one size.

    Attributes:
        vocab_size: V.
        num_draft_tokens: K.
        seconds: of each repeat, by contender.
        torch_s: of each repeat of transformers' function; empty where it did not run.
        floor_s: the bytes of all logits over the copy bandwidth.
    """

    vocab_size: int
    num_draft_tokens: int
    seconds: dict[str, list[float]]
    torch_s: list[float]
    floor_s: float

    def times(self, name: str, other: str) -> Ratio | None:
        """How many times as long `name` takes as `other`; None where one of them did not run."""
        if name == other or name not in self.seconds or other not in self.seconds:
            return None
        return paired(self.seconds[name], self.seconds[other])


class Deciding(NamedTuple):
    """A finished benchmark of the rules.

    Attributes:
        sizes: in order.
        rules: names of the rules.
        top_k: of the truncation.
        copy_bytes_per_s: the measured bandwidth.
        torch: why transformers' function did not run; None where it did.
        repeats: that count.
    """

    sizes: tuple[Size, ...]
    rules: tuple[str, ...]
    top_k: int
    copy_bytes_per_s: float
    torch: str | None
    repeats: int

    @property
    def passed(self) -> bool:
        """Whether nothing failed; a benchmark that ends has passed."""
        return True


class Plan(NamedTuple):
    """What is asked.

    Attributes:
        sizes: pairs of V and K.
        rules: by name.
        top_k: of the truncation.
        repeats: that count.
        seed: of logits and draws.
        threads: of torch.
    """

    sizes: tuple[tuple[int, int], ...]
    rules: Mapping[str, AcceptanceRule]
    top_k: int
    repeats: int
    seed: int
    threads: int


def measure(plan: Plan, clock: Clock, say: Callable[[str], None]) -> Deciding:
    """Run it."""
    bandwidth = copy_bandwidth()
    sizes = []
    for vocab_size, drafted in plan.sizes:
        made = arrays(vocab_size, drafted, plan.seed)
        seconds = _turns(contenders(made, plan.rules, plan.top_k, plan.seed), plan.repeats, clock)
        sizes.append(Size(vocab_size, drafted, seconds, [], made.nbytes / bandwidth))
        say(f"V = {vocab_size}, K = {drafted}")
    other = in_torch.seconds(plan.sizes, plan.seed, plan.repeats, plan.threads) if STOCHASTIC in plan.rules else ""
    if isinstance(other, list):
        sizes = [size._replace(torch_s=found) for size, found in zip(sizes, other, strict=True)]
    why = None if isinstance(other, list) else other or f"{STOCHASTIC} is not among the rules"
    return Deciding(tuple(sizes), tuple(plan.rules), plan.top_k, bandwidth, why, plan.repeats)


def _turns(named: Mapping[str, Any], repeats: int, clock: Clock) -> dict[str, list[float]]:
    seconds: dict[str, list[float]] = {name: [] for name in named}
    mx.clear_cache()
    for repeat in range(1 + repeats):
        for name in rotated(list(named), repeat):
            start = clock()
            named[name](repeat)
            elapsed = clock() - start
            if repeat:
                seconds[name].append(elapsed)
    return seconds


def numbers(size: Size, rules: tuple[str, ...]) -> dict[str, Any]:
    """Plain values of one size."""
    return {
        "vocab_size": size.vocab_size,
        "num_draft_tokens": size.num_draft_tokens,
        "floor_s": size.floor_s,
        "softmax_s": median(size.seconds[SOFTMAX]),
        "transformers_s": median(size.torch_s) if size.torch_s else None,
        "rules": {name: _of_rule(size, name) for name in rules},
        "seconds": size.seconds,
        "transformers_seconds": size.torch_s,
    }


def _of_rule(size: Size, name: str) -> dict[str, Any]:
    others = {"softmax": SOFTMAX, "sampler_match": MATCH, "numpy": f"{name} numpy"}
    found = {label: size.times(name, other) for label, other in others.items()}
    truncated, own = size.times(f"{name} top_k", name), median(size.seconds[name])
    return {
        "median_s": own,
        "top_k_s": median(size.seconds[f"{name} top_k"]),
        "times_as_long_as": {label: ratio and ratio._asdict() for label, ratio in found.items()},
        "top_k_times_as_long": truncated and truncated._asdict(),
        "of_floor": own / size.floor_s,
        "of_transformers": own / median(size.torch_s) if size.torch_s and name == STOCHASTIC else None,
    }
