"""Whether a run follows its law: q(block), survival and the next token, each checked on its own.

A block's probability is q(block) x survival x next token, so three checks cover it, and acceptance alone is
blind (drawing from the target instead of the residual has a perfect acceptance):

    drafts       mid-distribution transform of every draft token under its q row, by falling q
    lengths      accepted tokens against survival, given the block
    emitted      the same transform of every emitted token under its target row, by id and by q / p (by falling p
                 where nothing was drafted); for a lossy rule the next token under its own row
    closed_form  accepted tokens against the rule's closed form, given the context
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, final

from specfw.acceptance.base import Needs
from specfw.counting import tested
from specfw.diagnostics._evidence import Evidence
from specfw.diagnostics.base import Check, Diagnostic, Floats, Observer, Setting
from specfw.distribution import Categorical
from specfw.registry import register
from specfw.types import Block, Ints, Outcome, Round

import mlx.core as mx
import numpy as np
import numpy.typing as npt

CHECKS = ("drafts", "lengths", "emitted", "emitted_by_ratio", "closed_form")


@final
@register("diagnostic")
@dataclass(frozen=True, kw_only=True)
class Calibration(Diagnostic):
    """The checks whose mean e-value decides the verdict of a run.

    Attributes:
        sorting: also hold acceptance against a closed form that sorts every row; off, such a rule has no
            `closed_form` check.
    """

    sorting: bool = False

    def open(self, setting: Setting) -> Observer:
        return _Calibration(setting, asks=self.sorting or not setting.rule.closed_form_sorts)


@final
class _Calibration(Observer):
    def __init__(self, setting: Setting, *, asks: bool) -> None:
        self._setting, self._asks = setting, asks
        self._shared_noise = setting.rule.needs is Needs.SHARED_NOISE
        self._drafted_to: dict[tuple[int, int], int] = {}
        self._evidence = {name: Evidence() for name in CHECKS}

    def trace(self, graph: Round) -> tuple[mx.array, ...]:
        drafted = _drafted(graph.block, self._setting, self._asks)
        return (*_emitted(graph, self._setting), *drafted, graph.verdict.survival)

    def observe(self, outcome: Outcome, trace: Sequence[Floats]) -> None:
        survival = trace[-1]
        self._observe_emitted(outcome, trace[:EMITTED])
        if outcome.drafts.shape[1]:
            self._observe_lengths(outcome, survival)
            if len(trace) > EMITTED + 1:
                self._observe_drafts(outcome, trace[EMITTED:-1])

    def _observe_emitted(self, outcome: Outcome, trace: Sequence[Floats]) -> None:
        p, by_id, by_ratio, cubes = trace
        kept = np.arange(by_id.shape[1]) < outcome.emitted[:, None]
        if not self._setting.rule.preserves_target:
            # the drafts that stand follow no row of the target; only the last token's law is known
            kept &= np.arange(by_id.shape[1]) == outcome.raw_accepted[:, None]
        checks = self._evidence["emitted"], self._evidence["emitted_by_ratio"]
        for evidence, transform in zip(checks, (by_id, by_ratio), strict=True):
            evidence.require(p > 0, kept)
            evidence.add(transform, np.full_like(transform, 0.5), (1 - cubes) / 12, kept)

    def _observe_lengths(self, outcome: Outcome, survival: Floats) -> None:
        places = np.arange(survival.shape[1])
        if not self._setting.rule.stops_at_rejection:
            self._observe_whole(outcome, np.where(places < outcome.proposed[:, None], survival, 0))
            return
        counted = places < tested(outcome, stops_at_rejection=True)[:, None]
        stands = (places < outcome.accepted[:, None]).astype(np.float64)
        before = np.concatenate([np.ones_like(survival[:, :1]), survival[:, :-1]], axis=1)
        chance = np.divide(survival, before, out=np.zeros_like(survival, dtype=np.float64), where=before > 0)
        if self._setting.rule.deterministic:
            self._evidence["lengths"].equal(stands, chance, counted)
        else:
            self._evidence["lengths"].add(stands, chance, chance * (1 - chance), counted)

    def _observe_whole(self, outcome: Outcome, survival: Floats) -> None:
        """Rules that look past a rejection: n' of a round against the sum of its survival, over K'."""
        counted = outcome.proposed > 0
        length = np.maximum(outcome.proposed, 1)
        total = survival.sum(axis=1, dtype=np.float64)
        odd = 2 * np.arange(1, survival.shape[1] + 1) - 1
        variance = (odd * survival).sum(axis=1, dtype=np.float64) - total**2
        self._evidence["lengths"].add(outcome.accepted / length, total / length, variance / length**2, counted)

    def _observe_drafts(self, outcome: Outcome, trace: Sequence[Floats]) -> None:
        q, transform, cubes, expected = trace
        places = np.arange(q.shape[1])
        drafted = places < outcome.proposed[:, None]
        if self._setting.point_mass:
            self._evidence["drafts"].equal(q, np.ones_like(q), drafted)
        else:
            fresh = drafted & self._first_drafted(outcome, places) if self._shared_noise else drafted
            self._evidence["drafts"].add(transform, np.full_like(transform, 0.5), (1 - cubes) / 12, fresh)
        self._observe_closed_form(outcome, expected, places)

    def _first_drafted(self, outcome: Outcome, places: Ints) -> npt.NDArray[np.bool_]:
        """[B, K] whether a position is drafted for the first time: on shared noise a second draft is no new draw."""
        positions = outcome.position[:, None] + places
        known = [self._drafted_to.get(key, -1) for key in zip(outcome.prompt, outcome.sample, strict=True)]
        for row, key in enumerate(zip(outcome.prompt, outcome.sample, strict=True)):
            self._drafted_to[key] = max(known[row], int(outcome.position[row] + outcome.lengths[row]) - 1)
        return np.asarray(positions > np.array(known)[:, None])

    def _observe_closed_form(self, outcome: Outcome, expected: Floats, places: Ints) -> None:
        rule = self._setting.rule
        limit = tested(outcome, rule.stops_at_rejection)[:, None]
        counted = (places < limit) & (rule.stops_at_rejection | (places == 0)) & np.isfinite(expected)
        stands = (places < outcome.accepted[:, None]).astype(np.float64)
        if rule.deterministic and self._setting.point_mass:
            self._evidence["closed_form"].equal(stands, expected.astype(np.float64), counted)
        else:
            self._evidence["closed_form"].add(stands, expected, expected * (1 - expected), counted)

    def numbers(self) -> dict[str, Any]:
        return {name: _plain(check) for name, check in self.checks().items()}

    def checks(self) -> dict[str, Check]:
        found = {name: evidence.check() for name, evidence in self._evidence.items()}
        return {name: check for name, check in found.items() if check.terms}


EMITTED = 4


def _emitted(graph: Round, setting: Setting) -> tuple[mx.array, ...]:
    """P of the emitted tokens, their transforms by id and by q / p, and the cube sums: [B, K+1] each."""
    block = graph.block
    if not setting.rule.preserves_target:
        token = graph.verdict.token
        row, _ = setting.rule.next_token(block, graph.verdict.accepted)
        own = (row.at(token), row.transform(token), row.transform(token, -row.probs), row.cube_sum())
        return tuple(mx.broadcast_to(value[:, None], graph.emitted.shape) for value in own)
    p, tokens = block.target, graph.emitted
    return p.at(tokens), p.transform(tokens), p.transform(tokens, _ratio_order(block, setting)), p.cube_sum()


def _ratio_order(block: Block, setting: Setting) -> mx.array:
    """[B, K+1, S] q / p where something was drafted; elsewhere by falling p, which sees a sharpened row.

    Under a rule that looks past a rejection, which later row meets a token depends on tokens not yet emitted,
    so only the first place may be ordered by q / p.
    """
    falling, count = -block.target.probs, block.tokens.shape[1]
    if block.draft is None or not count:
        return falling
    p: Categorical = block.target.head(count)
    ratio = mx.where(p.probs > 0, block.draft.aligned(p) / p.probs, 0)
    limit = block.lengths if setting.rule.stops_at_rejection else mx.minimum(block.lengths, 1)
    drafted = (mx.arange(count) < limit[:, None])[..., None]
    return mx.concatenate([mx.where(drafted, ratio, falling[:, :-1]), falling[:, -1:]], axis=1)


def _drafted(block: Block, setting: Setting, asks: bool) -> tuple[mx.array, ...]:
    """q, transform by falling q and cube sum of the draft tokens, closed form (nan unless asked): [B, K] each."""
    count = block.tokens.shape[1]
    if block.draft is None or not count:
        return ()
    q = block.draft
    rows = block.target.head(count)
    expected = setting.rule.expected_acceptance(rows, q) if asks else mx.full(block.tokens.shape, mx.nan)
    return q.at(block.tokens), q.transform(block.tokens, -q.probs), q.cube_sum(), expected


def _plain(check: Check) -> dict[str, Any]:
    return {**check._asdict(), "log10_e_value": check.log_e_value / np.log(10)}
