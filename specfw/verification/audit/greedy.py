"""Greedy texts: every token is the argmax, or a difference with its gaps."""

from typing import NamedTuple

from specfw.models.base import LanguageModel
from specfw.sampling.chain import SamplerChain
from specfw.types import History
from specfw.verification.audit.claim import LOOSER, reordering
from specfw.verification.audit.rows import Part, chunk_of, replay, row_of
from specfw.verification.audit.text import Text

import mlx.core as mx
import numpy as np


class Difference(NamedTuple):
    """A token that is not the argmax.

    Attributes:
        prompt: place of its prompt.
        sample: sample number.
        position: index in prompt + output.
        id: the token.
        argmax: what greedy decoding takes.
        gap: logit of the argmax minus the token's, nats.
        top_2_gap: logit of the argmax minus the runner-up's, nats.
    """

    prompt: int
    sample: int
    position: int
    id: int
    argmax: int
    gap: float
    top_2_gap: float

    @property
    def near_tie(self) -> bool:
        """Whether rounding could have made it."""
        return self.gap <= LOOSER


def differences(model: LanguageModel, text: Text, prefill_chunk: int) -> list[Difference]:
    """Every token of a greedy text that is not the argmax, given the tokens before it."""
    found = []
    for start, logits in replay(model, text, chunk_of(model), prefill_chunk):
        part = Part(text, start, logits.shape[1])
        taken = text.claim.chain.distribution(logits, part.history, None).argmax()
        mx.eval(taken)
        emitted, argmax = np.array(part.tokens)[0], np.array(taken)[0]
        for place in np.flatnonzero(emitted != argmax).tolist():
            gap, top_2 = _gaps(text.claim.chain, logits, part.history, place, int(emitted[place]))
            position = int(part.positions[place])
            ids = int(emitted[place]), int(argmax[place])
            found.append(Difference(text.prompt, text.sample, position, *ids, gap, top_2))
    return found


def _gaps(chain: SamplerChain, logits: mx.array, history: History, place: int, token: int) -> tuple[float, float]:
    """How far `token` and the runner-up lie below the argmax at one place of a chunk."""
    row = row_of(reordering(chain), logits, history)[0, place]
    with np.errstate(divide="ignore"):
        logs = np.log(np.array(row, dtype=np.float64))
    second, first = np.sort(logs)[-2:] if len(logs) > 1 else (-np.inf, logs[0])
    return float(first - logs[token]), float(first - second)
