"""Frequency penalty: the OpenAI option of that name."""

from dataclasses import dataclass
from typing import final

from specfw.registry import register
from specfw.sampling._additive import AdditivePenalty

import mlx.core as mx


@final
@register("filter")
@dataclass(frozen=True, kw_only=True)
class Frequency(AdditivePenalty):
    """x - penalty * (how often the id was seen)."""

    def weight(self, counts: mx.array) -> mx.array:
        return counts
