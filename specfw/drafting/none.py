"""Plain decoding: no drafter, every round is one token of the target on its own noise."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal, final

from specfw.drafting.base import Drafting, DraftSession, Judge, Start
from specfw.randomness import Noise
from specfw.registry import register
from specfw.sampling.chain import SamplerChain
from specfw.types import Ints, Proposal


@final
@register("drafting")
@dataclass(frozen=True, kw_only=True)
class NoDrafting(Drafting):
    """The arm that every speedup is measured against."""

    uses_model = False
    proposes = False

    @property
    def caches(self) -> Literal["none"]:
        return "none"

    def reports_distribution(self) -> bool:
        return False

    def point_mass(self, chain: SamplerChain) -> bool:
        return False

    def open(self, start: Start) -> DraftSession:
        return _Nothing()


@final
class _Nothing(DraftSession):
    def prefill(self) -> Iterator[int]:
        return iter(())

    def propose(self, committed: tuple[Ints, ...], count: int, noise: Noise, judge: Judge | None = None) -> Proposal:
        raise ValueError("drafting=none proposes nothing")

    def rewind(self, counts: Ints) -> None:
        pass

    def lengths(self) -> None:
        return None

    def arrays(self) -> tuple[()]:
        return ()
