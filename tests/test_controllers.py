"""Draft lengths: what each controller does, that it never biases a rule, and that rows do not meet."""

import itertools

from specfw import registry
from specfw.distribution import Dense
from specfw.drafting.controllers.base import Costs
from specfw.drafting.controllers.confidence import Confidence
from specfw.drafting.controllers.constant import Constant
from specfw.drafting.controllers.cost import Cost
from specfw.drafting.controllers.heuristic import Heuristic
from specfw.verification.exact import all_blocks, enumerate_rule, honest, joint, total_variation
from specfw.verification.pairs import pairs
from specfw.verification.statistics import chi_square

import mlx.core as mx
import numpy as np
import pytest
from kit import ALPHA, decoder, emitted, iid, markov, rule, start

P, Q = [0.1, 0.2, 0.3, 0.4], [0.4, 0.3, 0.2, 0.1]
MARKOV_P = [[0.1, 0.6, 0.3], [0.5, 0.1, 0.4], [0.2, 0.7, 0.1]]
MARKOV_Q = [[0.3, 0.4, 0.3], [0.2, 0.3, 0.5], [0.6, 0.3, 0.1]]
# seconds of 1, 2, 5, 9, 17 rows and of a drafter step: a pair of 1.5 and 0.5 billion parameters on two cores
CURVE = ((1, 0.688), (2, 0.712), (5, 1.057), (9, 1.279), (17, 1.214))
STEP = 0.198

CONTROLLERS = {
    "constant": Constant(num_draft_tokens=3),
    "heuristic": Heuristic(num_draft_tokens=2, most=6),
    "confidence": Confidence(threshold=0.35, most=5),
    "cost": Cost(curve=CURVE, draft_step_s=0.05, most=6),
}


def test_every_controller_is_tried_here():
    assert set(CONTROLLERS) == set(registry.names("controller"))


def outcomes(parts, **changes):
    return list(start(parts, **changes))


@pytest.mark.parametrize("name", CONTROLLERS)
@pytest.mark.parametrize("acceptance", ["stochastic", "block", "sampler_match", "gumbel"])
def test_no_controller_biases_a_rule(name, acceptance):
    """Transitions of a Markov pair, 12,000 tokens."""
    parts = decoder(markov(MARKOV_P), markov(MARKOV_Q), acceptance, controller=CONTROLLERS[name], max_tokens=60)
    rows = np.array(emitted(start(parts, samples=200)))
    tables = np.zeros((3, 3))
    np.add.at(tables, (rows[:, :-1].ravel(), rows[:, 1:].ravel()), 1)
    for counts, law in zip(tables, MARKOV_P, strict=True):
        assert chi_square(counts, law).p_value > ALPHA


@pytest.mark.parametrize("name", CONTROLLERS)
@pytest.mark.parametrize("acceptance", ["stochastic", "block"])
def test_a_row_is_drafted_alike_alone_and_among_others(name, acceptance):
    parts = decoder(markov(MARKOV_P), markov(MARKOV_Q), acceptance, controller=CONTROLLERS[name], max_tokens=40)
    together = emitted(start(parts, samples=5))
    assert len({tuple(row) for row in together}) == 5
    assert [emitted(start(parts, samples=5, keep=[row]))[0] for row in range(5)] == together


@pytest.mark.parametrize("name", CONTROLLERS)
def test_lengths_stay_within_what_is_promised(name):
    parts = decoder(markov(MARKOV_P), markov(MARKOV_Q), controller=CONTROLLERS[name], max_tokens=40)
    seen = [outcome.lengths[outcome.active] for outcome in outcomes(parts, samples=6)]
    assert min(counts.min() for counts in seen if len(counts)) >= 0
    assert max(counts.max() for counts in seen if len(counts)) <= CONTROLLERS[name].longest


def test_the_heuristic_grows_by_two_and_shrinks_by_one():
    always = decoder(iid(P), iid(P), controller=Heuristic(num_draft_tokens=2, most=7), max_tokens=60)
    assert [int(o.lengths[0]) for o in outcomes(always)][:5] == [2, 4, 6, 7, 7]
    never = decoder(iid([1.0, 0.0]), iid([0.0, 1.0]), controller=Heuristic(num_draft_tokens=4, least=2), max_tokens=8)
    assert [int(o.lengths[0]) for o in outcomes(never)][:4] == [4, 3, 2, 2]


def test_confidence_keeps_the_token_that_ends_the_block():
    parts = decoder(iid(P), iid(Q), controller=Confidence(threshold=0.25, most=6), max_tokens=80)
    unsure = {2, 3}  # of probability 0.2 and 0.1
    for outcome in outcomes(parts):
        drafts = outcome.drafts[0, : outcome.lengths[0]].tolist()
        assert not unsure & set(drafts[:-1])
        assert not drafts or drafts[-1] in unsure or len(drafts) in (6, outcome.drafts.shape[1])


def test_confidence_asks_once_a_drafted_token_and_no_other_controller_does():
    for name, controller in CONTROLLERS.items():
        generation = start(decoder(iid(P), iid(Q), controller=controller, max_tokens=40))
        seen = list(generation)
        rounds, extra = len(seen), generation.host_syncs - len(seen)
        asked = sum(max(min(int(o.lengths[0]), 5), 0) for o in seen)
        assert (0 < extra <= asked + rounds) if name == "confidence" else extra == 1, name  # the prompt's chunk


def stopped_after_kept(pair, threshold):
    """Blocks end after their first token below the threshold, which is kept."""
    blocks, proposed = all_blocks(pair), honest(pair)
    drawn = np.stack([row[tuple(blocks[:, : j + 1].T)] for j, row in enumerate(pair.q)], axis=1)
    sure = np.cumprod(drawn >= threshold, axis=1)[:, :-1]
    return proposed._replace(lengths=1 + sure.sum(axis=1))


@pytest.mark.parametrize("name", ["stochastic", "block", "sampler_match", "gumbel"])
def test_stopping_after_a_kept_token_is_exact(name):
    """The very thing that `discard_low_confidence` gets wrong, on 100 enumerated pairs."""
    shorter = 0
    for pair in pairs(100):
        proposed = stopped_after_kept(pair, 0.4)
        found = enumerate_rule(rule(name), pair, proposed=proposed)
        assert total_variation(found.emitted, joint(pair.p)) < 1e-9
        shorter += (proposed.lengths < pair.draft_tokens).any()
    assert shorter > 30


def best(controller, chance, rounds=400):
    """The length it settles on where each draft token stands with that chance."""
    p, q = [chance, 1 - chance], [1.0, 0.0]  # a point mass: acceptance is p of it
    parts = decoder(iid(p), iid(q), controller=controller, max_tokens=rounds)
    lengths = [int(outcome.lengths[0]) for outcome in outcomes(parts)][:-8]
    return max(set(lengths[len(lengths) // 2 :]), key=lengths[len(lengths) // 2 :].count)


def expected_best(controller, chance):
    tokens = 1 + np.concatenate([[0], np.cumsum(chance ** np.arange(1, controller.most + 1))])
    return int((tokens / controller.seconds()).argmax())


@pytest.mark.parametrize("chance", [0.15, 0.5, 0.8, 0.95])
def test_the_cost_controller_finds_the_best_length_of_a_curve(chance):
    """Within one token of it, or within 3 % of its speed, without being told the acceptance."""
    controller = Cost(curve=CURVE, draft_step_s=STEP, most=16)
    found, ideal = best(controller, chance), expected_best(controller, chance)
    tokens = 1 + np.concatenate([[0], np.cumsum(chance ** np.arange(1, 17))])
    speed = tokens / controller.seconds()
    assert abs(found - ideal) <= 1 or speed[found] > 0.97 * speed[ideal], (found, ideal)


def test_it_declines_where_rows_cost_what_they_are_many_and_tries_again_now_and_then():
    """A reference BLAS: K + 1 rows cost K + 1 times one, and nothing pays."""
    controller = Cost(curve=((1, 1.0), (2, 2.0), (3, 3.0)), draft_step_s=0.2, most=8, probe_every=20)
    parts = decoder(iid(P), iid(Q), controller=controller, max_tokens=300)
    lengths = [int(outcome.lengths[0]) for outcome in outcomes(parts)]
    probes = [place for place, count in enumerate(lengths) if count]
    assert set(lengths) == {0, 1}
    assert all(later - earlier == 21 for earlier, later in itertools.pairwise(probes))
    assert len(probes) > 5


def test_seed_and_curve_give_the_text():
    controller = Cost(curve=CURVE, draft_step_s=STEP)
    texts = [emitted(start(decoder(iid(P), iid(Q), controller=controller, max_tokens=80))) for _ in range(2)]
    assert texts[0] == texts[1]
    other = Cost(curve=((1, 1.0), (2, 2.0)), draft_step_s=1.0)
    assert emitted(start(decoder(iid(P), iid(Q), controller=other, max_tokens=80))) != texts[0]


def test_costs_are_measured_once_and_only_if_they_are_not_given():
    asked = []

    def measure(rows):
        asked.append(rows)
        return Costs({1: 1.0, 2: 1.5}, 0.25)

    measured = Cost(most=5).costed(measure)
    assert asked == [6]
    assert measured.curve == ((1.0, 1.0), (2.0, 1.5))
    assert measured.draft_step_s == 0.25
    assert measured.costed(measure) is measured
    assert Constant().costed(measure) == Constant()
    assert len(asked) == 1
    np.testing.assert_allclose(measured.seconds(), [1.0, 1.75, 2.5, 3.25, 4.0, 4.75])


@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        (lambda: Heuristic(least=0), r"least must be in \[1, most = 16\], got 0"),
        (lambda: Heuristic(num_draft_tokens=20), r"num_draft_tokens must be in \[1, 16\], got 20"),
        (lambda: Heuristic(most=65), r"most must be in \[1, 64\], got 65"),
        (lambda: Heuristic(up=-1), "up must be 0 or more, got -1"),
        (lambda: Confidence(threshold=1.5), r"threshold must be in \[0, 1\], got 1.5"),
        (lambda: Confidence(most=0), r"most must be in \[1, 64\], got 0"),
        (lambda: Cost(curve=((2, 1.0),), draft_step_s=0.1), "curve must be pairs"),
        (lambda: Cost(curve=((1, 1.0), (1, 2.0)), draft_step_s=0.1), "curve must be pairs"),
        (lambda: Cost(curve=((1, 0.0),), draft_step_s=0.1), "curve must be pairs"),
        (lambda: Cost(curve=((1, 1.0),)), "draft_step_s must be given together with curve"),
        (lambda: Cost(prior=1.0), r"prior must be in \(0, 1\)"),
        (lambda: Cost(probe_every=0), "probe_every must be at least 1"),
        (lambda: Cost().open(1), "curve must be measured or given"),
    ],
)
def test_refusals(make, sentence):
    with pytest.raises(ValueError, match=sentence):
        make()


def test_block_survival_of_rows_of_different_lengths():
    """A row's law is the same whatever longer rows stand beside it."""
    with mx.stream(mx.cpu):
        p = Dense(mx.array([[P] * 4] * 2))
        q = Dense(mx.array([[Q] * 3] * 2))
    from specfw.types import Block

    block = Block(p, q, mx.array([[0, 3, 2]] * 2), mx.array([3, 2]))
    alone = Block(Dense(p.probs[:1, :3]), Dense(q.probs[:1, :2]), mx.array([[0, 3]]), mx.array([2]))
    for name in ("stochastic", "block"):
        law = np.array(rule(name).law(block))
        np.testing.assert_allclose(law[1], [*np.array(rule(name).law(alone))[0], 0], rtol=1e-6)
