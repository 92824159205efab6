"""A checkpoint loaded by mlx-lm, as a language model."""

from pathlib import Path
from typing import Any, final

from specfw.models.base import Cache, LanguageModel
from specfw.models.pretrained.caches import LayerCaches, rewindable_caches, window_cost
from specfw.models.pretrained.folder import digests, one_sentence
from specfw.models.pretrained.precision import convert, formats
from specfw.models.pretrained.tokens import PretrainedTokenizer
from specfw.models.tokenizer import Tokenizer

import mlx.core as mx
from mlx.nn.layers.base import Module
from mlx_lm.utils import load_model, load_tokenizer

_TRUST_NOTHING = {"trust_remote_code": False, "local_files_only": True}


@final
class Pretrained(LanguageModel):
    """A model and tokenizer of mlx-lm.

    Args:
        path: as configured.
        folder: where it lies.
        module: the model, in its number format.
        tokenizer: its tokenizer.
        eos_ids: its end-of-sequence ids.
        role: `target` or `drafter`.
        notes: what loading changed.
    """

    batched = False

    def __init__(
        self,
        *,
        path: str,
        folder: Path,
        module: Module,
        tokenizer: Tokenizer,
        eos_ids: frozenset[int],
        role: str,
        notes: tuple[str, ...],
    ) -> None:
        self.name = f"{role} ({path})"
        self.tokenizer = tokenizer
        self.eos_ids = eos_ids
        self._path, self._folder, self._module, self._role = path, folder, module, role
        probe = self.new_cache(1)
        self.vocab_size = self.forward(mx.zeros((1, 1), dtype=mx.int32), probe).shape[-1]  # never evaluated
        self.notes = (*notes, *self._window_note(probe))

    def new_cache(self, batch_size: int) -> LayerCaches:
        if batch_size != 1:
            raise ValueError(f"{self._role} must decode one sequence at a time, got a batch of {batch_size}")
        return LayerCaches(rewindable_caches(self._module, self._role))

    def forward(self, tokens: mx.array, cache: Cache) -> mx.array:
        assert isinstance(cache, LayerCaches)
        logits: mx.array = self._module(tokens, cache=cache.layers)
        return logits

    def fingerprint(self) -> dict[str, Any]:
        return {"path": self._path, "computed_in": formats(self._module), "sha256": digests(self._folder)}

    def _window_note(self, probe: LayerCaches) -> tuple[str, ...]:
        layers, size = window_cost(probe)
        note = (
            f"{self._role}: {layers} sliding-window layers keep the whole context, so that they can be rewound, "
            f"at {size} bytes a token"
        )
        return (note,) if layers else ()


def load(path: str, folder: Path, dtype: str, role: str) -> Pretrained:
    """Load a checkpoint; its caches are looked at before its weights are read.

    Raises:
        ValueError: it cannot be read, or its caches cannot rewind; the sentence names `<role>.<field>`.
    """
    with one_sentence(path, role):
        module, config = load_model(folder, lazy=True, trust_remote_code=False)
        wrapper = load_tokenizer(folder, dict(_TRUST_NOTHING), eos_token_ids=config.get("eos_token_id"))  # type: ignore[no-untyped-call]
    rewindable_caches(module, role)
    note = convert(module, dtype, role)
    with one_sentence(path, role):
        mx.eval(module.parameters())
        return Pretrained(
            path=path,
            folder=folder,
            module=module,
            tokenizer=PretrainedTokenizer(wrapper),
            eos_ids=frozenset(wrapper.eos_token_ids),
            role=role,
            notes=(note,) if note else (),
        )
