"""Whether a pair fits into memory, said before its weights are read; and what a Mac keeps wired while it runs."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, NamedTuple

from specfw.models._available import available
from specfw.models.base import Footprint, LanguageModel

import mlx.core as mx


class Estimate(NamedTuple):
    """What a run needs at its peak, beside what there is.

    Attributes:
        tokens: of the longest sequence, prompt and continuation.
        footprints: of each model, by role; at most one of them works at a time.
        available_bytes: what the machine has to give, None where it does not say.
    """

    tokens: int
    footprints: Mapping[str, Footprint]
    available_bytes: int | None

    @property
    def peak_bytes(self) -> int:
        """Weights and caches of all models, and the larger of their works."""
        sizes = self.footprints.values()
        held = sum(size.weights_bytes + size.cache_bytes for size in sizes)
        return held + max((size.work_bytes for size in sizes), default=0)

    def record(self) -> dict[str, Any]:
        """The numbers, for the log."""
        models = {role: size._asdict() for role, size in self.footprints.items()}
        return {
            "tokens": self.tokens,
            "peak_bytes": self.peak_bytes,
            "available_bytes": self.available_bytes,
            "models": models,
        }

    def require_room(self) -> None:
        """Refuse what cannot fit.

        Raises:
            ValueError: the peak exceeds what is available; the sentence has all the numbers.
        """
        if self.available_bytes is None or self.peak_bytes <= self.available_bytes:
            return
        parts = "; ".join(
            f"{role}: weights {_gb(size.weights_bytes)}, cache {_gb(size.cache_bytes)}, work {_gb(size.work_bytes)}"
            for role, size in self.footprints.items()
        )
        raise ValueError(
            f"{' and '.join(self.footprints)} must fit into {_gb(self.available_bytes)} of memory, but need "
            f"{_gb(self.peak_bytes)} for a sequence of {self.tokens} tokens ({parts}): choose smaller models, another "
            "dtype, less max_tokens, or a smaller prefill_chunk"
        )


def estimate(models: Mapping[str, LanguageModel], tokens: int, chunk: int) -> Estimate:
    """The memory that `models` take for a sequence of `tokens` fed in chunks of `chunk`; what they hold is theirs."""
    footprints = {role: model.footprint(tokens, chunk) for role, model in models.items()}
    return Estimate(tokens, footprints, available(sum(model.held_bytes for model in models.values())))


@contextmanager
def wired() -> Iterator[None]:
    """Let a Mac keep as much memory wired as it recommends, as mlx-lm does; elsewhere nothing."""
    size = mx.device_info().get("max_recommended_working_set_size")
    if size is None:
        yield
        return
    before = mx.set_wired_limit(int(size))
    try:
        yield
    finally:
        mx.synchronize()
        mx.set_wired_limit(before)


def _gb(count: int) -> str:
    return f"{count / 1e9:.3g} GB"
