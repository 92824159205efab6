"""What a decided round counts as: the cut at the end of sequence, and where each token came from."""

import math
from collections.abc import Iterator
from typing import Any, NamedTuple

from specfw.types import Ints, Outcome

import numpy as np
import numpy.typing as npt

ORIGINS = ("accepted", "recovered", "bonus", "plain")


class Decided(NamedTuple):
    """The numbers of one round, read once.

    Attributes:
        lengths: [B] draft tokens each row used.
        accepted: [B].
        emitted: [B, K+1].
        drafts: [B, K].
        degenerate: [B].
    """

    lengths: Ints
    accepted: Ints
    emitted: Ints
    drafts: Ints
    degenerate: npt.NDArray[np.bool_]


def cut(decided: Decided, eos_ids: frozenset[int]) -> tuple[Ints, Ints, Ints]:
    """Cut counters and tokens at the end of sequence: K' [B], n' [B] and the tokens to keep [B].

    K' is the place of the first end-of-sequence token among a row's drafts, whether or not the round reached
    it: cutting only the reached ones would count accepted draft tokens more often than rejected ones.
    """
    proposed = np.minimum(decided.lengths, _through_first(is_end(decided.drafts, eos_ids)))
    through = _through_first(is_end(decided.emitted, eos_ids))
    return proposed, np.minimum(decided.accepted, proposed), np.minimum(decided.accepted + 1, through)


def is_end(tokens: Ints, eos_ids: frozenset[int]) -> npt.NDArray[np.bool_]:
    """[...] which of `tokens` [...] end a sequence; np.isin takes ten times as long on a round's few tokens."""
    ends = np.array(list(eos_ids), dtype=np.int64)
    return np.asarray((tokens[..., None] == ends).any(axis=-1))


def _through_first(hits: npt.NDArray[np.bool_]) -> Ints:
    """[B] one more than the first column that hits, or more than any column."""
    never = np.iinfo(np.int64).max
    if not hits.shape[1]:
        return np.full(len(hits), never)
    return np.where(hits.any(axis=1), hits.argmax(axis=1) + 1, never)


def origins(outcome: Outcome) -> Ints:
    """[B, K+1] index into `ORIGINS` of every emitted token."""
    place = np.arange(outcome.tokens.shape[1])
    final = np.where(outcome.raw_accepted < outcome.lengths, 1, np.where(outcome.lengths > 0, 2, 3))
    return np.where(place < outcome.raw_accepted[:, None], 0, final[:, None])


def tested(outcome: Outcome, stops_at_rejection: bool) -> Ints:
    """[B] draft tokens whose acceptance was decided: min(n' + 1, K'), or all K' for rules that look further."""
    return np.minimum(outcome.accepted + 1, outcome.proposed) if stops_at_rejection else outcome.proposed


class Tally:
    """The counters of a run that the summary line is made of; always kept.

    Attributes:
        rounds: rounds of a sequence that proposed something.
        plain_rounds: rounds of a sequence that proposed nothing.
        proposed: draft tokens, K' summed.
        tested: draft tokens whose acceptance was decided.
        accepted: draft tokens that stand, n' summed.
        emitted: tokens emitted.
        degenerate: residuals that had no mass.
    """

    def __init__(self, stops_at_rejection: bool) -> None:
        self._stops = stops_at_rejection
        self.rounds = self.plain_rounds = self.proposed = self.tested = self.accepted = 0
        self.emitted = self.degenerate = self.emitted_when_drafting = 0

    def add(self, outcome: Outcome) -> None:
        """Take in a finished round."""
        drafted = outcome.active & (outcome.proposed > 0)
        self.rounds += int(drafted.sum())
        self.plain_rounds += int((outcome.active & ~drafted).sum())
        self.proposed += int(outcome.proposed.sum())
        self.tested += int(tested(outcome, self._stops).sum())
        self.accepted += int(outcome.accepted.sum())
        self.emitted += int(outcome.emitted.sum())
        self.emitted_when_drafting += int(outcome.emitted[drafted].sum())
        self.degenerate += int((outcome.degenerate & outcome.active).sum())

    def numbers(self) -> dict[str, Any]:
        """Counters and rates; a rate over nothing is nan, never 0."""
        return {
            "rounds": self.rounds,
            "plain_rounds": self.plain_rounds,
            "proposed": self.proposed,
            "positions_tested": self.tested,
            "accepted": self.accepted,
            "emitted": self.emitted,
            "degenerate_residuals": self.degenerate,
            "per_position_acceptance": rate(self.accepted, self.tested) if self._stops else math.nan,
            "acceptance_rate": rate(self.accepted, self.proposed),
            "mean_accepted_len": rate(self.accepted, self.rounds),
            "mean_tokens_per_round": rate(self.emitted_when_drafting, self.rounds),
        }


def rate(part: float, whole: float) -> float:
    """`part` / `whole`, nan over nothing."""
    return part / whole if whole else math.nan


NAMES_OF_ORIGINS = {"accepted": "accepted", "recovered": "residual_resample", "bonus": "bonus", "plain": "plain"}


def outcomes(outcome: Outcome) -> Iterator[str]:
    """The kinds of token that a round emitted, as events name them."""
    kept = np.arange(outcome.tokens.shape[1]) < outcome.emitted[:, None]
    seen = np.unique(origins(outcome)[kept])
    yield from (NAMES_OF_ORIGINS[ORIGINS[index]] for index in seen)
    if (outcome.degenerate & outcome.active).any():
        yield "degenerate_residual"
