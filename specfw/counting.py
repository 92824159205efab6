"""What a decided round counts as: the cut at the end of sequence, and where each token came from."""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from specfw.types import Ints, Outcome

ORIGINS = ("accepted", "recovered", "bonus", "plain")


class Decided(NamedTuple):
    """The numbers of one round, read once: accepted [B], emitted [B, K+1], drafts [B, K], degenerate [B]."""

    accepted: Ints
    emitted: Ints
    drafts: Ints
    degenerate: npt.NDArray[np.bool_]


def cut(own: Ints, decided: Decided, eos_ids: frozenset[int]) -> tuple[Ints, Ints, Ints]:
    """Cut counters and tokens at the end of sequence: K' [B], n' [B] and the tokens to keep [B].

    K' is the place of the first end-of-sequence token among a row's drafts, whether or not the round reached
    it: cutting only the reached ones would count accepted draft tokens more often than rejected ones.
    """
    ends = list(eos_ids)
    proposed = np.minimum(own, _through_first(np.isin(decided.drafts, ends)))
    through = _through_first(np.isin(decided.emitted, ends))
    return proposed, np.minimum(decided.accepted, proposed), np.minimum(decided.accepted + 1, through)


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
