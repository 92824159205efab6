"""Top-p (nucleus) sampling: Holtzman et al. 1904.09751."""

from dataclasses import dataclass
from typing import ClassVar, Literal, final

from specfw.distribution import from_logits
from specfw.registry import register, require
from specfw.sampling.base import Logits, Scene, Step
from specfw.sampling.selection import first, nucleus, top


@final
@register("filter")
@dataclass(frozen=True, kw_only=True)
class TopP(Step):
    """Keep the smallest set of most probable ids whose mass reaches p, one id at least.

    Attributes:
        p: in (0, 1]; 1 is off.
        ties: `drop` keeps the lowest ids first among those as probable as the last one in the set, until the
            mass is reached; `keep` keeps them all (as mlx-lm does, which compares with a threshold).
        min_tokens_to_keep: this many of the most probable ids stay whatever p says.
    """

    strength: ClassVar[str] = "p"

    p: float = 1.0
    ties: Literal["drop", "keep"] = "drop"
    min_tokens_to_keep: int = 1

    def __post_init__(self) -> None:
        require("p", 0 < self.p <= 1, "in (0, 1]", self.p)
        require("min_tokens_to_keep", self.min_tokens_to_keep >= 1, "in [1, inf)", self.min_tokens_to_keep)

    @property
    def neutral(self) -> bool:
        return self.p == 1

    def apply(self, logits: Logits, scene: Scene) -> Logits:
        probs = from_logits(logits.values).probs
        edge, count = nucleus(probs, self.p)
        kept = probs >= edge if self.ties == "keep" else first(probs, edge, count)
        if self.min_tokens_to_keep > 1:
            kept = kept | top(probs, self.min_tokens_to_keep)
        return logits.keep(kept)
