"""Wrong rules as equipment: each has its published distortion, runs as its law says, and is one somewhere."""

import dataclasses
import json
from fractions import Fraction
from pathlib import Path

from specfw.verification.exact import enumerate_rule, iid, joint, markov, total_variation
from specfw.verification.faults import FAULTS, named
from specfw.verification.pairs import pairs
from specfw.verification.statistics import chi_square

import numpy as np
import pytest
from kit import ALPHA, chain, decoder, emitted, rule, start
from kit import iid as iid_model

GOLDEN = json.loads((Path(__file__).parent / "golden_acceptance_rules.json").read_text())
WRONG = GOLDEN["known_wrong_rules"]
RULES = ("stochastic", "block", "sampler_match", "gumbel")
DECODERS = [fault for fault in FAULTS if not FAULTS[fault].overlapping]
FITTING = [(fault, name) for fault in DECODERS for name in RULES if FAULTS[fault].fits(rule(name))]
P, Q = [0.1, 0.2, 0.3, 0.4], [0.4, 0.3, 0.2, 0.1]
UNEVEN = [0.35, 0.3, 0.2, 0.15], [0.65, 0.2, 0.1, 0.05]


def numbers(fractions):
    return [float(Fraction(x)) for x in fractions]


def toy(name, k):
    pair = GOLDEN["pairs"][name]
    return iid(numbers(pair["p"]), numbers(pair["q"]), k)


def first_token(found):
    return found.emitted.reshape(len(found.emitted), -1).sum(axis=1)


@pytest.mark.parametrize(
    ("fault", "name", "pair", "k", "golden"),
    [
        ("resample_from_target", "stochastic", "A", 1, "resample_from_p_instead_of_residual"),
        ("resample_from_target", "stochastic", "B", 1, "resample_from_p_instead_of_residual"),
        ("argmax_text", "stochastic", "A", 1, "argmax_against_argmax_at_temperature_1"),
        ("argmax_text", "stochastic", "B", 1, "argmax_against_argmax_at_temperature_1"),
        ("shared_noise", "stochastic", "E", 1, "residual_reuses_the_drafts_gumbel_noise"),
        ("block_break_at_first_failure", "block", "A", 2, "block_with_break_at_first_failure"),
        ("block_token_residual", "block", "E", 2, "block_with_the_token_residual"),
        ("discard_low_confidence", "stochastic", "A", 1, "discard_a_drawn_low_confidence_draft"),
    ],
)
def test_golden_distortions(fault, name, pair, k, golden):
    values = WRONG[golden].get(f"{pair} gamma {k}", WRONG[golden].get(pair))
    found = FAULTS[fault].enumerate(rule(name), toy(pair, k))
    distance = total_variation(found.emitted, joint(toy(pair, k).p))
    expected = values.get("total_variation", values.get("total_variation_of_joint"))
    assert distance == pytest.approx(float(Fraction(expected)), abs=1e-12)
    if "emitted" in values:
        np.testing.assert_allclose(first_token(found), numbers(values["emitted"]), atol=1e-12)
    if "expected_accepted" in values:
        assert found.expected_accepted == pytest.approx(float(Fraction(values["expected_accepted"])), abs=1e-12)


def test_golden_raw_q():
    """The draft is drawn from the kept ids and scored by the whole row."""
    values = WRONG["raw_q_scored_while_the_draft_was_filtered"]
    pair = iid([0.5, 0.5, 0.0], [0.4, 0.3, 0.3], 1)
    found = FAULTS["raw_q"].enumerate(rule("stochastic"), pair)
    assert found.expected_accepted == pytest.approx(float(values["acceptance"]), abs=1e-12)
    expected = float(Fraction(values["total_variation"]))
    assert total_variation(first_token(found), pair.p[0]) == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize(
    ("fault", "pair", "reported"),
    [
        ("softmax_residual", (P, Q), [0.189, 0.290, 0.298, 0.222]),
        ("resample_from_target", (P, Q), [0.140, 0.280, 0.321, 0.259]),
        ("same_or_coin", (P, Q), [0.131, 0.219, 0.288, 0.362]),
        ("shared_uniform", UNEVEN, [0.350, 0.200, 0.183, 0.267]),
        ("shared_noise", UNEVEN, [0.350, 0.279, 0.203, 0.168]),
        ("greedy_draft_soft_q", ([0.3, 0.4, 0.2, 0.1], [0.5, 0.3, 0.1, 0.1]), [0.60, 0.20, 0.20, 0.0]),
    ],
)
def test_what_was_simulated_of_shipped_faults(fault, pair, reported):
    """The reported values are simulations, good to about 0.002."""
    found = FAULTS[fault].enumerate(rule("stochastic"), iid(*pair, 1))
    np.testing.assert_allclose(first_token(found), reported, atol=0.003)


def test_the_block_faults_that_marginals_cannot_see():
    """Redrawing by the token residual leaves the first token exactly right, and the pairs wrong."""
    pair = toy("E", 2)
    found = FAULTS["block_token_residual"].enumerate(rule("block"), pair)
    np.testing.assert_allclose(first_token(found), pair.p[0], atol=1e-12)
    assert total_variation(found.emitted.sum(axis=2), joint(pair.p[:2])) > 1e-3


def test_one_uniform_for_all_places_is_invisible_at_one_draft_token():
    fault, right = FAULTS["scalar_uniform"], rule("stochastic")
    assert total_variation(fault.enumerate(right, iid(P, Q, 1)).emitted, joint(iid(P, Q, 1).p)) < 1e-12
    assert total_variation(fault.enumerate(right, iid(P, Q, 2)).emitted, joint(iid(P, Q, 2).p)) > 0.05


def test_an_impossible_token_is_possible_without_the_support_guard():
    pair = iid([0.5, 0.5, 0.0], [0.2, 0.3, 0.5], 1)
    found = FAULTS["no_support_guard"].enumerate(rule("stochastic"), pair)
    assert first_token(found)[2] == pytest.approx(0.5 * 2**-32)
    assert first_token(enumerate_rule(rule("stochastic"), pair))[2] == 0


@pytest.mark.parametrize(("fault", "name"), FITTING)
def test_every_fault_distorts_something(fault, name):
    """On 60 random pairs, and by more than 1 % on one of them; the missing guard by what it can."""
    found = [total_variation(FAULTS[fault].enumerate(rule(name), pair).emitted, joint(pair.p)) for pair in pairs(60)]
    assert max(found) > (1e-12 if fault == "no_support_guard" else 0.01)


def test_a_discarded_draw_harms_ratio_rules_only():
    """Rules that emit the target's own draw are exact under any choice of what is proposed."""
    for name in ("sampler_match", "gumbel"):
        for fault in ("discard_low_confidence", "greedy_draft_soft_q", "raw_q"):
            if name == "gumbel" and fault != "discard_low_confidence":
                continue  # its law is that of a drafter on shared noise
            found = FAULTS[fault].enumerate(rule(name), toy("E", 2))
            assert total_variation(found.emitted, joint(toy("E", 2).p)) < 1e-12


LIVE = [(fault, name) for fault, name in FITTING if fault not in ("no_support_guard", "rows_one_late")]


@pytest.mark.parametrize(("fault", "name"), LIVE)
def test_a_fault_runs_as_its_law_says(fault, name):
    """12,000 first rounds of the real loop: the first token and the accepted length follow the enumeration."""
    k, samples = 2, 12_000
    filtered = fault in ("raw_q", "q_before_filters")
    draft = chain(top_k={"k": 2}) if filtered else chain()
    parts = decoder(iid_model(P), iid_model(Q), name, k, draft_sampler=draft, max_tokens=k + 1)
    generation = start(FAULTS[fault].inject(parts), samples=samples)
    first = next(iter(generation))
    exact = FAULTS[fault].enumerate(rule(name), iid(P, Q, k))
    assert chi_square(np.bincount(first.tokens[:, 0], minlength=4), first_token(exact)).p_value > ALPHA
    assert chi_square(np.bincount(first.raw_accepted, minlength=k + 1), exact.accepted).p_value > ALPHA


def test_a_row_too_late_runs_as_its_law_says():
    """On rows that depend on the token before; the first place is right, the second is not."""
    p, q = ([0.25] * 4, np.roll(np.diag([0.7] * 4) + 0.075, 1, 0)), ([0.25] * 4, [[0.25] * 4] * 4)
    pair = markov(p, q, 2)
    exact = FAULTS["rows_one_late"].enumerate(rule("stochastic"), pair)
    assert total_variation(exact.emitted, joint(pair.p)) > 0.1
    assert total_variation(first_token(exact), pair.p[0]) < 1e-12


def test_an_injected_fault_reports_the_right_law():
    """What the checks of a run are held against is the rule's own, not the fault's."""
    parts = decoder(iid_model(P), iid_model(Q), "stochastic", 1)
    right, wrong = (start(one) for one in (parts, FAULTS["accept_all"].inject(parts)))
    assert wrong.decoder.rule.id == right.decoder.rule.id
    outcomes = list(wrong)
    assert all((outcome.accepted == outcome.proposed).all() for outcome in outcomes)


def test_without_a_fault_nothing_changes():
    """The faulty session with the right draws is the right session, token by token."""
    parts = decoder(iid_model(P), iid_model(Q), "stochastic", 3)
    neutral = FAULTS["raw_q"].inject(parts)  # this chain has nothing to leave out
    assert emitted(start(neutral, samples=3)) == emitted(start(parts, samples=3))


def test_an_unknown_fault_is_refused():
    with pytest.raises(ValueError, match=r"task\.fault must be one of: resample_from_target, .*, got 'resample'"):
        named("resample")


def test_every_fault_says_what_it_is():
    assert len({fault.what for fault in FAULTS.values()}) == len(FAULTS)
    assert all(name == fault.name for name, fault in FAULTS.items())
    assert all(dataclasses.is_dataclass(fault) for fault in FAULTS.values())
