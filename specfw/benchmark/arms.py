"""What an arm is: one way to decode, timed from the arrival of its first tokens to that of its last.

The time begins when a first round has ended. Until then an engine takes in the prompt, and mlx-lm does both behind
one generator, so that nothing else marks the end of its prefill; from then on every engine does the same work for
the same tokens. Tokens of the first round are not counted.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple, Self, TypeAlias

from specfw.counting import rate
from specfw.prompts.base import Encoded

Clock: TypeAlias = Callable[[], float]
"""Seconds; `time.perf_counter` but in tests."""


class Counts(NamedTuple):
    """What the rounds of an arm came to.

    Attributes:
        rounds: that drafted.
        proposed: draft tokens.
        tested: draft tokens whose acceptance was decided.
        accepted: draft tokens that stand.
        emitted: tokens of these rounds.
    """

    rounds: int = 0
    proposed: int = 0
    tested: int = 0
    accepted: int = 0
    emitted: int = 0

    def plus(self, other: Self) -> Self:
        """Both together."""
        return self._replace(**{name: value + getattr(other, name) for name, value in self._asdict().items()})

    @property
    def tokens_of_round(self) -> float:
        """E(K), the extra token included; nan where nothing was drafted."""
        return rate(self.emitted, self.rounds)


class Timed(NamedTuple):
    """One decoding.

    Attributes:
        seconds: from the first round's end to the last one's.
        tokens: that arrived in this time.
        counts: of all rounds.
        emitted: ids, by prompt.
        phases: seconds of draft, verify and decide, where they were timed apart.
        rounds: that ended in this time, plain ones too.
        lengths: K of each of these rounds, where it changes.
    """

    seconds: float
    tokens: int
    counts: Counts
    emitted: tuple[tuple[int, ...], ...]
    phases: tuple[float, float, float] | None = None
    rounds: int = 0
    lengths: tuple[int, ...] = ()

    def plus(self, other: Self) -> Self:
        """Both one after the other."""
        phases = None
        if self.phases is not None and other.phases is not None:
            draft, verify, decide = (one + two for one, two in zip(self.phases, other.phases, strict=True))
            phases = draft, verify, decide
        return self._replace(
            seconds=self.seconds + other.seconds,
            tokens=self.tokens + other.tokens,
            counts=self.counts.plus(other.counts),
            emitted=(*self.emitted, *other.emitted),
            phases=phases,
            rounds=self.rounds + other.rounds,
            lengths=(*self.lengths, *other.lengths),
        )


@dataclass(frozen=True, kw_only=True)
class Arm(ABC):
    """One engine with one way to decode.

    Attributes:
        name: unique among the arms of a benchmark.
        engine: `specfw` or `mlx-lm`.
        rule: id of the rule that decides; `plain` where nothing is drafted.
        num_draft_tokens: K, 0 for plain decoding; where K changes the most it may be.
        stops_at_rejection: whether a per-position acceptance exists.
        controller: name and fields of what changes K; None where it is constant.
    """

    name: str
    engine: str
    rule: str
    num_draft_tokens: int
    stops_at_rejection: bool = True
    controller: Mapping[str, Any] | None = None

    @abstractmethod
    def decode(self, prompt: Encoded, seed: int, clock: Clock) -> Timed:
        """Decode one prompt.

        Raises:
            ValueError: the text ended within the first round, so that there is nothing to time.
        """

    def split(self) -> Self | None:
        """The same arm with its phases timed apart; None where the engine cannot tell."""
        return None

    def require_tokens(self, tokens: int) -> None:
        """Refuse a decoding that was over before its time began."""
        if tokens < 1:
            raise ValueError(
                f"{self.name} ended within its first round, so there is nothing to time: set ignore_eos=true or "
                "take another prompt"
            )
