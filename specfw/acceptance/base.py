"""The law of an acceptance rule: two quantities from which everything else follows.

For one drafted block a rule is completely described by

    survival       S_i [B, K]: the probability that at least i draft tokens are accepted, given the whole block;
                   non-increasing in i;
    next_token(n)  the row [B, V] of the recovered (n < K) or bonus (n = K) token, given that n were accepted.

A rule file states these. Deciding (one uniform a round: n = number of S_i above it), the exact enumeration, the
calibration of a run and the comparison of rules are written once, here and above, for all of them.
"""

from abc import ABC, abstractmethod
from enum import Enum
from typing import ClassVar, Literal, final

from specfw.distribution import Categorical
from specfw.randomness import Noise
from specfw.types import Block, Verdict

import mlx.core as mx


class Needs(Enum):
    """What a rule needs of the drafter."""

    NOTHING = "nothing"
    PROPOSAL_DISTRIBUTION = "proposal distribution"
    SHARED_NOISE = "shared noise"


class AcceptanceRule(ABC):
    """One rule, a frozen dataclass of its hyperparameters.

    Attributes:
        id: the module's name in kebab case; stable, what logs are searched for.
        label: words for the parenthesis of the summary line.
        preserves_target: whether the emitted tokens follow the target exactly (on its domain).
        domain: `any` target, or only a greedy one.
        stops_at_rejection: whether later draft tokens cannot matter once one is rejected.
        needs: of the drafter.
        deterministic: whether survival is 0 or 1 at every block.
        closed_form_sorts: whether `expected_acceptance` sorts its rows; diagnostics then ask for it on request only.
    """

    id: ClassVar[str]
    label: ClassVar[str]
    preserves_target: ClassVar[bool]
    domain: ClassVar[Literal["any", "greedy_target"]] = "any"
    stops_at_rejection: ClassVar[bool] = True
    needs: ClassVar[Needs] = Needs.NOTHING
    deterministic: ClassVar[bool] = False
    closed_form_sorts: ClassVar[bool] = False

    @abstractmethod
    def survival(self, block: Block) -> mx.array:
        """S_i [B, K] for every place of the round's K; `law` cuts each row at its own length."""

    @abstractmethod
    def residual(self, block: Block, n: mx.array) -> Categorical:
        """Weights [B, V] of the recovered token after n [B] < K accepted; any scale, all zero if it has none."""

    @abstractmethod
    def expected_acceptance(self, p: Categorical, q: Categorical | None) -> mx.array:
        """[...] the closed form: probability that the first draft token of a block is accepted.

        Args:
            p: [..., V] target rows.
            q: [..., V] proposal rows the token is drawn from; None when the drafter reports none (nan then).
        """

    def bonus(self, block: Block, n: mx.array) -> Categorical:
        """The row [B, V] after all draft tokens were accepted: the target's own."""
        return block.target.row(n)

    def surrogate(self, p: Categorical, q: Categorical | None) -> Categorical | None:
        """The law a lossy rule follows exactly instead of `p`, if it declares one."""
        return p if self.preserves_target else None

    @final
    def law(self, block: Block) -> mx.array:
        """Survival [B, K], 0 beyond each row's own length."""
        if not block.tokens.shape[1]:
            return mx.zeros(block.tokens.shape, dtype=block.target.probs.dtype)
        within = mx.arange(block.tokens.shape[1]) < block.lengths[:, None]
        return mx.where(within, self.survival(block), 0)

    @final
    def next_token(self, block: Block, n: mx.array) -> tuple[Categorical, mx.array]:
        """The normalised row [B, V] of the token after n [B] accepted, and whether its residual was empty [B]."""
        weights, degenerate = self._next_weights(block, n)
        return weights.normalised(), degenerate

    def _next_weights(self, block: Block, n: mx.array) -> tuple[Categorical, mx.array]:
        """The row of `next_token` at any scale.

        A residual without mass can only follow a rejection that rounding made; the row after all were accepted,
        which is the target's own there, stands in for it.
        """
        bonus = self.bonus(block, n)
        if not block.tokens.shape[1]:
            return bonus, mx.zeros(n.shape, dtype=mx.bool_)
        rejected = n < block.lengths
        residual = self.residual(block, mx.minimum(n, block.tokens.shape[1] - 1))
        degenerate = rejected & (residual.total() <= 0)
        return bonus.where(~rejected | degenerate, residual), degenerate

    def decide(self, block: Block, noise: Noise) -> Verdict:
        """Decide a round: n is how many S_i exceed one uniform, then one draw from the row of n."""
        survival = self.law(block)
        accepted = (noise.accept()[:, None] < survival).sum(axis=1).astype(mx.int32)
        weights, degenerate = self._next_weights(block, accepted)
        return Verdict(accepted, weights.draw(noise.residual()), survival, degenerate)


def given(q: Categorical | None, rule: str) -> Categorical:
    """The proposal rows that `rule` cannot do without.

    Raises:
        ValueError: the drafter reported none.
    """
    if q is None:
        raise ValueError(f"{rule} needs the drafter's proposal distribution, and none was reported")
    return q
