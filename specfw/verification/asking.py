"""What a small pair answers to every prefix: the pair as the exact bench enumerates it."""

import itertools
from collections.abc import Sequence

from specfw.decoder import Decoder
from specfw.distribution import Dense
from specfw.models.base import LanguageModel
from specfw.sampling.chain import SamplerChain
from specfw.types import History
from specfw.verification.exact import Doubles, Pair

import mlx.core as mx
import numpy as np

MOST_OUTCOMES = 4096
MOST_DRAFTS = 3


def draft_tokens(decoder: Decoder, asked: int) -> int:
    """K of the exact bench: what the controller drafts, as far as it can be enumerated; 0 if nothing can."""
    models = [model for model in (decoder.target, decoder.drafter) if model is not None]
    chains = decoder.chain, decoder.draft_chain
    possible = len(models) == 2 and all(model.batched for model in models)  # noqa: PLR2004
    if not possible or any(chain.needs_coin for chain in chains):
        return 0
    fitting = (
        k for k in range(min(asked, MOST_DRAFTS), 0, -1) if decoder.target.vocab_size ** (k + 1) <= MOST_OUTCOMES
    )
    return next(fitting, 0)


def contexts(prompt: Sequence[int], vocab_size: int) -> list[list[int]]:
    """The prompt, and the prompt with each token after it: a fault may be blind after one of them."""
    return [list(prompt), *([*prompt, token] for token in range(vocab_size))]


def pair_of(decoder: Decoder, context: Sequence[int], count: int) -> Pair:
    """Both models' filtered rows after the context and every prefix of up to `count` tokens."""
    assert decoder.drafter is not None
    p = rows_after(decoder.target, decoder.chain, context, count + 1)
    return Pair(p, rows_after(decoder.drafter, decoder.draft_chain, context, count))


def rows_after(model: LanguageModel, chain: SamplerChain, prompt: Sequence[int], count: int) -> tuple[Doubles, ...]:
    """`count` arrays [V, .., V]: the rows after the prompt and 0, 1, .. tokens more."""
    return tuple(_rows(model, chain, prompt, length) for length in range(count))


def _rows(model: LanguageModel, chain: SamplerChain, prompt: Sequence[int], length: int) -> Doubles:
    """[V] * (length + 1): the row after the prompt and each prefix of that length."""
    size = model.vocab_size
    prefixes = np.array(list(itertools.product(range(size), repeat=length)), dtype=np.int64).reshape(
        size**length, length
    )
    tokens = np.concatenate([np.tile(np.array(prompt, dtype=np.int64), (len(prefixes), 1)), prefixes], axis=1)
    logits = model.forward(mx.array(tokens.astype(np.int32)), model.new_cache(len(tokens)))[:, -1:]
    history = History(tuple(tokens), np.full(len(tokens), len(prompt)), mx.zeros((len(tokens), 0), dtype=mx.int32))
    rows = chain.distribution(logits, history, None)
    whole = np.array(rows.aligned(Dense(mx.zeros((len(tokens), 1, size)))), dtype=np.float64)
    return np.asarray((whole / whole.sum(axis=-1, keepdims=True)).reshape((size,) * (length + 1)))
