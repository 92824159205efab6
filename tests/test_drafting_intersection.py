"""Drafters with another vocabulary: what is shared, what is read, and that every rule stays what it is on q'."""

import json
import re
from pathlib import Path

from specfw.__main__ import main
from specfw.diagnostics.acceptance import Acceptance
from specfw.diagnostics.base import Setting
from specfw.diagnostics.calibration import Calibration
from specfw.diagnostics.closed_forms import ClosedForms
from specfw.diagnostics.kept_mass import KeptMass
from specfw.drafting.intersection import IntersectionDrafting
from specfw.models.base import Footprint
from specfw.models.intersection import intersected
from specfw.models.spelling import Word, words
from specfw.models.tokenizer import Tokenizer
from specfw.summary import log_e_value
from specfw.verification.faults import FAULTS
from specfw.verification.statistics import chi_square, disjoint_pairs

import checkpoints
import mlx.core as mx
import numpy as np
import pytest
from kit import ALPHA, SAMPLES, Scripted, chain, decoder, emitted, iid, rule, shipped, start
from test_generation_caches import Rows, contextual, row_of, watched

DRAFTED, P = (1 / 2, 1 / 4, 1 / 4), (1 / 2, 1 / 4, 1 / 4)
SHARED = {"abc": "bcd", "q": (1 / 2, 1 / 2, 0), "sum_min": 3 / 4}
"""acceptance-rules: q on a, b, c and p on b, c, d."""


class Vocabulary(Tokenizer):
    """Tokens as they are written, by place; `begins` says whether texts are given `bos_id`."""

    def __init__(self, tokens, control=(), eos_id=None, bos_id=None, begins=False):
        self._tokens = dict(enumerate(tokens))
        self._control, self._begins = frozenset(control), begins
        self.eos_id, self.bos_id = eos_id, bos_id

    def encode(self, text):
        ids = {token: id_ for id_, token in self._tokens.items()}
        return [self.bos_id] * self._begins + [ids[letter] for letter in text if letter in ids]

    def decode(self, ids):
        return "".join(self._tokens[id_] for id_ in ids)

    def vocabulary(self):
        return self._tokens

    def special_ids(self):
        return self._control


def speaking(model, tokens, **changes):
    """A toy that has words."""
    model.tokenizer = Vocabulary(tokens, **changes)
    return model


def uniform(tokens, **changes):
    return speaking(iid([1 / len(tokens)] * len(tokens)), tokens, **changes)


def abc():
    """The toy pair of the mathematics."""
    target = speaking(iid(P), "bcd")
    return target, intersected(speaking(iid(DRAFTED), "abc"), target)


def pairs(ours, theirs):
    """The shared ids, and pieces of every id of the target."""
    model = intersected(theirs, ours)
    drawable = np.flatnonzero(np.isfinite(np.array(model.forward(mx.array([[0]]), model.new_cache(1)))[0, 0]))
    shared = {int(id_): int(model._own[int(id_)].item()) for id_ in drawable}
    return shared, [model._reading.pieces(id_) for id_ in range(ours.vocab_size)]


def intersection(target, drafter, acceptance="stochastic", k=4, **changes):
    drafting = IntersectionDrafting(**changes.pop("options", {}))
    return decoder(target, drafter, acceptance, k, drafting=drafting, **changes)


# --- what a token stands for ------------------------------------------------------------------------------------


def test_one_text_written_three_ways_is_one_word():
    level = words({0: "Ġthe", 1: "Ċ", 2: "Ã", 3: "©", 4: "Ã©", 5: "  ", 6: "Ġ"}, ())
    piece = words({0: "▁the", 1: "<0x0A>", 2: "<0xC3>", 3: "<0xA9>", 4: "é", 5: "▁▁", 6: "▁"}, ())
    plain = words({0: " the", 1: "\n", 4: "é", 5: "  ", 6: " "}, ())
    assert [word.text for _, word in sorted(level.items())] == [
        b" the",
        b"\n",
        b"\xc3",
        b"\xa9",
        b"\xc3\xa9",
        b"  ",
        b" ",
    ]
    assert level == piece
    assert plain == {id_: level[id_] for id_ in plain}


def test_control_tokens_are_names_and_lone_bytes_come_last():
    known = words({0: "<|begin▁of|>", 1: "<0x61>", 2: "▁a", 3: "a"}, {0})
    assert known[0] == Word(True, "<|begin▁of|>".encode())
    assert known[1] == known[3] == Word(False, b"a")
    assert list(known) == [0, 2, 3, 1]


# --- what is shared ---------------------------------------------------------------------------------------------


def test_ids_meet_by_text():
    shared, pieces = pairs(uniform(["b", "Ġc", "d"]), uniform(["▁c", "a", "b"]))
    assert shared == {0: 2, 1: 0}
    assert pieces == [(2,), (0,), (0,)]  # no token spells d, so it reads as the end of sequence, here id 0


def test_control_tokens_meet_by_name_when_both_have_them_as_such():
    shared, _ = pairs(
        uniform(["<s>", "<t>", "<u>", "a"], control=[0, 1]), uniform(["<u>", "<t>", "<s>", "a"], control=[2])
    )
    assert shared == {0: 2, 2: 0, 3: 3}


def test_ends_and_beginnings_meet_whatever_they_are_called():
    ours = uniform(["a", "<end>", "<go>"], control=[1, 2], eos_id=1, bos_id=2)
    theirs = uniform(["</s>", "<s>", "a"], control=[0, 1], eos_id=0, bos_id=1)
    assert pairs(ours, theirs)[0] == {0: 2, 1: 0, 2: 1}
    named = uniform(["<end>", "</s>", "a"], control=[0, 1], eos_id=1)
    assert pairs(ours, named)[0] == {0: 2, 1: 0}, "a name that both have goes before the sign, and no id is used twice"


def test_the_nth_of_equal_words_is_the_others_nth():
    ours, theirs = ["▁a", "a", "<0x61>", "a"], ["<0x61>", "a", "b", "▁a"]
    assert pairs(uniform(ours), uniform(theirs))[0] == {0: 3, 1: 1, 3: 0}
    assert pairs(uniform(ours), uniform(ours))[0] == {0: 0, 1: 1, 2: 2, 3: 3}


def test_what_is_not_shared_is_spelled_longest_first():
    ours = uniform(["abcd", "Ã©", "Ã", "<|im|>", "xa", "Ġ"], control=[3])
    theirs = uniform(["a", "abc", "d", "ab", "<0xC3>", "<0xA9>", "<", "|", "i", "m", ">", "▁b", "bcd"])
    assert pairs(ours, theirs)[1] == [(1, 2), (4, 5), (4,), (6, 7, 8, 9, 7, 10), (0,), (0,)]


def test_a_beginning_is_read_where_the_drafter_alone_puts_one():
    tokens, sign = ["<s>", "a", "b"], {"control": [0], "bos_id": 0}
    plain, marked = uniform(["a", "b"]), uniform(tokens, begins=True, **sign)
    for target, drafter, begins in (
        (plain, marked, True),
        (marked, marked, False),
        (plain, uniform(tokens, **sign), False),
    ):
        model = intersected(drafter, target)
        cache = model.new_cache(1)
        model.forward(mx.array([[0, 1]]), cache)
        assert (cache.lengths[0], cache.inner.lengths[0]) == (2, 2 + begins)
        cache.rewind(np.array([2]))
        assert (cache.lengths[0], cache.inner.lengths[0]) == (0, 0)


# --- q' ---------------------------------------------------------------------------------------------------------


def test_the_row_is_q_on_what_is_shared_renormalised():
    target, drafter = abc()
    row = chain().distribution(drafter.forward(mx.array([[0]]), drafter.new_cache(1)), None, None)
    np.testing.assert_allclose(np.array(row.probs[0, 0]), SHARED["q"], atol=1e-6)
    own = chain().distribution(target.forward(mx.array([[0]]), target.new_cache(1)), None, None)
    assert own.overlap(row).item() == pytest.approx(SHARED["sum_min"])


def test_filters_and_bias_act_on_the_targets_ids():
    _, drafter = abc()
    steps = chain(bias={"values": {1: 5.0, 2: 50.0}}, top_k={"k": 1})
    row = steps.distribution(drafter.forward(mx.array([[0]]), drafter.new_cache(1)), None, None)
    assert row.argmax().item() == 1
    assert row.at(mx.array([[1]])).item() == 1


def observed(target, drafter, acceptance, tokens, **changes):
    setting = Setting(rule=rule(acceptance), point_mass=False)
    seen = [one.open(setting) for one in (Calibration(sorting=True), ClosedForms(sorting=True), Acceptance())]
    generation = start(intersection(target, drafter, acceptance, observers=seen, max_tokens=tokens, **changes))
    outcomes = list(generation)
    return outcomes, generation.tokens[0, 2 : 2 + tokens], seen


@pytest.mark.parametrize("acceptance", ["stochastic", "block", "sampler_match", "gumbel"])
def test_a_run_keeps_the_targets_law_and_sits_on_its_closed_form(acceptance):
    target, drafter = abc()
    outcomes, tokens, (calibration, closed, _) = observed(target, drafter, acceptance, SAMPLES // 8, k=2)
    assert chi_square(np.bincount(tokens, minlength=3), P).p_value > ALPHA
    assert chi_square(disjoint_pairs(tokens[None], 3), np.outer(P, P)).p_value > ALPHA
    assert log_e_value({"calibration": calibration}) < np.log(1e6)
    assert closed.numbers()["sum_min"] == pytest.approx(SHARED["sum_min"])
    firsts = np.array([outcome.accepted[0] > 0 for outcome in outcomes if outcome.lengths[0]])
    law = {"stochastic": 3 / 4, "block": 3 / 4, "sampler_match": 3 / 8, "gumbel": closed.numbers()["gumbel"]}[
        acceptance
    ]
    assert firsts.mean() == pytest.approx(law, abs=4 * np.sqrt(law * (1 - law) / len(firsts)))
    assert not np.isin(np.concatenate([outcome.drafts[0, : outcome.lengths[0]] for outcome in outcomes]), [2]).any()


def test_drafts_that_do_not_follow_q_are_seen():
    """The faults of a drafter model reach this one too: argmax drafts, reported with q', fail the run's own verdict."""
    target, drafter = abc()
    seen = Calibration().open(Setting(rule=rule("stochastic"), point_mass=False))
    parts = intersection(target, drafter, k=2, observers=[seen], max_tokens=1000)
    for _ in start(FAULTS["greedy_draft_soft_q"].inject(parts)):
        pass
    assert log_e_value({"calibration": seen}) > np.log(1e6)


# --- caches -----------------------------------------------------------------------------------------------------

LETTERS = "abcd"
TOKENS = ["b", "cd", "a", "abc", "d", "?"]
PLACES, OWN = [0, 2, 4], [1, 0, 3]


def spelled(ids):
    """The drafter's ids of the target's; `?` cannot be spelled and reads as id 0."""
    return [LETTERS.find(letter) if letter != "?" else 0 for id_ in ids for letter in TOKENS[id_]]


@pytest.mark.parametrize("prompt", [(1,), (5, 3), (3, 3, 1, 0, 5, 3, 1)], ids=len)
@pytest.mark.parametrize("script", [[1], [4], [3, 0, 1, 0, 0, 0, 4], [0, 0, 0, 2]], ids=str)
def test_lengths_and_rows_after_every_round(prompt, script):
    """Tokens of several pieces are fed, rewound and owed as one; every row is the drafter's own after its spelling."""
    drafter, table = contextual(2)
    target = speaking(iid([0.2, 0.2, 0.2, 0.1, 0.2, 0.1]), TOKENS)
    model = intersected(speaking(drafter, LETTERS), target)
    rows = Rows()
    parts = intersection(
        target, model, controller=Scripted(script=script), observers=[rows], max_tokens=40, prefill_chunk=2
    )
    generation, _ = watched(parts, prompts=[prompt])
    for outcome, _, q_rows in rows.seen:
        known = generation.tokens[0, : outcome.position[0]].tolist()
        for place in range(outcome.lengths[0]):
            q = row_of(table, spelled(known + outcome.drafts[0, :place].tolist()))[OWN]
            expected = np.zeros(len(TOKENS))
            expected[PLACES] = q / q.sum()
            np.testing.assert_allclose(q_rows[0, place], expected, atol=1e-5)
    emitted_ids = set(generation.tokens[0, len(prompt) : generation.lengths[0]].tolist())
    assert emitted_ids & {1, 3, 5}, "no token of several pieces was emitted"


def test_the_inner_cache_is_the_scratch_cache():
    """A real model's keys and values after many rewinds give the logits of one pass over the spelling."""
    target = speaking(iid([0.2, 0.2, 0.2, 0.1, 0.2, 0.1]), [" self", " import numpy", "\n", "def __init__(", ".", "é"])
    model = intersected(shipped("drafter"), target)
    generation = start(intersection(target, model, max_tokens=60), prompts=[(1, 2, 3)])
    for _ in generation:
        pass
    committed = generation.tokens[0, : generation.lengths[0]]
    held = generation._rounds.session._cache
    pieces = [piece for id_ in committed[: held.lengths[0]] for piece in model._reading.pieces(int(id_))]
    assert held.inner.lengths[0] == len(pieces) > held.lengths[0]
    last = [*model._reading.pieces(int(committed[-2]))]
    ours = shipped("drafter").forward(mx.array([last]), held.inner)[0, -1]
    scratch = shipped("drafter").forward(mx.array([pieces + last]), shipped("drafter").new_cache(1))[0, -1]
    np.testing.assert_allclose(np.array(ours), np.array(scratch), atol=2e-5)


def test_more_than_it_holds_cannot_be_forgotten():
    _, drafter = abc()
    cache = drafter.new_cache(1)
    drafter.forward(mx.array([[0, 1]]), cache)
    with pytest.raises(RuntimeError, match="a cache of 2 tokens was asked to forget 3"):
        cache.rewind(np.array([3]))


def test_drafts_cost_no_synchronisation():
    target, drafter = abc()
    kept = KeptMass().open(Setting(rule=rule("stochastic"), point_mass=False, drafter=drafter))
    generation = start(intersection(target, drafter, max_tokens=21, observers=[kept]))
    outcomes = list(generation)
    assert generation.host_syncs == len(outcomes) + 1


# --- what is kept ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("temperature", [1.0, 0.3])
def test_the_kept_mass_of_the_toy_pair_is_what_both_have(temperature):
    """q is 1/2, 1/4, 1/4 on a, b, c, and b and c are shared; the chain comes after."""
    target, drafter = abc()
    kept = KeptMass().open(Setting(rule=rule("stochastic"), point_mass=False, drafter=drafter))
    sampler = chain(temperature={"value": temperature})
    controller = Scripted(script=[2, 0, 1])
    outcomes = list(
        start(intersection(target, drafter, controller=controller, max_tokens=12, observers=[kept], sampler=sampler))
    )
    drafted = sum(outcome.lengths[0] > 0 for outcome in outcomes)
    assert kept.numbers() == {"mean": pytest.approx(1 / 2), "least": pytest.approx(1 / 2), "rounds": drafted}
    assert 0 < drafted < len(outcomes)


def test_the_kept_mass_is_of_the_row_that_begins_the_round():
    """A drafter that reads its context, some tokens in several pieces."""
    drafter, table = contextual(2)
    target = speaking(iid([0.2, 0.2, 0.2, 0.1, 0.2, 0.1]), TOKENS)
    model = intersected(speaking(drafter, LETTERS), target)
    kept = KeptMass().open(Setting(rule=rule("stochastic"), point_mass=False, drafter=model))
    generation = start(intersection(target, model, k=2, observers=[kept], max_tokens=30), prompts=[(3, 1)])
    expected = []
    for outcome in generation:
        if outcome.lengths[0]:
            known = generation.tokens[0, : outcome.position[0]].tolist()
            expected.append(row_of(table, spelled(known))[OWN].sum())
    assert kept.numbers()["mean"] == pytest.approx(np.mean(expected), abs=1e-6)
    assert kept.numbers()["least"] == pytest.approx(min(expected), abs=1e-6)
    assert min(expected) < 0.9 * max(expected)


def test_nothing_is_left_out_where_nothing_is_shared_out():
    kept = KeptMass().open(Setting(rule=rule("stochastic"), point_mass=False, drafter=iid(P)))
    list(start(decoder(iid(P), iid(P), observers=[kept], max_tokens=9)))
    assert kept.numbers() == {
        "mean": pytest.approx(np.nan, nan_ok=True),
        "least": pytest.approx(np.nan, nan_ok=True),
        "rounds": 0,
    }


def test_memory_is_that_of_the_drafters_own_tokens():
    """Six tokens of the target in 1, 2, 1, 3, 1 and 1 pieces."""
    asked = []
    drafter = uniform(LETTERS)
    drafter.footprint = lambda tokens, chunk: asked.append((tokens, chunk)) or Footprint(cache_bytes=tokens)
    model = intersected(drafter, uniform(TOKENS))
    assert model.footprint(100, 7).cache_bytes == 150
    assert asked == [(150, 11)]


# --- equal vocabularies -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("acceptance", ["stochastic", "block", "gumbel"])
def test_with_one_vocabulary_it_is_drafting_by_the_model(acceptance):
    target, drafter = shipped("target"), shipped("drafter")
    prompt = [target.tokenizer.encode("def add(a, b):\n")]
    changes = {"max_tokens": 40, "sampler": chain(temperature={"value": 0.8}, top_p={"p": 0.9})}
    own = list(start(decoder(target, drafter, acceptance, 3, **changes), prompt))
    other = list(start(intersection(target, intersected(drafter, target), acceptance, 3, **changes), prompt))
    assert sum(outcome.accepted.sum() for outcome in own) > 0
    assert [(o.tokens.tolist(), o.drafts.tolist()) for o in own] == [
        (o.tokens.tolist(), o.drafts.tolist()) for o in other
    ]


def test_greedy_drafts_are_the_argmax_of_what_is_shared():
    target, drafter = abc()
    parts = intersection(target, drafter, options={"proposal": "greedy"}, max_tokens=20)
    drafts = np.concatenate([outcome.drafts[0, : outcome.lengths[0]] for outcome in start(parts)])
    assert set(drafts.tolist()) == {0}


# --- two tokenizers ---------------------------------------------------------------------------------------------

KEPT = 1500


def another(content):
    """Fewer tokens, other ids, and an end of another name."""
    vocabulary = {token: KEPT - id_ for token, id_ in content["model"]["vocab"].items() if 0 < id_ <= KEPT}
    known = lambda pair: all(part in vocabulary for part in (*pair, "".join(pair)))  # noqa: E731
    content["model"]["vocab"] = {**vocabulary, "</s>": KEPT}
    content["model"]["merges"] = [pair for pair in content["model"]["merges"] if known(pair)]
    (end,) = content["added_tokens"]
    content["added_tokens"] = [{**end, "id": KEPT, "content": "</s>"}]


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    home = tmp_path_factory.mktemp("models")
    target = checkpoints.write(home / "target", checkpoints.SPEAKING["llama"], checkpoints.speaking("llama"))
    drafter = checkpoints.write(home / "drafter", {**checkpoints.LLAMA, "vocab_size": KEPT + 1}, eos_token_id=KEPT)
    checkpoints.retokenise(drafter, another)
    checkpoints.edit(drafter, "tokenizer_config.json", **dict.fromkeys(("eos_token", "bos_token"), "</s>"))
    return [f"target.path={target}", f"drafter.path={drafter}"]


@pytest.fixture
def said(folders, tmp_path, monkeypatch, capsys):
    """Runs the command on the two checkpoints; returns exit status, stdout and stderr."""
    monkeypatch.setenv("SPECFW_OUTPUTS", str(tmp_path))

    def run(*words, text="prompts.text='def add(a, b):'"):
        status = main([*folders, text, "max_tokens=30", *words])
        return (status, *capsys.readouterr())

    return run


def test_end_to_end_the_text_decodes_and_the_record_says_what_is_shared(said, tmp_path):
    status, out, _ = said("drafting=intersection", "acceptance=stochastic", "seed=3")
    assert status == 0
    assert re.search(r"rule=stochastic rounds=\d+ proposed=[1-9]", out)
    (folder,) = tmp_path.glob("2*/*")
    events = [json.loads(line) for line in (folder / "events.jsonl").read_text().splitlines()]
    begun = next(event for event in events if event["event"] == "run_started")
    assert begun["models"]["drafter"]["shared_tokens"] == KEPT + 1
    assert begun["models"]["drafter"]["tokenizer"]["tokens"] == KEPT + 1
    (note,) = (event["note"] for event in events if "drafts" in event.get("note", ""))
    assert note.endswith(
        f"drafts {KEPT + 1} tokens, those its {KEPT + 1} share with the target's {checkpoints.VOCABULARY}"
    )
    summary = json.loads((folder / "summary.json").read_text())
    assert summary["verdict"] == "passed"
    kept = summary["diagnostics"]["kept_mass"]
    assert (kept["least"], kept["mean"]) == pytest.approx((1, 1)), "it has no token that the target has not"
    assert kept["rounds"] == summary["rounds"]
    rows = [json.loads(line) for line in (folder / "tokens.jsonl").read_text().splitlines()]
    tokenizer = shipped("target").tokenizer
    assert out.startswith(tokenizer.decode([row["id"] for row in rows if row["id"] != 0])[:20])
    assert Path(folder / "config.yaml").read_text().count("name: intersection") == 1


@pytest.mark.parametrize(
    "words", [["sampler.temperature.value=0"], ["acceptance=sampler_match", "seed=5"]], ids=["greedy", "sampler_match"]
)
def test_the_targets_own_draws_are_plain_decoding(said, words):
    own, plain = (said(*words, drafting) for drafting in ("drafting=intersection", "drafting=none"))
    assert own[0] == plain[0] == 0
    assert own[1].rpartition("[Speculative")[0] == plain[1].rpartition("[Speculative")[0] != ""


@pytest.mark.slow
def test_task_verify_takes_it(said):
    status, out, err = said(
        "drafting=intersection", "acceptance=stochastic", "task=verify", "task.tokens=64", "task.power=false"
    )
    assert status == 0, err
    assert out


# --- refusals ---------------------------------------------------------------------------------------------------


def test_drafting_by_the_model_names_the_way_out(said):
    status, _, err = said()
    assert status == 2
    assert "drafter must have the target's tokens, but of 1501 ids that both have" in err
    assert err.strip().endswith("(drafting=intersection drafts what both have)")


def test_a_batch_is_refused(said):
    status, _, err = said("drafting=intersection", "batch_size=2")
    assert status == 2
    assert "batch_size must be 1 for a checkpoint" in err
    _, drafter = abc()
    assert not drafter.batched
    with pytest.raises(ValueError, match="must decode one sequence at a time, got a batch of 2"):
        drafter.new_cache(2)


def test_a_model_without_words_is_refused(capsys, tmp_path, monkeypatch):
    monkeypatch.setenv("SPECFW_OUTPUTS", str(tmp_path))
    assert main(["pair=iid", "drafting=intersection", "max_tokens=3"]) == 2
    sentence = (
        "specfw: drafting=intersection must have two models with words, but ids of target (iid) stand for nothing else"
    )
    assert capsys.readouterr().err.strip().endswith(sentence)


def test_nothing_in_common_is_refused():
    with pytest.raises(
        ValueError, match=r"must share tokens .* of 2 tokens of toy .iid. and 1 of toy .iid. none has the same"
    ):
        intersected(uniform(["x"]), uniform(["a", "b"]))


def test_one_vocabulary_is_emitted_alike_after_a_run_that_was_cut():
    """A prompt of one token, and no round in which anything may be drafted."""
    target, drafter = abc()
    assert len(emitted(start(intersection(target, drafter, max_tokens=1), prompts=[(0,)]))[0]) == 1
