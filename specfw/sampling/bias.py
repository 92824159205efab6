"""Token bias: a constant added to the logits of chosen ids, and bans."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar, final

from specfw.registry import register, require
from specfw.sampling.base import LIMIT, Logits, Scene, Step, require_ids, table


@final
@register("filter")
@dataclass(frozen=True, kw_only=True)
class Bias(Step):
    """x + bias of the id; a ban is a bias of -inf.

    Attributes:
        values: token id to what is added to its logit, in [-1e30, 1e30] or -inf.
        ban: token ids that are never drawn.
    """

    strength: ClassVar[str] = "values"
    reorders: ClassVar[bool] = True

    values: Mapping[int, float] = field(default_factory=dict)
    ban: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        require_ids("values", tuple(self.values))
        require_ids("ban", self.ban)
        for token, value in self.values.items():
            holds = value == -math.inf or -LIMIT <= value <= LIMIT
            require(f"values.{token}", holds, "in [-1e30, 1e30] or -inf", value)

    @property
    def neutral(self) -> bool:
        return not self.ban and not any(self.values.values())

    def named_ids(self) -> Mapping[str, tuple[int, ...]]:
        return {"values": tuple(self.values), "ban": self.ban}

    def apply(self, logits: Logits, scene: Scene) -> Logits:
        entries = {**self.values, **dict.fromkeys(self.ban, -math.inf)}
        added = table(entries, logits.vocab_size, logits.values.dtype)
        return logits._replace(values=logits.values + logits.gather(added))
