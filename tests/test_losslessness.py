"""Right rules pass a chi-square at 12,000 emitted tokens, wrong ones are rejected by the same statistic."""

from dataclasses import dataclass

from specfw.acceptance.base import AcceptanceRule, Needs
from specfw.acceptance.stochastic import Stochastic
from specfw.verification.statistics import chi_square, combined, disjoint_pairs

import numpy as np
import pytest
from kit import ALPHA, SAMPLES, chain, decoder, iid, markov, rule, start

P, Q = [0.1, 0.2, 0.3, 0.4], [0.4, 0.3, 0.2, 0.1]
SPREAD = ([0.35, 0.3, 0.2, 0.15], [0.65, 0.2, 0.1, 0.05])
MARKOV_P = [[0.1, 0.2, 0.7], [0.5, 0.3, 0.2], [0.25, 0.25, 0.5]]
MARKOV_Q = [[0.4, 0.4, 0.2], [0.1, 0.3, 0.6], [0.6, 0.2, 0.2]]
LENGTH = 65


@dataclass(frozen=True, kw_only=True)
class ResampleFromTarget(AcceptanceRule):
    """A wrong rule: accepts like modified rejection sampling, then draws from p instead of the residual."""

    id = "resample-from-target"
    label = "wrong"
    preserves_target = True
    needs = Needs.PROPOSAL_DISTRIBUTION

    def survival(self, block):
        return Stochastic().survival(block)

    def residual(self, block, n):
        return block.target.row(n)

    def expected_acceptance(self, p, q):
        return Stochastic().expected_acceptance(p, q)


RIGHT = ["sampler_match", "stochastic", "block", "gumbel"]
WRONG = [ResampleFromTarget(), rule("argmax_against_argmax")]


def run(target, drafter, acceptance, k, seed=11, **changes):
    """Outcomes and emitted tokens [B, LENGTH] of enough sequences."""
    batch = -(-SAMPLES // LENGTH) + 1
    parts = decoder(target, drafter, acceptance, k, seed=seed, max_tokens=LENGTH, **changes)
    generation = start(parts, samples=batch)
    outcomes = list(generation)
    assert generation.lengths.min() == 2 + LENGTH
    return outcomes, generation.tokens[:, 2 : 2 + LENGTH]


def counts(tokens, size):
    return np.bincount(np.asarray(tokens).ravel(), minlength=size)


def firsts(outcomes):
    return np.concatenate([outcome.tokens[outcome.emitted > 0, 0] for outcome in outcomes])


def at_place(outcomes, place):
    chosen = [o.tokens[o.emitted > place, place] for o in outcomes if o.tokens.shape[1] > place]
    return np.concatenate(chosen)


@pytest.mark.parametrize("k", [1, 4])
@pytest.mark.parametrize("acceptance", RIGHT)
@pytest.mark.parametrize("pair", [(P, Q), SPREAD], ids=["reversed", "spread"])
def test_right_rules_pass(acceptance, k, pair):
    p, q = pair
    outcomes, tokens = run(iid(p), iid(q), acceptance, k)
    assert tokens.size >= SAMPLES
    assert chi_square(counts(tokens, 4), p).p_value > ALPHA
    assert chi_square(counts(firsts(outcomes), 4), p).p_value > ALPHA
    for place in range(k + 1):
        assert chi_square(counts(at_place(outcomes, place), 4), p).p_value > ALPHA
    assert chi_square(disjoint_pairs(tokens, 4), np.outer(p, p)).p_value > ALPHA


@pytest.mark.parametrize("k", [1, 4])
@pytest.mark.parametrize("wrong", WRONG, ids=lambda rule: rule.id)
def test_wrong_rules_are_rejected_by_the_same_statistic(wrong, k):
    outcomes, tokens = run(iid(P), iid(Q), wrong, k)
    assert chi_square(counts(firsts(outcomes), 4), P).p_value < ALPHA
    assert chi_square(counts(tokens, 4), P).p_value < ALPHA
    assert chi_square(disjoint_pairs(tokens, 4), np.outer(P, P)).p_value < ALPHA


@pytest.mark.parametrize("acceptance", RIGHT)
def test_right_rules_pass_given_the_previous_token(acceptance):
    fit = given_previous(run(markov(MARKOV_P), markov(MARKOV_Q), acceptance, 4)[1])
    assert fit.p_value > ALPHA


def test_resampling_is_rejected_given_the_previous_token():
    fit = given_previous(run(markov(MARKOV_P), markov(MARKOV_Q), ResampleFromTarget(), 4)[1])
    assert fit.p_value < ALPHA


def given_previous(tokens):
    """One test a previous token, of all transitions, which are independent given where they start."""
    table = np.zeros((3, 3))
    np.add.at(table, (tokens[:, :-1], tokens[:, 1:]), 1)
    return combined([chi_square(row, law) for row, law in zip(table, MARKOV_P, strict=True)])


@pytest.mark.parametrize("temperature", [0.5, 2.0])
@pytest.mark.parametrize("acceptance", RIGHT)
def test_temperature_reaches_both_models(acceptance, temperature):
    """B24: acceptance at T = 1 whatever T is."""
    sampler = chain(temperature={"value": temperature})
    _, tokens = run(iid(P), iid(Q), acceptance, 4, sampler=sampler)
    powered = np.array(P) ** (1 / temperature)
    assert chi_square(counts(tokens, 4), powered / powered.sum()).p_value > ALPHA
    untouched = chi_square(counts(tokens, 4), P).p_value
    assert untouched < ALPHA


@pytest.mark.parametrize(
    ("steps", "law"),
    [
        ({"top_k": {"k": 2}}, [0, 0, 3 / 7, 4 / 7]),
        ({"top_p": {"p": 0.6}}, [0, 0, 3 / 7, 4 / 7]),
        ({"min_p": {"p": 0.5}}, [0, 2 / 9, 3 / 9, 4 / 9]),
    ],
    ids=["top_k", "top_p", "min_p"],
)
@pytest.mark.parametrize("acceptance", RIGHT)
@pytest.mark.parametrize("drafts_filtered", [True, False])
def test_filters_on_one_or_both_sides(acceptance, steps, law, drafts_filtered):
    """B21, B23: what is emitted follows the filtered target, whatever the drafter's chain."""
    changes = {"sampler": chain(**steps)} if drafts_filtered else {"sampler": chain(**steps), "draft_sampler": chain()}
    outcomes, tokens = run(iid(P), iid(Q), acceptance, 4, **changes)
    assert chi_square(counts(tokens, 4), law).p_value > ALPHA
    assert chi_square(counts(firsts(outcomes), 4), law).p_value > ALPHA


@pytest.mark.parametrize("k", [1, 4])
def test_acceptance_sits_on_its_closed_form_where_sum_min_and_sum_prod_are_far_apart(k):
    closed = {"sampler_match": 0.2, "stochastic": 0.6, "gumbel": gumbel_closed_form(P, Q)}
    for name, expected in closed.items():
        outcomes, _ = run(iid(P), iid(Q), name, k)
        accepted = sum(o.accepted.sum() for o in outcomes)
        tested = sum(np.minimum(o.accepted + 1, o.proposed).sum() for o in outcomes)
        assert accepted / tested == pytest.approx(expected, abs=0.02)


def gumbel_closed_form(p, q):
    p, q = np.array(p), np.array(q)
    return sum(1 / np.maximum(p / p[j], q / q[j]).sum() for j in range(len(p)))
