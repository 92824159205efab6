"""One arm over all repeats."""

import math
from statistics import median
from typing import Any, NamedTuple

from specfw.benchmark.arms import Arm, Counts
from specfw.benchmark.line_up import MLX_LM_PLAIN, PLAIN
from specfw.benchmark.numbers import Ratio, Rounds, mean_length
from specfw.counting import rate


class Found(NamedTuple):
    """One arm over all repeats.

    Attributes:
        arm: what ran.
        seconds: of each repeat.
        tokens: of each repeat.
        counts: of all repeats together.
        ratios: to plain decoding and to the arms of mlx-lm, by the other arm's name.
        phases: seconds a round of draft, verify and decide, from the decoding that was not counted.
        peak_bytes: the most in any repeat.
        rounds: how many there were of each K; of a constant K one.
        bound: of the ratio to plain decoding; nan where nothing is drafted.
    """

    arm: Arm
    seconds: tuple[float, ...]
    tokens: tuple[int, ...]
    counts: Counts
    ratios: dict[str, Ratio]
    phases: dict[str, float] | None
    peak_bytes: int
    rounds: Rounds
    bound: float

    @property
    def speeds(self) -> list[float]:
        """Tokens a second of each repeat."""
        return [count / time for count, time in zip(self.tokens, self.seconds, strict=True)]

    @property
    def tokens_of_round(self) -> float:
        """E(K): of the rounds that drafted, and where K changes of all rounds; nan where nothing was drafted."""
        if self.arm.controller is None:
            return self.counts.tokens_of_round
        return sum(self.tokens) / sum(self.rounds.values())

    @property
    def acceptance(self) -> float:
        """Accepted of tested draft tokens; nan for a rule that looks past a rejection."""
        return rate(self.counts.accepted, self.counts.tested) if self.arm.stops_at_rejection else math.nan

    def share(self, other: str) -> float:
        """The ratio to another arm over the bound; nan without either."""
        return self.ratios[other].estimate / self.bound if other in self.ratios else math.nan

    def numbers(self) -> dict[str, Any]:
        """Plain values."""
        return {
            "name": self.arm.name,
            "engine": self.arm.engine,
            "rule": self.arm.rule,
            "num_draft_tokens": self.arm.num_draft_tokens,
            "controller": self.arm.controller,
            "mean_num_draft_tokens": mean_length(self.rounds),
            "median_s": median(self.seconds),
            "tokens_per_s": median(self.speeds),
            "ratios": {name: ratio._asdict() for name, ratio in self.ratios.items()},
            **self.counts._asdict(),
            "per_position_acceptance": self.acceptance,
            "mean_accepted_len": rate(self.counts.accepted, self.counts.rounds),
            "mean_tokens_per_round": self.tokens_of_round,
            "bound": self.bound,
            "share_of_bound": {name: self.share(name) for name in (PLAIN, MLX_LM_PLAIN) if name in self.ratios},
            "phases": self.phases,
            "peak_memory_bytes": self.peak_bytes,
        }
