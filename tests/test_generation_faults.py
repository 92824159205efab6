"""What is no distribution ends a run by an error with row, position and model; it never passes for a rejection."""

import json
import math
from dataclasses import dataclass

from specfw.acceptance.base import AcceptanceRule
from specfw.distribution import Dense, Survivors
from specfw.drafting import model as drafting
from specfw.errors import FailedCheckError
from specfw.experiment import run
from specfw.models._toy import ToyModel, by_position, by_token
from specfw.types import Proposal

import mlx.core as mx
import numpy as np
import pytest
from kit import chain, config, decoder, emitted, iid, rule, start

V = 4
NAN, INF = math.nan, math.inf
BROKEN = {
    "one NaN": [0.2, NAN, 0.3, 0.5],
    "all NaN": [NAN] * V,
    "infinite": [0.1, INF, 0.1, 0.1],
    "nothing": [0.0] * V,
}
ZERO = {"temperature": {"value": 0.0}}
WIDE = 32  # wide enough for top_k to keep ids and probabilities apart
CHAINS = {
    "bare": {},
    "top_k": {"top_k": {"k": 2}},
    "top_p": {"top_p": {"p": 0.5}},
    "min_p": {"min_p": {"p": 0.1}},
    "T0": ZERO,
    "T0 with bias": ZERO | {"bias": {"values": {0: 1.0}}},
}


def position_model(name, broken, at, size=V):
    """Uniform rows, but for the one of position `at`."""
    rows = np.full((30, size), 1 / size)
    if broken is not None:
        rows[at, : len(broken)] = broken
        rows[at, len(broken) :] = 0
    with np.errstate(invalid="ignore"):
        return ToyModel(name, rows, by_position(30))


def fails(parts, *words, **changes):
    with pytest.raises(FailedCheckError) as caught:
        emitted(start(parts, **changes))
    assert all(word in str(caught.value) for word in words), str(caught.value)


@pytest.mark.parametrize("broken", BROKEN)
@pytest.mark.parametrize("steps", CHAINS)
@pytest.mark.parametrize("place", [2, 3, 5, 6, 9])
def test_a_broken_row_of_the_target(broken, steps, place):
    """B97, F8: found at its own place, in plain decoding and whatever place of a block it is."""
    target, drafter = position_model("target", BROKEN[broken], place, WIDE), position_model("drafter", None, 0, WIDE)
    acceptance = "greedy_argmax" if "T0" in steps else "stochastic"
    common = {"sampler": chain(**CHAINS[steps]), "max_tokens": 20}
    words = ("row 0", f"position {place}", "model target", "the target's row is not a distribution")
    fails(decoder(target, None, acceptance, **common), *words)
    for k in (1, 4):
        fails(decoder(target, drafter, acceptance, k, **common), *words)


@pytest.mark.parametrize("broken", BROKEN)
@pytest.mark.parametrize("steps", CHAINS)
@pytest.mark.parametrize("place", [2, 5])
def test_a_broken_row_of_the_drafter(broken, steps, place):
    target, drafter = position_model("target", None, 0, WIDE), position_model("drafter", BROKEN[broken], place, WIDE)
    acceptance = "greedy_argmax" if "T0" in steps else "stochastic"
    words = ("row 0", f"position {place}", "model drafter", "the drafter's row is not a distribution")
    fails(decoder(target, drafter, acceptance, 4, sampler=chain(**CHAINS[steps]), max_tokens=20), *words)


@pytest.mark.parametrize("acceptance", ["stochastic", "sampler_match"])
def test_the_row_of_the_batch_is_named(acceptance):
    rows = np.array([[1 / 3, 1 / 3, 1 / 3, 0]] * 3 + [[NAN] * 4])
    prompts = [(0, 0), (0, 1), (1, 3), (0, 3)]
    parts = decoder(ToyModel("target", rows, by_token), iid([0.5, 0.25, 0.25, 0]), acceptance)
    fails(parts, "row 2", "prompt 2, sample 0", "position 2", "logits contain NaN", prompts=prompts)
    fails(parts, "row 1", "prompt 2, sample 1", "position 2", prompts=prompts, samples=2, keep=[0, 5])


def test_a_row_that_is_finished_may_break():
    """Nothing of it is used any more."""
    rows = np.array([[0.5, 0.5, 0], [0.5, 0.5, 0], [NAN] * 3])
    parts = decoder(ToyModel("t", rows, by_token), iid([0.4, 0.6, 0]), eos_ids=frozenset({2}), max_tokens=8)
    generation = start(parts, prompts=[(0, 0), (0, 1)])
    generation.finished[0] = True
    generation.tokens[0, 1] = 2
    assert [len(row) for row in emitted(generation)] == [0, 8]


def test_a_chain_that_leaves_nothing():
    everything = chain(bias={"ban": (0, 1, 2, 3)})
    flat = iid([1 / V] * V)
    fails(decoder(flat, flat, sampler=everything, draft_sampler=chain()), "position 2", "no token is left after the")
    fails(decoder(flat, flat, sampler=chain(), draft_sampler=everything), "the drafter's row", "no token is left")


def test_a_bias_on_an_id_that_the_target_has_not():
    """Refused before the first forward pass: it could only be dropped."""
    fair = {"name": "iid", "probs": [0.5, 0.5]}
    with pytest.raises(ValueError, match=r"^sampler\.bias\.values must be ids in \[0, 2\), got 2$"):
        run(config(fair, fair, sampler={"bias": {"values": {2: 1.0}}}), quiet=True)


def test_a_drafter_that_reports_q_zero_at_its_own_token(monkeypatch):
    """B35: at the second draft token of the row with the second prompt."""
    honest = drafting.ModelSession.propose

    def lying(self, committed, count, noise, judge=None):
        rows = honest(self, committed, count, noise).rows
        return Proposal(mx.array([[0, 0, 0, 0], [0, 2, 0, 0]], dtype=mx.int32), rows)

    monkeypatch.setattr(drafting.ModelSession, "propose", lying)
    parts = decoder(iid([0.4, 0.3, 0.3]), iid([0.5, 0.5, 0.0]))
    fails(parts, "row 1", "position 3", "q = 0 at the token it proposed", prompts=[(0, 0), (1, 1)])


@pytest.mark.parametrize("scale", [1.001, 0.999])
def test_rows_that_are_not_normalised(monkeypatch, scale):
    flat = iid([1 / V] * V)
    whole = drafting.stacked
    monkeypatch.setattr(drafting, "stacked", lambda rows: Dense(whole(rows).probs * scale))
    fails(decoder(flat, flat), "position 2", "the drafter's row is not a distribution", f"sums to {scale}")
    monkeypatch.setattr(drafting, "stacked", whole)
    fails(decoder(flat, flat, sampler=Scaled(scale), draft_sampler=chain()), "the target's row", f"sums to {scale}")


class Scaled:
    """A chain whose rows sum to `scale`."""

    needs_coin = False

    def __init__(self, scale):
        self._scale = scale

    def distribution(self, logits, history, coin):
        return Dense(chain().distribution(logits, history, coin).probs * self._scale)


@dataclass(frozen=True, kw_only=True)
class Constant(AcceptanceRule):
    """A rule with the same survival in every block, and no residual."""

    survivals: tuple[float, ...]

    id = "constant"
    label = "constant survival"
    preserves_target = True

    def survival(self, block):
        return mx.broadcast_to(mx.array(self.survivals), block.tokens.shape)

    def residual(self, block, n):
        row = block.target.row(n)
        return row.weighed(mx.zeros_like(row.probs))

    def expected_acceptance(self, p, q):
        return mx.full(p.probs.shape[:-1], self.survivals[0])


@pytest.mark.parametrize(
    ("survivals", "place"),
    [((1.01, 0.5), 0), ((0.5, -0.1), 1), ((0.3, 0.4), 1), ((NAN, NAN), 0), ((0.5, NAN), 1), ((INF, 0.1), 0)],
)
def test_a_rule_whose_survival_is_none(survivals, place):
    parts = decoder(iid([0.5, 0.5]), iid([0.5, 0.5]), Constant(survivals=survivals), 2)
    fails(parts, "row 0", f"position {2 + place}", "survival leaves [0, 1] or increases")


def test_a_residual_without_mass_is_counted_and_the_target_stands_in(tmp_path):
    whole = config({"name": "iid", "probs": [0.0, 1.0]}, {"name": "iid", "probs": [0.5, 0.5]}, k=1, max_tokens=31)
    summary = run(whole, acceptance=Constant(survivals=(0.5,)), folder=tmp_path, quiet=True)
    recovered = summary.numbers["rounds"] - summary.numbers["accepted"]
    assert summary.numbers["degenerate_residuals"] == recovered > 5
    rows = [json.loads(line) for line in (tmp_path / "tokens.jsonl").read_text().splitlines()]
    assert {row["id"] for row in rows if row["origin"] in ("recovered", "bonus")} == {1}
    first = [json.loads(line).get("outcome") for line in (tmp_path / "events.jsonl").read_text().splitlines()]
    assert first.count("degenerate_residual") == 1


@pytest.mark.parametrize("form", [Dense, Survivors])
def test_a_rejection_that_rounding_made(form):
    """P is below q by rounding wherever it is not equal: rejected with nothing left, so p itself is drawn from."""
    p, q = mx.array([[[0.5, 0.5 - 4e-6]] * 2]), mx.array([[[0.5, 0.5]]])
    ids = mx.array([[[3, 7]]], dtype=mx.int32)
    rows = (p, q) if form is Dense else (mx.concatenate([ids, ids], axis=1), ids)
    target, draft = (Dense(p), Dense(q)) if form is Dense else (Survivors(rows[0], p), Survivors(rows[1], q))
    token = 1 if form is Dense else 7
    block = drafting_block(target, draft, token)
    verdict = rule("stochastic").decide(block, Fixed(accept=0.999999, residual=0.75))
    assert (verdict.accepted.item(), verdict.degenerate.item(), verdict.token.item()) == (0, True, token)
    standing = rule("stochastic").decide(block, Fixed(accept=0.5, residual=0.75))
    assert (standing.accepted.item(), standing.degenerate.item()) == (1, False)


def drafting_block(target, draft, token):
    from specfw.types import Block

    return Block(target, draft, mx.array([[token]], dtype=mx.int32), mx.array([1], dtype=mx.int32))


class Fixed:
    """Draws that are written down."""

    def __init__(self, accept, residual):
        self._accept, self._residual = accept, residual

    def accept(self):
        return mx.array([self._accept])

    def residual(self):
        return mx.array([[self._residual, self._residual]])


def test_a_failed_check_leaves_a_whole_record(tmp_path):
    fair = {"name": "iid", "probs": [0.5, 0.5]}
    whole = config(fair, fair, prompts={"name": "ids", "ids": [[0]]})
    whole["draft_sampler"]["bias"] = {"ban": [0, 1]}
    said = []
    with pytest.raises(FailedCheckError):
        run(whole, folder=tmp_path, write=said.append, quiet=True)
    summary = json.loads((tmp_path / "summary.json").read_text())
    assert "the drafter's row is not a distribution" in summary["error"]
    events = [json.loads(line)["event"] for line in (tmp_path / "events.jsonl").read_text().splitlines()]
    assert events[-2:] == ["run_failed", "run_finished"]
    assert "".join(said).splitlines()[-1] == summary["line"]
