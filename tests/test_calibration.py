"""The checks of a run: quiet on right rules, loud on wrong ones, each fault seen by the part that can see it."""

import math

from specfw.acceptance.stochastic import Stochastic
from specfw.diagnostics._evidence import Evidence, log_e_value
from specfw.diagnostics.base import Setting
from specfw.diagnostics.calibration import Calibration
from specfw.distribution import Dense
from specfw.drafting.model import ModelDrafting
from specfw.summary import log_e_value as verdict_of

import mlx.core as mx
import numpy as np
import pytest
from kit import chain, decoder, iid, markov, rule, start
from test_losslessness import MARKOV_P, MARKOV_Q, ResampleFromTarget

P, Q = [0.1, 0.2, 0.3, 0.4], [0.4, 0.3, 0.2, 0.1]
LIMIT = math.log(1e6)


def calibrated(target, drafter, acceptance, *, k=4, samples=64, greedy=False, seed=0, length=64, **changes):
    active = rule(acceptance) if isinstance(acceptance, str) else acceptance
    drafting = ModelDrafting(proposal="greedy") if greedy else ModelDrafting()
    sampler = changes.pop("sampler", None) or chain()
    setting = Setting(
        rule=active,
        point_mass=drafting.point_mass(changes.get("draft_sampler", sampler)),
    )
    observer = Calibration(sorting=True).open(setting)
    parts = decoder(
        target, drafter, active, k, seed=seed, observers=(observer,), drafting=drafting, max_tokens=length,
        sampler=sampler, **changes,
    )  # fmt: skip
    for _ in start(parts, samples=samples):
        pass
    return observer


def failing(observer):
    return {name for name, check in observer.checks().items() if check.log_e_value > LIMIT}


@pytest.mark.parametrize("greedy", [False, True], ids=["sampled", "greedy"])
@pytest.mark.parametrize("acceptance", ["stochastic", "sampler_match", "block", "gumbel"])
@pytest.mark.parametrize("models", ["iid", "markov"])
def test_right_runs_pass_every_check(acceptance, models, greedy):
    pair = (iid(P), iid(Q)) if models == "iid" else (markov(MARKOV_P), markov(MARKOV_Q))
    observer = calibrated(*pair, acceptance, greedy=greedy)
    checks = observer.checks()
    assert set(checks) == {"drafts", "lengths", "emitted", "emitted_by_ratio", "closed_form"}
    assert not failing(observer)
    assert all(check.terms > 500 for check in checks.values())
    assert all(check.z is None or abs(check.z) < 5 for check in checks.values())
    assert verdict_of({"calibration": observer}) < LIMIT


@pytest.mark.parametrize("samples", [1, 5])
def test_on_shared_noise_a_position_counts_only_when_first_drafted(samples):
    """Drafting a position again repeats its noise: nothing new is drawn."""
    observer = Calibration().open(Setting(rule=rule("gumbel"), point_mass=False))
    drafted, every = set(), 0
    for o in start(decoder(iid(P), iid(Q), "gumbel", observers=(observer,), max_tokens=40), samples=samples):
        places = [(row, o.position[row] + i) for row in range(samples) for i in range(o.proposed[row])]
        drafted, every = drafted | set(places), every + len(places)
    assert observer.checks()["drafts"].terms == len(drafted) < every


def test_a_closed_form_that_sorts_is_asked_for_on_request():
    for sorting in (False, True):
        observer = Calibration(sorting=sorting).open(Setting(rule=rule("gumbel"), point_mass=False))
        for _ in start(decoder(iid(P), iid(Q), "gumbel", observers=(observer,))):
            pass
        assert ("closed_form" in observer.checks()) == sorting


def test_resampling_has_a_perfect_acceptance_and_is_seen_by_what_is_emitted():
    found = failing(calibrated(iid(P), iid(Q), ResampleFromTarget()))
    assert "emitted_by_ratio" in found
    assert not found & {"drafts", "lengths", "closed_form"}


@pytest.mark.parametrize("k", [0, 4])
def test_argmax_text_at_a_temperature_is_seen_where_nothing_is_drafted_too(k):
    """B41: by id, the argmax of many rows lies near the middle; by falling p it never does."""

    class Lying(type(rule("argmax_against_argmax"))):
        preserves_target = True

    rows = np.random.default_rng(7).dirichlet(np.ones(24), size=24)
    observer = calibrated(markov(rows), markov(rows[::-1]), Lying(), k=k, samples=4, length=64)
    assert "emitted_by_ratio" in failing(observer)


def test_a_bonus_token_from_the_row_before_is_seen():
    class Early(Stochastic):
        def bonus(self, block, n):
            return block.target.row(mx.maximum(n - 1, 0))

    observer = calibrated(markov(MARKOV_P), markov(MARKOV_P), Early(), k=2, samples=64)
    assert failing(observer) & {"emitted", "emitted_by_ratio"}


def test_a_lossy_rule_is_held_to_its_own_law():
    observer = calibrated(iid(P), iid(Q), "argmax_against_argmax")
    assert not failing(observer)
    assert observer.checks()["emitted"].terms > 500


def test_a_lossy_rule_that_calls_itself_lossless_fails():
    class Lying(type(rule("argmax_against_argmax"))):
        preserves_target = True

    assert {"emitted", "emitted_by_ratio"} <= failing(calibrated(iid(P), iid(Q), Lying()))


class _LogitsOf:
    """A drafter whose reported rows are not those it drew from."""

    @staticmethod
    def session(monkeypatch, change):
        from specfw.drafting import model

        whole = model.stacked
        monkeypatch.setattr(model, "stacked", lambda rows: change(whole(rows)))


def test_drafts_from_another_law_than_reported_are_seen(monkeypatch):
    """B21, B22: q reported is not the law of the draft tokens."""
    _LogitsOf.session(monkeypatch, lambda rows: Dense(rows.probs[..., ::-1]))
    assert "drafts" in failing(calibrated(iid(P), iid(Q), "stochastic"))


def test_greedy_runs_are_held_to_equality():
    observer = calibrated(iid(P), iid(Q), "greedy_argmax", sampler=chain(temperature={"value": 0}))
    checks = observer.checks()
    assert not failing(observer)
    assert all(check.z is None and check.log_e_value == 0 for check in checks.values())


def test_one_broken_certainty_is_proof():
    evidence = Evidence()
    one = np.ones((1, 1))
    evidence.equal(one, one, one > 0)
    assert evidence.check().log_e_value == 0
    evidence.equal(0 * one, one, one > 0)
    assert evidence.check().log_e_value == math.inf


def test_an_emitted_token_outside_the_support_is_proof():
    evidence = Evidence()
    evidence.require(np.array([0.1, 0.0]) > 0, np.array([True, False]))
    assert evidence.check().log_e_value == 0
    evidence.require(np.array([0.1, 0.0]) > 0, np.array([True, True]))
    assert evidence.check().log_e_value == math.inf


def test_e_value_of_the_definition():
    lambdas = [0.05, 0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 6.4]
    m, v = 3.0, 4.0
    terms = [math.exp(s * x * m - (math.exp(x) - 1 - x) * v) for x in lambdas for s in (1, -1)]
    assert log_e_value(m, v) == pytest.approx(math.log(sum(terms) / 16), rel=1e-9)
    assert log_e_value(1e5, 10.0) > LIMIT  # no overflow


def test_false_alarms_of_three_hundred_right_runs():
    """Ville: e above 20 in at most 5 % of right runs; z near standard normal."""
    evidence, z = [], []
    for seed in range(300):
        observer = calibrated(iid(P), iid(Q), "stochastic", samples=4, length=32, seed=seed)
        evidence.append(verdict_of({"calibration": observer}))
        z.append([check.z for check in observer.checks().values()])
    assert np.mean(np.array(evidence) > math.log(20)) <= 0.05
    assert max(evidence) < LIMIT
    spread = np.array(z, dtype=np.float64)
    assert (np.abs(spread.mean(axis=0)) < 4 / math.sqrt(300)).all()
    assert (np.abs(spread.std(axis=0) - 1) < 0.25).all()


def test_end_of_sequence_does_not_bias_the_checks():
    """Cut K' at end-of-sequence drafts whether reached or not: counting reached ones alone would bias."""
    for acceptance in ("stochastic", "sampler_match"):
        observer = calibrated(
            iid(P), iid(Q), acceptance, samples=3000, length=40, eos_ids=frozenset({0}), seed=4
        )  # fmt: skip
        checks = observer.checks()
        assert not failing(observer)
        assert all(abs(check.z) < 5 for check in checks.values())
