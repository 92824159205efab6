"""Caches hold n - 1 and n - 2 of n committed tokens whatever a round did, and the rows come from those tokens."""

from specfw.diagnostics.base import Observer
from specfw.generation import Generation
from specfw.models.cache_length import CacheLength
from specfw.models.markov import Markov
from specfw.models.pretrained.caches import LayerCaches

import mlx.core as mx
import numpy as np
import pytest
from kit import Scripted, chain, cycle, decoder, emitted, iid, rule, shipped, start
from mlx_lm.models.cache import KVCache

V, ORDER_OF_ROWS = 4, 3


class Rows(Observer):
    """The rows that the rule was given, and the tokens they belong to."""

    def __init__(self):
        self.seen = []

    def trace(self, graph):
        draft = graph.block.draft
        return graph.block.target.probs, mx.zeros((1,)) if draft is None else draft.probs

    def observe(self, outcome, trace):
        self.seen.append((outcome, *trace))

    def numbers(self):
        return {}


def contextual(seed, only=None):
    """A model that reads three tokens back, on the ids `only`, if given."""
    rng = np.random.default_rng(seed)
    rows = np.zeros((V**ORDER_OF_ROWS, V))
    allowed = list(range(V)) if only is None else only
    rows[:, allowed] = rng.dirichlet(np.ones(len(allowed)), size=len(rows))
    spec = Markov(order=ORDER_OF_ROWS, rows=tuple(map(tuple, rows.tolist())))
    return spec.load("toy"), rows


def watched(parts, **changes):
    """Run to the end, holding both caches to the contract after every round."""
    generation = start(parts, **changes)
    held = np.maximum(generation.lengths - 2, 0)
    outcomes = []
    for outcome in generation:
        committed = outcome.position + outcome.emitted
        if outcome.drafts.shape[1]:
            held = committed - 2
        target, drafter = generation.cache_lengths
        np.testing.assert_array_equal(target, committed - 1)
        np.testing.assert_array_equal(drafter, held)
        outcomes.append(outcome)
    return generation, outcomes


def row_of(table, context):
    """The row after `context`, ids 0 standing in front of it."""
    last = ([0] * ORDER_OF_ROWS + list(context))[-ORDER_OF_ROWS:]
    return table[int(np.dot(last, V ** np.arange(ORDER_OF_ROWS)[::-1]))]


SCRIPTS = {"k1": [1], "k4": [4], "sometimes": [3, 0, 1, 0, 0, 0, 4], "late": [0, 0, 0, 0, 0, 0, 2]}
PAIRS = {"all_accept": (1, None, 1, None), "all_reject": (1, [0, 1], 2, [2, 3]), "mixed": (1, None, 2, None)}


@pytest.mark.parametrize("prompt", [(2,), (1, 3), (0, 1, 2, 3, 2, 1, 0)], ids=len)
@pytest.mark.parametrize("script", SCRIPTS)
@pytest.mark.parametrize("pair", PAIRS)
def test_lengths_and_rows_after_every_round(pair, script, prompt):
    """B01, B02, B11, B38: each row is the model's own after prompt + emitted + the drafts before it."""
    seed, only, other, others = PAIRS[pair]
    (target, p), (drafter, q) = contextual(seed, only), contextual(other, others)
    rows = Rows()
    controller = Scripted(script=SCRIPTS[script])
    parts = decoder(target, drafter, controller=controller, observers=[rows], max_tokens=30, prefill_chunk=3)
    samples = 2 if 0 not in SCRIPTS[script] else 1
    generation, outcomes = watched(parts, prompts=[prompt], samples=samples)
    for outcome, p_rows, q_rows in rows.seen:
        for row in range(samples):
            known = generation.tokens[row, : outcome.position[row]].tolist()
            for place in range(outcome.lengths[row] + 1 if outcome.active[row] else 0):
                context = known + outcome.drafts[row, :place].tolist()
                np.testing.assert_allclose(p_rows[row, place], row_of(p, context), atol=1e-5)
                if place < outcome.lengths[row]:
                    np.testing.assert_allclose(q_rows[row, place], row_of(q, context), atol=1e-5)
    accepted, proposed = (sum(getattr(o, name).sum() for o in outcomes) for name in ("accepted", "proposed"))
    expected = {"all_accept": accepted == proposed, "all_reject": accepted == 0, "mixed": 0 < accepted < proposed}
    assert proposed > 0
    assert expected[pair]


def test_the_drafter_owes_many_tokens_and_catches_up():
    """Six rounds without it, then one with it: it is fed what it missed."""
    model, _ = contextual(3)
    parts = decoder(model, model, controller=Scripted(script=[0] * 6 + [4]), max_tokens=33)
    _, outcomes = watched(parts)
    drafting = [o for o in outcomes if o.drafts.shape[1]]
    assert len(drafting) == 3
    assert all((o.accepted == o.lengths).all() for o in drafting)


def test_k_zero_decodes_by_the_rules_own_draw():
    p, q = iid([0.1, 0.2, 0.3, 0.4]), iid([0.4, 0.3, 0.2, 0.1])
    for name in ("stochastic", "sampler_match"):
        generation, outcomes = watched(decoder(p, q, name, 0, max_tokens=9))
        assert [o.emitted.tolist() for o in outcomes] == [[1]] * 9
        assert (generation.cache_lengths[1] == 0).all()
    assert emitted(start(decoder(p, q, "sampler_match", 0))) == emitted(start(decoder(p, None, "sampler_match")))


@pytest.mark.parametrize("k", [1, 2, 4])
def test_one_agreeing_pair_accepts_everything_while_caches_count_alike(k):
    model = CacheLength(vocab_size=5, peak=0.6).load("toy")
    _, outcomes = watched(decoder(model, model, k=k, max_tokens=60), prompts=[(1,)], samples=8)
    assert sum(o.accepted.sum() for o in outcomes) == sum(o.proposed.sum() for o in outcomes) > 0


def origin_arithmetic(monkeypatch):
    """The drafter is taken to owe two tokens always, and is rewound by rejected + 1."""
    from specfw.drafting import model

    honest = model.ModelSession.rewind
    monkeypatch.setattr(model, "tail", lambda committed, _: (np.stack([row[-2:] for row in committed]), 0))
    monkeypatch.setattr(model.ModelSession, "rewind", lambda self, counts: honest(self, counts + 1))


def test_the_origins_arithmetic_fails_the_contract(monkeypatch):
    """B01."""
    origin_arithmetic(monkeypatch)
    model = CacheLength(vocab_size=5, peak=0.6).load("toy")
    with pytest.raises(AssertionError, match="drafter caches owe"):
        list(start(decoder(model, model), prompts=[range(5)]))


def test_the_origins_arithmetic_shows_as_acceptance_where_nothing_asserts(monkeypatch):
    """B01: text would stay right, and only a drafter that reads its own cache tells."""
    origin_arithmetic(monkeypatch)

    def unchecked(self, count, kept):
        self._rounds.rewind(count + 1 - kept, drafted=True)

    monkeypatch.setattr(Generation, "_rewind", unchecked)
    model = CacheLength(vocab_size=5, peak=0.6).load("toy")
    outcomes = list(start(decoder(model, model, k=1, max_tokens=200), prompts=[range(5)], samples=8))
    # one token too few each round: right in one round of five, else sum_min = 5 * 0.4 / 4
    rate = sum(o.accepted.sum() for o in outcomes) / sum(o.proposed.sum() for o in outcomes)
    assert rate == pytest.approx(1 / 5 + 4 / 5 * 0.5, abs=0.06)


class Stuck(KVCache):
    """A layer that forgets one token less than it is asked to."""

    def trim(self, n):
        return super().trim(max(n - 1, 0))


def test_a_trim_that_returns_less_is_an_error():
    """B04, F3: one layer of many."""
    layers = [KVCache(), Stuck()]
    for layer in layers:
        layer.update_and_fetch(mx.zeros((1, 1, 5, 4)), mx.zeros((1, 1, 5, 4)))
    with pytest.raises(RuntimeError, match="Stuck was asked to forget 2 tokens and forgot 1"):
        LayerCaches(layers).rewind(np.array([2]))


@pytest.mark.parametrize("role", ["target", "drafter"])
def test_a_run_whose_cache_sticks_ends(monkeypatch, role):
    """B04 in the loop: never a silent run with rejected tokens in the context."""
    model = shipped(role)
    others = len(model._module.layers) - 1
    monkeypatch.setattr(model, "new_cache", lambda _: LayerCaches([*(KVCache() for _ in range(others)), Stuck()]))
    with pytest.raises(RuntimeError, match="Stuck was asked to forget"):
        list(start(decoder(shipped("target"), shipped("drafter"), max_tokens=20), prompts=[(5, 6, 7)]))


@pytest.mark.parametrize("max_tokens", [0, 1, 2, 3, 6, 7])
@pytest.mark.parametrize("k", [1, 4, 9])
def test_no_more_than_max_tokens(max_tokens, k):
    """F5: K is cut to what may still be emitted, less the token that a round always adds."""
    generation, outcomes = watched(decoder(iid([0.5, 0.5]), iid([0.5, 0.5]), k=k, max_tokens=max_tokens))
    assert (generation.lengths == 2 + max_tokens).all()
    left = max_tokens
    for outcome in outcomes:
        assert outcome.lengths.tolist() == [min(k, left - 1)]
        left -= int(outcome.emitted[0])
    if not max_tokens:
        assert not outcomes
        assert generation.host_syncs == 0
        assert generation.cache_lengths[0].tolist() == [0]


@pytest.mark.parametrize("k", [1, 2, 4])
@pytest.mark.parametrize("place", range(5))
@pytest.mark.parametrize("drafted", [True, False], ids=["drafted", "corrected"])
def test_end_of_sequence_at_each_place_of_the_block(k, place, drafted):
    """B95: as accepted draft, as bonus, and as the correction of a draft token; nothing comes after it."""
    size, eos = 12, place + 1
    target = cycle(*range(1, size), 0, eos_id=eos)
    wrong = cycle(*(9 if token == place else token + 1 for token in range(size - 1)), 0)
    parts = decoder(target, target if drafted else wrong, k=k, eos_ids=target.eos_ids, max_tokens=40)
    generation, outcomes = watched(parts)
    assert generation.tokens[0, 2 : generation.lengths[0]].tolist() == list(range(1, eos + 1))
    assert generation.finished.all()
    last = outcomes[-1]
    assert last.tokens[0, last.emitted[0] - 1] == eos
    if k == 4:
        assert len(outcomes) == 1
        assert last.emitted[0] == place + 1
        assert last.accepted[0] == min(place + drafted, 4)


def test_a_rejected_end_of_sequence_ends_nothing():
    target, drafter = cycle(1, 2, 3, 4, 5, 0, 0, eos_id=6), cycle(6, 6, 6, 6, 6, 6, 6)
    generation, outcomes = watched(decoder(target, drafter, eos_ids=target.eos_ids, max_tokens=10))
    assert generation.tokens[0, 2:12].tolist() == [1, 2, 3, 4, 5, 0, 1, 2, 3, 4]
    assert all(o.proposed[0] <= 1 and o.accepted[0] == 0 for o in outcomes)


@pytest.mark.parametrize("eos_ids", [frozenset(), frozenset({3})], ids=["all full", "some end"])
def test_rows_of_a_batch_do_not_touch_each_other(eos_ids):
    """B14: rows that accept differently, and rows that end early, decode as they do alone."""
    (target, _), (drafter, _) = contextual(1), contextual(2)
    parts = decoder(target, drafter, max_tokens=20, eos_ids=eos_ids)
    together, outcomes = watched(parts, samples=12)
    assert any(len(set(o.accepted[o.active].tolist())) > 1 for o in outcomes)
    assert any(not o.active.all() for o in outcomes)
    assert all((o.emitted[~o.active] == 0).all() for o in outcomes)
    for sample in range(12):
        alone, _ = watched(parts, samples=12, keep=[sample])
        ends = together.lengths[sample], alone.lengths[0]
        assert together.tokens[sample, : ends[0]].tolist() == alone.tokens[0, : ends[1]].tolist()


def test_greedy_rule_on_the_same_caches():
    (target, _), (drafter, _) = contextual(1), contextual(2)
    greedy = chain(temperature={"value": 0})
    watched(decoder(target, drafter, rule("greedy_argmax"), sampler=greedy, max_tokens=50), samples=3)


def test_a_finished_row_among_rows_that_went_on_without_the_drafter():
    """Rows owe different numbers of tokens then, and every row still gets the text it has alone."""
    pair = iid([0.45, 0.45, 0.1]), iid([0.3, 0.6, 0.1])
    changes = {"controller": Scripted(script=(3, 0, 0, 3)), "eos_ids": frozenset({2}), "max_tokens": 40}
    together = emitted(start(decoder(*pair, "stochastic", **changes), samples=6))
    assert len({len(row) for row in together}) > 2
    for sample, row in enumerate(together):
        alone = start(decoder(*pair, "stochastic", **changes))
        alone.batch.sample[:] = sample
        assert emitted(alone) == [row]
