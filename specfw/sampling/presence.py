"""Presence penalty: the OpenAI option of that name."""

from dataclasses import dataclass
from typing import final

from specfw.registry import register
from specfw.sampling._additive import AdditivePenalty

import mlx.core as mx


@final
@register("filter")
@dataclass(frozen=True, kw_only=True)
class Presence(AdditivePenalty):
    """x - penalty for every id that was seen at all."""

    def weight(self, counts: mx.array) -> mx.array:
        return mx.minimum(counts, 1)
