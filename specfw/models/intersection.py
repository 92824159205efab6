"""A drafter with another tokenizer, as a model of the target's ids: it reads every one and draws the shared ones.

Token-level intersection (Timor et al. 2502.05202, algorithm 4): q' is q on the tokens that both vocabularies have,
renormalised. Here the logits of those tokens are moved to the target's ids and all others are minus infinity. So the
draft chain's one normaliser makes q', filters and penalties act on the target's ids, and rules see one vocabulary.
"""

import math
from collections import Counter
from collections.abc import Mapping
from statistics import fmean
from typing import Any, NamedTuple, final

from specfw.distribution import from_logits
from specfw.models.base import Cache, Footprint, LanguageModel
from specfw.models.pieces import PieceCache
from specfw.models.spelling import Word, words
from specfw.models.tokenizer import Tokenizer
from specfw.summation import block_sum
from specfw.types import Ints

import mlx.core as mx
import numpy as np

_SAMPLE = 4096


class Shared(NamedTuple):
    """The tokens that two vocabularies share, one to one.

    Attributes:
        target: [S] the target's ids, ascending.
        drafter: [S] the drafter's ids of the same tokens.
    """

    target: Ints
    drafter: Ints


def intersected(drafter: LanguageModel, target: LanguageModel) -> LanguageModel:
    """`drafter` as a model of the target's ids.

    Raises:
        ValueError: a model has no words, or no token is shared.
    """
    ours, theirs = _words(target), _words(drafter)
    shared = _paired(_numbered(ours), _numbered(theirs), _signs(target, drafter))
    if not len(shared.target):
        raise ValueError(
            "drafter must share tokens with the target for drafting=intersection, but of "
            f"{len(ours)} tokens of {target.name} and {len(theirs)} of {drafter.name} none has the same text"
        )
    return Intersected(drafter, target, shared, Reading(ours, theirs, shared, drafter))


def _words(model: LanguageModel) -> dict[int, Word]:
    """The word of every id that the model has, in order of preference."""
    tokens = model.tokenizer.vocabulary()
    if tokens is None:
        raise ValueError(
            f"drafting=intersection must have two models with words, but ids of {model.name} stand for nothing else"
        )
    return words({id_: token for id_, token in tokens.items() if id_ < model.vocab_size}, model.tokenizer.special_ids())


def _numbered(known: Mapping[int, Word]) -> dict[tuple[Word, int], int]:
    """Ids by word; the second id of a word is the second of the other vocabulary, if that has two."""
    seen: Counter[Word] = Counter()
    ids = {}
    for id_, word in known.items():
        ids[word, seen[word]] = id_
        seen[word] += 1
    return ids


def _signs(target: LanguageModel, drafter: LanguageModel) -> list[tuple[int, int]]:
    """The end and the beginning of a sequence mean the same whatever they are called."""
    pairs = [(getattr(target.tokenizer, sign), getattr(drafter.tokenizer, sign)) for sign in ("eos_id", "bos_id")]
    return [
        (ours, theirs)
        for ours, theirs in pairs
        if ours is not None and theirs is not None and ours < target.vocab_size and theirs < drafter.vocab_size
    ]


def _paired(
    ours: Mapping[tuple[Word, int], int], theirs: Mapping[tuple[Word, int], int], signs: list[tuple[int, int]]
) -> Shared:
    pairs = {id_: theirs[key] for key, id_ in ours.items() if key in theirs}
    for end, other in signs:
        if end not in pairs and other not in pairs.values():
            pairs[end] = other
    ids = np.array(sorted(pairs.items()), dtype=np.int64).reshape(-1, 2)
    return Shared(ids[:, 0], ids[:, 1])


@final
class Reading:
    """How the drafter reads the target's tokens: a shared one as its own, any other as several that spell its text.

    What cannot be spelled, because the drafter has no token for a byte of it, is read as its end of sequence.

    Args:
        ours: words of the target.
        theirs: words of the drafter.
        shared: what both have.
        drafter: whose tokens they become.
    """

    def __init__(
        self, ours: Mapping[int, Word], theirs: Mapping[int, Word], shared: Shared, drafter: LanguageModel
    ) -> None:
        self._texts = {id_: word.text for id_, word in ours.items()}
        pairs = zip(shared.target.tolist(), shared.drafter.tolist(), strict=True)
        self._known: dict[int, tuple[int, ...]] = {id_: (own,) for id_, own in pairs}
        self._ids = {word.text: id_ for id_, word in reversed(list(theirs.items())) if not word.control}
        self._longest = max(map(len, self._ids), default=0)
        end = drafter.tokenizer.eos_id
        self._unknown = (end if end is not None and end < drafter.vocab_size else 0,)

    def pieces(self, token: int) -> tuple[int, ...]:
        """One or more of the drafter's ids for one of the target's."""
        if token not in self._known:
            self._known[token] = self._spelled(self._texts.get(token, b"")) or self._unknown
        return self._known[token]

    def mean_pieces(self) -> float:
        """Of one of the target's tokens, each of them as likely as any other; of a sample of them if they are many."""
        ids = list(self._texts)[:: -(-len(self._texts) // _SAMPLE)]
        return fmean(len(self.pieces(id_)) for id_ in ids)

    def _spelled(self, text: bytes) -> tuple[int, ...]:
        """The longest token that `text` begins with, then the longest of the rest; nothing where one is missing."""
        pieces, at = [], 0
        while at < len(text):
            ends = range(min(at + self._longest, len(text)), at, -1)
            end = next((end for end in ends if text[at:end] in self._ids), at)
            if end == at:
                return ()
            pieces.append(self._ids[text[at:end]])
            at = end
        return tuple(pieces)


@final
class Intersected(LanguageModel):
    """A drafter that is fed the target's ids and answers with logits on them.

    Args:
        model: the drafter.
        target: whose ids they are.
        shared: the tokens it draws.
        reading: how it reads all of them.
    """

    batched = False

    def __init__(self, model: LanguageModel, target: LanguageModel, shared: Shared, reading: Reading) -> None:
        self.vocab_size, self.eos_ids, self.tokenizer = target.vocab_size, target.eos_ids, target.tokenizer
        self.name = model.name
        self._model, self._reading, self._count = model, reading, len(shared.target)
        self._begin = _begin(model.tokenizer, target.tokenizer)
        sizes = [len(one.tokenizer.vocabulary() or ()) for one in (target, model)]
        drafts = f"{model.name}: drafts {self._count} tokens, those its {sizes[1]} share with the target's {sizes[0]}"
        self.notes = (*model.notes, drafts)
        own = np.full(target.vocab_size, -1, dtype=np.int32)
        own[shared.target] = shared.drafter
        self._own, self._drawable = mx.array(np.maximum(own, 0)), mx.array(own >= 0)
        self._latest: mx.array | None = None

    def new_cache(self, batch_size: int) -> PieceCache:
        if batch_size != 1:
            raise ValueError(f"{self.name} must decode one sequence at a time, got a batch of {batch_size}")
        return PieceCache(self._model.new_cache(1))

    def forward(self, tokens: mx.array, cache: Cache) -> mx.array:
        assert isinstance(cache, PieceCache)
        pieces = [self._reading.pieces(int(token)) for token in np.array(tokens)[0]]
        if not cache.lengths[0]:
            pieces[0] = self._begin + pieces[0]
        counts = [len(piece) for piece in pieces]
        ids = np.concatenate(pieces).astype(np.int32)
        logits = self._model.forward(mx.array(ids[None]), cache.inner)
        cache.hold(counts)
        self._latest = logits[:, -1]
        last = np.cumsum(counts) - 1
        return self._moved(logits if len(ids) == len(counts) else logits[:, mx.array(last.astype(np.int32))])

    def follow(self, tokens: mx.array, cache: Cache) -> mx.array:
        assert isinstance(cache, PieceCache)
        logits = self._model.forward(self._own[tokens], cache.inner)
        cache.hold([1] * tokens.shape[1])
        return self._moved(logits)

    def kept_mass(self) -> mx.array | None:
        if self._latest is None:
            return None
        row = from_logits(self._latest.astype(mx.float32)).probs
        return block_sum(mx.where(self._drawable, mx.take(row, self._own, axis=-1), 0))

    def _moved(self, logits: mx.array) -> mx.array:
        """[B, T, V] of the target from [B, T, V'] of the drafter."""
        return mx.where(self._drawable, mx.take(logits, self._own, axis=-1), -np.inf)

    def fingerprint(self) -> dict[str, Any]:
        return {**self._model.fingerprint(), "shared_tokens": self._count}

    def footprint(self, tokens: int, chunk: int) -> Footprint:
        """For as many of its own tokens as the target's come to; text has more of those that both have."""
        each = self._reading.mean_pieces()
        return self._model.footprint(math.ceil(tokens * each), math.ceil(chunk * each))

    def read(self) -> None:
        self._model.read()

    @property
    def held_bytes(self) -> int:
        return self._model.held_bytes


def _begin(drafter: Tokenizer, target: Tokenizer) -> tuple[int, ...]:
    """What the drafter reads before the first token: its beginning of sequence, where it alone puts one."""
    begin = drafter.bos_id
    return (begin,) if begin is not None and _begins(drafter) and not _begins(target) else ()


def _begins(tokenizer: Tokenizer) -> bool:
    """Whether texts are given a beginning of sequence."""
    return tokenizer.bos_id is not None and tokenizer.encode("a")[:1] == [tokenizer.bos_id]
