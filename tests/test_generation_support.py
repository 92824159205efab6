"""Tokens stay inside the target's support and follow its rows; drafts follow the draft chain; histories are exact."""

from dataclasses import dataclass

from specfw.distribution import Dense, Survivors
from specfw.drafting.model import ModelDrafting
from specfw.models.position import Position
from specfw.randomness import Noise, uniforms
from specfw.sampling.base import Step
from specfw.sampling.chain import SamplerChain
from specfw.types import Block
from specfw.verification.statistics import chi_square, combined

import mlx.core as mx
import numpy as np
import pytest
from kit import ALPHA, chain, decoder, emitted, iid, rule, start

P, Q = [0.1, 0.2, 0.3, 0.4], [0.4, 0.3, 0.2, 0.1]
RULES = ["stochastic", "sampler_match", "block", "gumbel"]
XTC_P = [0.4, 0.3, 0.2, 0.1]


def flat(rows):
    return np.array([token for row in rows for token in row])


def rates(parts, **changes):
    """Accepted and tested draft tokens at each place of the block."""
    outcomes = list(start(parts, **changes))
    width = max(o.drafts.shape[1] for o in outcomes)
    counts = np.zeros((2, width))
    for o in outcomes:
        for count, limit in zip(counts, (o.accepted, np.minimum(o.accepted + 1, o.proposed)), strict=True):
            count[: o.drafts.shape[1]] += (np.arange(o.drafts.shape[1]) < limit[:, None]).sum(axis=0)
    return counts


def within(accepted, tested, law, sigmas=4.5):
    return bool(abs(accepted - tested * law) <= sigmas * np.sqrt(tested * law * (1 - law)) + 1e-9)


@pytest.mark.parametrize("size", [6, 64], ids=["dense", "survivors"])
@pytest.mark.parametrize("acceptance", RULES)
@pytest.mark.parametrize("k", [1, 4])
def test_nothing_outside_a_filtered_target(size, acceptance, k):
    """B21, B28: a top_k = 2 target with an unfiltered drafter, 1,500 tokens."""
    rng = np.random.default_rng(size)
    p, q = rng.dirichlet(np.ones(size)), rng.dirichlet(np.ones(size))
    allowed = set(np.argsort(-p)[:2].tolist())
    parts = decoder(
        iid(p.tolist()), iid(q.tolist()), acceptance, k,
        sampler=chain(top_k={"k": 2}), draft_sampler=chain(), max_tokens=50,
    )  # fmt: skip
    tokens = flat(emitted(start(parts, samples=30)))
    assert len(tokens) == 1500
    assert set(tokens.tolist()) == allowed


@pytest.mark.parametrize("mass", [1e-30, 1e-38, 1e-42, 1e-45])
@pytest.mark.parametrize("form", ["dense", "survivors"])
def test_an_underflowing_proposal_mass_lets_no_token_in(mass, form):
    """B29: p = 0, q next to nothing, and u = 0."""
    token, ids = mx.array([[0]], dtype=mx.int32), mx.array([[[0, 1]]], dtype=mx.int32)
    p, q = mx.array([[[0.0, 1.0]] * 2]), mx.array([[[mass, 1.0]]])
    target, draft = (Dense(p), Dense(q)) if form == "dense" else (Survivors(mx.repeat(ids, 2, 1), p), Survivors(ids, q))
    block = Block(target, draft, token, mx.array([1], dtype=mx.int32))
    for acceptance in RULES:
        assert rule(acceptance).law(block).item() == 0
    one = {name: np.zeros(1, dtype=np.int64) for name in ("prompt", "sample", "position")}
    verdict = rule("stochastic").decide(block, _Zero(seed=0, round=0, vocab_size=2, **one))
    assert (verdict.accepted.item(), verdict.token.item()) == (0, 1)


class _Zero(Noise):
    """Every uniform of the rule is 0."""

    def accept(self):
        return mx.zeros_like(super().accept())

    def residual(self):
        return mx.zeros_like(super().residual())


@pytest.mark.parametrize("zeros", ["accept", "residual", "draft"])
def test_u_zero_everywhere_draws_nothing_without_mass(monkeypatch, zeros):
    honest = getattr(Noise, zeros)
    monkeypatch.setattr(Noise, zeros, lambda self, *places: mx.zeros_like(honest(self, *places)))
    parts = decoder(iid([0.0, 0.0, 0.5, 0.5]), iid([0.0, 0.5, 0.5, 0.0]), max_tokens=40)
    outcomes = list(start(parts, samples=4))
    assert {int(token) for o in outcomes for row in o.drafts for token in row} <= {1, 2}
    assert {int(t) for o in outcomes for row, end in zip(o.tokens, o.emitted, strict=True) for t in row[:end]} <= {2, 3}


@pytest.mark.parametrize("size", [32768, 32769])
def test_min_p_at_large_vocabularies(size):
    """B58."""
    rng = np.random.default_rng(size)
    kept = np.sort([size - 1, *rng.choice(size - 1, 6, replace=False)])
    logits = rng.normal(size=size).astype(np.float32)
    logits[kept] = np.linspace(9, 10, 7)
    row = chain(min_p={"p": 0.2}).distribution(mx.array(logits)[None, None], None, None)
    np.testing.assert_array_equal(np.nonzero(np.array(row.probs)[0, 0])[0], kept)
    places = {name: np.zeros(200, dtype=np.int64) for name in ("prompt", "sample")}
    draws = Noise(seed=0, round=0, vocab_size=size, position=np.arange(200), **places)
    wide = Dense(mx.broadcast_to(row.probs[0], (200, size)))
    for drawn in (wide.draw(draws.residual()), row.race(draws.target([0]))):
        assert set(np.array(drawn).ravel().tolist()) == set(kept.tolist())


def tempered(row, temperature):
    powered = np.array(row) ** (1 / temperature)
    return powered / powered.sum()


@pytest.mark.parametrize(("target_t", "draft_t"), [(1.0, 0.3), (0.5, 2.0), (2.0, 0.7)])
def test_each_model_has_its_own_temperature(target_t, draft_t):
    """B24, B42: the closed form of these two temperatures, not with one of them lost or taken twice."""
    p, q = [0.55, 0.25, 0.15, 0.05], [0.7, 0.1, 0.1, 0.1]
    chains = {"sampler": chain(temperature={"value": target_t}), "draft_sampler": chain(temperature={"value": draft_t})}
    accepted, tested = rates(decoder(iid(p), iid(q), **chains), samples=64).sum(axis=1)
    assert tested > 3000
    wrong = {(1.0, 1.0), (target_t, target_t), (draft_t, draft_t), (1.0, draft_t), (target_t, 1.0)}
    for one, other in wrong | {(target_t, draft_t)}:
        law = np.minimum(tempered(p, one), tempered(q, other)).sum()
        assert within(accepted, tested, law) is ((one, other) == (target_t, draft_t))
    accepted, tested = rates(decoder(iid(p), iid(q), "sampler_match", **chains), samples=64).sum(axis=1)
    assert within(accepted, tested, tempered(p, target_t) @ tempered(q, draft_t))


@pytest.mark.parametrize("proposal", ["sampled", "greedy"])
@pytest.mark.parametrize("acceptance", ["stochastic", "sampler_match", "gumbel"])
def test_a_position_accepts_alike_at_every_place_and_k(acceptance, proposal):
    """B09, B36: on iid rows, on the closed form of the proposal law."""
    q = np.eye(4)[0] if proposal == "greedy" else np.array(Q)
    law = float(rule(acceptance).expected_acceptance(*(Dense(mx.array([row])) for row in (P, q.tolist()))).item())
    for k, samples in ((1, 40), (4, 120)):
        drafting = ModelDrafting(proposal=proposal)
        counts = rates(decoder(iid(P), iid(Q), acceptance, k, drafting=drafting, max_tokens=60), samples=samples)
        for accepted, tested in counts.T:
            assert within(accepted, tested, law), (k, accepted, tested, law)
        assert counts[1, 0] > 1400


@pytest.mark.parametrize("acceptance", RULES)
@pytest.mark.parametrize("k", [1, 3])
def test_rows_belong_to_their_positions(acceptance, k):
    """B38: one place too early or late, and the same statistic rejects."""
    rng = np.random.default_rng(1)
    p, q = rng.dirichlet(np.ones(4), size=5), rng.dirichlet(np.ones(4), size=5)
    models = [Position(rows=tuple(map(tuple, rows.tolist()))).load("toy") for rows in (p, q)]
    tokens = np.array(emitted(start(decoder(*models, acceptance, k, max_tokens=10), samples=600)))
    counts = [np.bincount(column, minlength=4) for column in tokens.T]

    def fit(shift):
        return combined([chi_square(seen, p[(2 + i + shift) % 5]) for i, seen in enumerate(counts)]).p_value

    assert fit(0) > ALPHA
    assert max(fit(1), fit(-1)) < ALPHA


def lag_one(rows):
    """Correlation of "token <= 1" with the token before it."""
    low = (np.array(rows) <= 1).astype(float)
    return np.corrcoef(low[:, :-1].ravel(), low[:, 1:].ravel())[0, 1]


def xtc_tokens(acceptance, samples=100, length=60):
    sampler = chain(xtc={"probability": 0.5, "threshold": 0.15})
    parts = decoder(iid(XTC_P), iid(XTC_P), acceptance, 4, sampler=sampler, max_tokens=length)
    return emitted(start(parts, samples=samples))


@pytest.mark.parametrize("acceptance", RULES)
def test_xtc_tosses_a_coin_for_every_position(acceptance, monkeypatch):
    """F1: 6,000 tokens; the marginals alone cannot tell, as one coin a round shows."""
    law = 0.5 * np.array(XTC_P) + 0.5 * np.array([0, 0, 2 / 3, 1 / 3])
    rows = xtc_tokens(acceptance)
    assert abs(lag_one(rows)) < 4 / np.sqrt(6000)
    assert chi_square(np.bincount(flat(rows), minlength=4), law).p_value > ALPHA

    def one_a_round(self, offsets):
        shared = uniforms(self._of_round(2), 1)
        return mx.broadcast_to(shared, (len(self.position), len(offsets)))

    monkeypatch.setattr(Noise, "coin", one_a_round)
    assert lag_one(xtc_tokens(acceptance)) > 4 / np.sqrt(6000)


@pytest.mark.parametrize("acceptance", RULES)
def test_xtc_acts_on_every_token(acceptance):
    """B59: two ids exceed the threshold, so the first of them never comes, over 500 tokens."""
    sampler = chain(xtc={"probability": 1.0, "threshold": 0.25})
    parts = decoder(iid(XTC_P), iid(Q), acceptance, 4, sampler=sampler, draft_sampler=chain(), max_tokens=50)
    tokens = flat(emitted(start(parts, samples=10)))
    assert set(tokens.tolist()) == {1, 2, 3}


@dataclass(frozen=True, kw_only=True)
class Recording(Step):
    """Changes nothing and writes down what each position sees."""

    seen: list

    strength = "seen"
    remembers = True

    @property
    def neutral(self):
        return False

    def apply(self, logits, scene):
        committed, _, drafted = scene.history
        positions, count = logits.values.shape[1], drafted.shape[1]
        drafts = np.array(drafted)
        for row, tokens in enumerate(committed):
            for t in range(positions):
                self.seen.append((row, tokens.tolist() + drafts[row, : count - positions + 1 + t].tolist()))
        return logits


def test_every_position_sees_prompt_emitted_and_the_drafts_before_it():
    """B55: and a rejected draft is forgotten."""
    recorders = Recording(seen=[]), Recording(seen=[])
    chains = [SamplerChain(order=("recording",), steps=(("recording", one),)) for one in recorders]
    parts = decoder(iid(P), iid(Q), k=3, sampler=chains[0], draft_sampler=chains[1], max_tokens=30)
    generation = start(parts, samples=2)
    for outcome in generation:
        known = [generation.tokens[row, : outcome.position[row]].tolist() for row in range(2)]
        width = outcome.drafts.shape[1]
        for recorder, places in zip(recorders, (width + 1, width), strict=True):
            expected = [(row, known[row] + outcome.drafts[row, :i].tolist()) for row in range(2) for i in range(places)]
            assert sorted(recorder.seen) == sorted(expected)
            recorder.seen.clear()
