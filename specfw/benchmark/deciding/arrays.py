"""The logits of one round, made up so that every process that names the same sizes and seed has the same."""

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float32]

SPREAD = 3.0
"""Standard deviation of the logits: a row of 151,936 ids then has an entropy of some 7.5 nats."""
ALIKE = 0.95
"""Correlation of a drafter's logits with the target's."""
LIKELY = 64
"""Draft tokens are drawn among that many most probable ids, so that a truncation keeps them."""


class Arrays(NamedTuple):
    """What a rule decides on.

    Attributes:
        target: [K+1, V] float32 logits.
        draft: [K, V] float32 logits.
        tokens: [K] int32.
    """

    target: Floats
    draft: Floats
    tokens: npt.NDArray[np.int32]

    @property
    def nbytes(self) -> int:
        """What has to be read at least: every logit once."""
        return self.target.nbytes + self.draft.nbytes


def arrays(vocab_size: int, drafted: int, seed: int) -> Arrays:
    """The round of K = `drafted` draft tokens at V = `vocab_size`."""
    rng = np.random.default_rng([seed, vocab_size, drafted])
    shared = rng.standard_normal((drafted + 1, vocab_size), dtype=np.float32)
    own = rng.standard_normal((drafted, vocab_size), dtype=np.float32)
    target = np.float32(SPREAD) * shared
    draft = np.float32(SPREAD) * (np.float32(ALIKE) * shared[:drafted] + np.float32((1 - ALIKE**2) ** 0.5) * own)
    tokens = np.array([_drawn(row, rng) for row in draft], dtype=np.int32)
    return Arrays(target, draft, tokens)


def _drawn(logits: npt.NDArray[np.floating[Any]], rng: np.random.Generator) -> int:
    likely = np.argpartition(logits, -LIKELY)[-LIKELY:]
    return int(likely[np.argmax(logits[likely] + rng.gumbel(size=len(likely)))])
