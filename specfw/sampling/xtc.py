"""XTC ("exclude top choices"): p-e-w, text-generation-webui 6335."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Literal, final

from specfw.distribution import from_logits
from specfw.registry import register, require
from specfw.sampling.base import Logits, Scene, Step, marks, require_ids

import mlx.core as mx


@final
@register("filter")
@dataclass(frozen=True, kw_only=True)
class Xtc(Step):
    """With a probability, remove every id more probable than `threshold` except the least probable of them.

    Each position has its own coin, the same for target and drafter, in plain and speculative decoding: one
    coin a call would correlate the tokens of a verified block.

    Attributes:
        probability: in [0, 1] that a position is touched (coin < probability); 0 is off, 1 touches all.
        threshold: in [0, 0.5]; ids with p > threshold are the top choices.
        ties: `keep` leaves every id as probable as the least probable top choice (as mlx-lm does); `drop`
            leaves exactly one, the highest id among equals (llama.cpp leaves one).
        excluded: token ids that are never removed, though they count as top choices.
    """

    strength: ClassVar[str] = "probability"
    random: ClassVar[bool] = True

    probability: float = 0.0
    threshold: float = 0.1
    ties: Literal["keep", "drop"] = "keep"
    excluded: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        require("probability", 0 <= self.probability <= 1, "in [0, 1]", self.probability)
        require("threshold", 0 <= self.threshold <= 0.5, "in [0, 0.5]", self.threshold)  # noqa: PLR2004
        require_ids("excluded", self.excluded)

    @property
    def neutral(self) -> bool:
        return self.probability == 0

    def named_ids(self) -> Mapping[str, tuple[int, ...]]:
        return {"excluded": self.excluded}

    def apply(self, logits: Logits, scene: Scene) -> Logits:
        assert scene.coin is not None, "a chain that needs_coin was not given one"
        probs = from_logits(logits.values).probs
        choices = probs > self.threshold
        least = mx.where(choices, probs, math.inf).min(axis=-1, keepdims=True)
        removed = probs > least
        if self.ties == "drop":
            equal = (probs == least).astype(mx.int32)
            removed = removed | ((equal > 0) & (mx.cumsum(equal, axis=-1) < equal.sum(axis=-1, keepdims=True)))
        if self.excluded:
            removed = removed & ~logits.gather(marks(self.excluded, logits.vocab_size))
        touched = (scene.coin < self.probability)[..., None]
        return logits.keep(~(touched & removed))
