"""A checkpoint opened by mlx-lm, as a language model; its weights are read when all has been checked."""

from abc import ABC, abstractmethod
from pathlib import Path
from typing import Any, NamedTuple, final

from specfw.models.base import Cache, Footprint, LanguageModel
from specfw.models.pretrained.adapter import adapted
from specfw.models.pretrained.caches import STEP, LayerCaches, Quantised, rewindable_caches, token_bytes, windowed
from specfw.models.pretrained.folder import Found, adapter_digests, digests, one_sentence
from specfw.models.pretrained.precision import convert, formats
from specfw.models.pretrained.tokens import PretrainedTokenizer
from specfw.models.tokenizer import Tokenizer
from specfw.models.vocabulary import summary

import mlx.core as mx
from mlx.utils import tree_flatten
from mlx_lm.utils import load_model, load_tokenizer

_HEADS = ("n_heads", "num_heads", "num_attention_heads")  # as layers of mlx-lm call their number
_TRUST_NOTHING = {"trust_remote_code": False, "local_files_only": True}


class Source(ABC):
    """The files behind a model."""

    @abstractmethod
    def identity(self) -> dict[str, Any]:
        """What identifies them in a record."""

    @abstractmethod
    def read(self, module: Any) -> None:
        """Read the weights of `module`, whose arrays have their shapes and number formats, into memory."""


@final
class Files(Source):
    """A checkpoint's files.

    Args:
        found: where they lie.
        adapter: folder of the adapter.
    """

    def __init__(self, found: Found, adapter: Path | None) -> None:
        self.folder, self.adapter = found.folder, adapter
        self._commit = found.commit

    def identity(self) -> dict[str, Any]:
        told: dict[str, Any] = {"sha256": digests(self.folder)} if self._commit is None else {"commit": self._commit}
        if self.adapter is not None:
            told["adapter"] = {"path": str(self.adapter), "sha256": adapter_digests(self.adapter)}
        return told

    def read(self, module: Any) -> None:
        for array in _weights(module):  # one by one: together the files' numbers would stand beside the converted
            mx.eval(array)


class Origin(NamedTuple):
    """Where a model comes from and how it is to be run.

    Attributes:
        role: `target` or `drafter`.
        path: as configured.
        source: its files.
        quantised: the format of keys and values, None for the format it computes in.
    """

    role: str
    path: str
    source: Source
    quantised: Quantised | None

    @property
    def unreadable(self) -> str:
        """How a refusal of the files begins."""
        return f"{self.role}.path {self.path!r} cannot be loaded"

    @property
    def unquantisable(self) -> str:
        """How a refusal of its quantised cache begins."""
        return f"{self.role}.kv_bits must be null, or {self.role}.kv_group_size another, for {self.path!r}"


@final
class Pretrained(LanguageModel):
    """A model and tokenizer of mlx-lm.

    Args:
        origin: where it comes from.
        module: the model of mlx-lm, in its number format; its weights may be unread.
        tokenizer: its tokenizer.
        eos_ids: its end-of-sequence ids.
        notes: what opening changed.
    """

    batched = False

    def __init__(
        self, origin: Origin, module: Any, tokenizer: Tokenizer, eos_ids: frozenset[int], notes: tuple[str, ...]
    ) -> None:
        self.name = f"{origin.role} ({origin.path})"
        self.tokenizer = tokenizer
        self.eos_ids = eos_ids
        self._origin, self._module, self._unread = origin, module, True
        self._fingerprint: dict[str, Any] | None = None
        probe = self.new_cache(1)
        token = mx.zeros((1, 1), dtype=mx.int32)
        logits = module(token, cache=probe.layers)  # never evaluated: shapes are all it is for
        self.vocab_size = logits.shape[-1]
        self._token_bytes = [token_bytes(leaf) for leaf in probe.leaves()]
        self.notes = (*notes, *self._end_note(), *self._window_note(probe))

    def new_cache(self, batch_size: int) -> LayerCaches:
        role = self._origin.role
        if batch_size != 1:
            raise ValueError(f"{role} must decode one sequence at a time, got a batch of {batch_size}")
        return LayerCaches(rewindable_caches(self._module, role, self._origin.quantised))

    def forward(self, tokens: mx.array, cache: Cache) -> mx.array:
        assert isinstance(cache, LayerCaches)
        self.read()
        logits: mx.array = self._module(tokens, cache=cache.layers)
        return logits

    @property
    def module(self) -> Any:
        return self._module

    def fingerprint(self) -> dict[str, Any]:
        if self._fingerprint is None:  # hashing large files takes longer than a small job
            self._fingerprint = self._identified()
        return self._fingerprint

    def _identified(self) -> dict[str, Any]:
        identity = self._origin.source.identity()
        told = {"path": self._origin.path, **identity, "computed_in": formats(self._module)}
        if self._origin.quantised is not None:
            told["keys_and_values"] = self._origin.quantised._asdict()
        return {**told, "tokenizer": summary(self.tokenizer, self.eos_ids)}

    @property
    def held_bytes(self) -> int:
        return 0 if self._unread else self._weights_bytes()

    def footprint(self, tokens: int, chunk: int) -> Footprint:
        weights = self._weights_bytes()
        held = -(-tokens // STEP) * STEP
        return Footprint(weights, held * sum(self._token_bytes), self._work_bytes(held, min(chunk, tokens)))

    def read(self) -> None:
        if self._unread:
            with one_sentence(self._origin.unreadable):
                self._origin.source.read(self._module)
            self._unread = False

    def _weights_bytes(self) -> int:
        return sum(array.nbytes for array in _weights(self._module))

    def _work_bytes(self, tokens: int, chunk: int) -> int:
        """A layer's attention on a CPU: the scores of a chunk for all heads, and a copy of its keys and values."""
        if mx.default_device().type == mx.DeviceType.gpu and self._origin.quantised is None:
            return 0
        layers = self._module.modules()
        heads: int = max((getattr(layer, name, 0) for layer in layers for name in _HEADS), default=0)
        size: int = max(getattr(mx, name).size for name in formats(self._module))
        return tokens * (heads * chunk * size + max(self._token_bytes))

    def _end_note(self) -> tuple[str, ...]:
        """mlx-lm takes such ids without a word; a sequence then ends where the others, or max_tokens, say."""
        tokens = self.tokenizer.vocabulary() or range(self.vocab_size)
        never = sorted(end for end in self.eos_ids if end >= self.vocab_size or end not in tokens)
        note = f"{self._origin.role}: end-of-sequence ids {never} stand for no token and never end a sequence"
        return (note,) if never else ()

    def _window_note(self, probe: LayerCaches) -> tuple[str, ...]:
        layers = windowed(probe)
        note = (
            f"{self._origin.role}: {len(layers)} sliding-window layers keep the whole context, so that they can be "
            f"rewound, at {sum(map(token_bytes, layers))} bytes a token"
        )
        return (note,) if layers else ()


def _weights(module: Any) -> list[mx.array]:
    parameters: Any = tree_flatten(module.parameters())
    return list({id(array): array for _, array in parameters}.values())


def load(role: str, path: str, files: Files, dtype: str, quantised: Quantised | None) -> Pretrained:
    """Open a checkpoint; its caches are looked at before its weights are read.

    Args:
        role: `target` or `drafter`.
        path: as configured.
        files: where it lies.
        dtype: as configured.
        quantised: the format of keys and values, None for the format it computes in.

    Raises:
        ValueError: it cannot be read, or its caches cannot rewind; the sentence names `<role>.<field>`.
    """
    origin = Origin(role, path, files, quantised)
    with one_sentence(origin.unreadable):
        module, config = load_model(files.folder, lazy=True, trust_remote_code=False)
        ends = config.get("eos_token_id")
        wrapper = load_tokenizer(files.folder, dict(_TRUST_NOTHING), eos_token_ids=ends)  # type: ignore[no-untyped-call]
    rewindable_caches(module, role)
    notes = [adapted(module, files.adapter, role)] if files.adapter is not None else []
    notes += [note for note in (convert(module, dtype, role),) if note]
    with one_sentence(origin.unreadable if quantised is None else origin.unquantisable):
        return Pretrained(origin, module, PretrainedTokenizer(wrapper), frozenset(wrapper.eos_token_ids), tuple(notes))
