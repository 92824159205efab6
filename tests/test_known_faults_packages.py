"""Known faults of caches, chains, counters and ends, tried on real checkpoints: SmolLM2-135M-Instruct, Gemma 3 270M.

On toys each has its own tests (docs/known-faults.md); here the rows are a trained model's. The drafters are SmolLM2
itself, which agrees always, and SmolLM2 without some of its layers, which agrees at times.
"""

import json
from pathlib import Path

from specfw.__main__ import main
from specfw.counting import Tally
from specfw.drafting.intersection import IntersectionDrafting
from specfw.errors import FailedCheckError
from specfw.models.base import LanguageModel
from specfw.models.gguf import Gguf
from specfw.models.intersection import intersected
from specfw.models.pretrained.caches import LayerCaches

import mlx.core as mx
import numpy as np
import pytest
from kit import chain, decoder, emitted, start
from mlx_lm.generate import generate_step
from mlx_lm.models.cache import KVCache
from test_generation_caches import Rows, Stuck, watched
from test_models_gguf_packages import GEMMA3, SMOLLM2, downloaded

pytestmark = pytest.mark.packages

KEPT = [*range(20), *range(26, 30)]
"""Layers of the drafter."""
NEVER = 7
"""An id that the model gives next to nothing: `<file_sep>`."""
NEAR = 1e-3
"""Two logits of up to 38 that sums of float32 in another order may swap."""
ZERO = {"temperature": {"value": 0.0}}
GREEDY = chain(**ZERO)
WRONG = chain(**ZERO, bias={"values": {NEVER: 1000.0}})
"""Drafts what is never accepted."""


@pytest.fixture(scope="module", autouse=True)
def on_the_cpu():
    device = mx.default_device()
    mx.set_default_device(mx.cpu)
    yield
    mx.set_default_device(device)


@pytest.fixture(scope="module")
def path():
    return downloaded(SMOLLM2)


@pytest.fixture(scope="module")
def target(path):
    return opened(path)


@pytest.fixture(scope="module")
def drafter(path):
    model = opened(path)
    layers = model.module.model.layers
    model.module.model.layers = [layers[place] for place in KEPT]
    return model


@pytest.fixture(scope="module")
def prompt(target):
    return target.tokenizer.encode("The capital of France is")


def opened(path) -> LanguageModel:
    model = Gguf(path=str(path)).load("target")
    model.read()
    return model


def logits(model, ids):
    """[T, V] of one pass over everything, from a cache of its own."""
    return np.array(model.forward(mx.array([ids]), model.new_cache(1))[0])


def probabilities(model, ids):
    rows = logits(model, ids).astype(np.float64)
    weights = np.exp(rows - rows.max(axis=-1, keepdims=True))
    return weights / weights.sum(axis=-1, keepdims=True)


def greedy(target, drafter, prompt, length, k=4, *, draft=None, eos_ids=frozenset(), **steps):
    sampler = chain(**ZERO, **steps)
    changes = {"sampler": sampler, "draft_sampler": draft or sampler, "max_tokens": length, "eos_ids": eos_ids}
    return emitted(start(decoder(target, drafter, "greedy_argmax", k, **changes), [prompt]))[0]


def same_or_near(model, prompt, one, other):
    """Equal, or different for the first time where the two largest logits are next to equal; says where."""
    place = next((place for place, pair in enumerate(zip(one, other, strict=True)) if len(set(pair)) > 1), None)
    if place is None:
        return
    row = np.sort(logits(model, [*prompt, *one[:place]])[-1])
    assert row[-1] - row[-2] < NEAR, f"token {place} differs, and the two largest logits by {row[-1] - row[-2]}"


# --- A: caches and rollback -------------------------------------------------------------------------------------


@pytest.mark.parametrize(("regime", "k"), [("all_accept", 1), ("all_accept", 4), ("all_reject", 2), ("mixed", 4)])
def test_every_row_is_that_of_one_pass_over_what_was_emitted(target, drafter, prompt, regime, k):
    """B01, B02, B09, B11, B38, B82: both caches after every round, and p and q at every accepted place."""
    draft, model = chain(), target
    if regime == "all_reject":
        draft = WRONG
    if regime == "mixed":
        model = drafter
    rows, tally = Rows(), Tally(stops_at_rejection=True)
    parts = decoder(target, model, k=k, draft_sampler=draft, observers=[rows], max_tokens=9)
    generation, outcomes = watched(parts, prompts=[prompt])
    committed = generation.tokens[0, : generation.lengths[0]].tolist()
    p, q = probabilities(target, committed), probabilities(model, committed)
    for outcome, p_rows, q_rows in rows.seen:
        tally.add(outcome)
        first = outcome.position[0] - 1
        for place in range(int(outcome.accepted[0]) + 1):
            np.testing.assert_allclose(p_rows[0, place], p[first + place], atol=1e-4)
            if place < outcome.lengths[0] and regime != "all_reject":
                np.testing.assert_allclose(q_rows[0, place], q[first + place], atol=1e-4)
    assert tally.proposed > 0
    if regime == "all_accept":
        assert tally.accepted == tally.proposed
    if regime == "all_reject":
        assert tally.accepted == 0
        assert all(outcome.emitted[0] == 1 for outcome in outcomes)


def test_a_layer_that_forgets_less_ends_the_run(target, prompt, monkeypatch):
    """B04."""
    others = len(target.module.layers) - 1
    with monkeypatch.context() as patch:
        patch.setattr(target, "new_cache", lambda _: LayerCaches([*(KVCache() for _ in range(others)), Stuck()]))
        with pytest.raises(RuntimeError, match="Stuck was asked to forget"):
            list(start(decoder(target, target, draft_sampler=WRONG, max_tokens=12), prompts=[prompt]))


def narrowed(path, folder, window):
    """A copy of Gemma's file with another sliding window."""
    content, key = bytearray(path.read_bytes()), b"gemma3.attention.sliding_window"
    place = content.index(key) + len(key) + 4  # the type of the number comes first
    assert int.from_bytes(content[place : place + 4], "little") == 512
    content[place : place + 4] = window.to_bytes(4, "little")
    (folder / "narrow.gguf").write_bytes(content)
    return folder / "narrow.gguf"


def test_text_beyond_a_sliding_window_is_that_of_mlx_lms_rotating_cache(target, tmp_path):
    """B03, B07, F3, B100: Gemma's own weights and a window of 12; SmolLM2, of another vocabulary, drafts."""
    gemma = opened(narrowed(downloaded(GEMMA3), tmp_path, 12))
    prompt = gemma.tokenizer.encode("The capital of France is Paris, and the")
    length = 11
    assert len(prompt) < 12 < len(prompt) + length - 5
    argmax = lambda row: mx.argmax(row, axis=-1)  # noqa: E731
    steps = generate_step(mx.array(prompt), gemma.module, max_tokens=length, sampler=argmax)
    expected = [int(token) for token, _ in steps]
    foreign = IntersectionDrafting()
    parts = decoder(
        gemma,
        intersected(target, gemma),
        "greedy_argmax",
        3,
        drafting=foreign,
        sampler=GREEDY,
        max_tokens=length,
    )
    generation, outcomes = watched(parts, prompts=[prompt])
    assert 0 < sum(outcome.accepted[0] for outcome in outcomes) < sum(outcome.proposed[0] for outcome in outcomes)
    same_or_near(gemma, prompt, expected, generation.tokens[0, len(prompt) :][:length].tolist())


# --- C: filters, penalties, processors --------------------------------------------------------------------------


def test_what_is_banned_is_never_emitted_whatever_is_drafted(target, prompt):
    """B50, B51: the drafter's chain does not have the bias, so it drafts what is banned."""
    usual = greedy(target, None, prompt, 8)
    values = dict.fromkeys(usual, -100.0)
    plain = greedy(target, None, prompt, 8, bias={"values": values})
    assert not set(plain) & set(usual)
    assert greedy(target, target, prompt, 8, draft=GREEDY, bias={"values": values}) == plain


def test_min_p_holds_at_every_place_of_the_block(target, drafter, prompt):
    """B50, B58: 49,152 ids; the drafter's chain does not have it."""
    parts = decoder(
        target, drafter, "stochastic", 3, sampler=chain(min_p={"p": 0.2}), draft_sampler=chain(), max_tokens=7
    )
    ids = emitted(start(parts, [prompt]))[0]
    p = probabilities(target, [*prompt, *ids])[len(prompt) - 1 : -1]
    assert (p[np.arange(len(ids)), ids] >= 0.2 * p.max(axis=1) * (1 - 1e-4)).all()


def test_xtc_never_emits_the_most_probable_of_several_likely_tokens(target, drafter, prompt):
    """B59: always on; at every place, drafted or not."""
    steps = {"xtc": {"probability": 1.0, "threshold": 0.05}}
    parts = decoder(target, drafter, "stochastic", 3, sampler=chain(order=["xtc"], **steps), max_tokens=12)
    ids = emitted(start(parts, [prompt]))[0]
    p = probabilities(target, [*prompt, *ids])[len(prompt) - 1 : -1]
    several = (p > 0.05).sum(axis=1) > 1
    assert several.sum() > 3
    assert not (p.argmax(axis=1) == ids)[several].any()


def test_penalties_are_those_of_plain_decoding_inside_a_block(target, drafter, prompt):
    """B52, B53, B55, F2."""
    texts = {}
    for name, steps in {
        "none": {},
        "repetition": {"repetition": {"penalty": 1.8}},
        "frequency": {"frequency": {"penalty": 2.0}},
        "negative": {"frequency": {"penalty": -2.0}},
    }.items():
        texts[name] = greedy(target, None, prompt, 8, **steps)
        same_or_near(target, prompt, texts[name], greedy(target, drafter, prompt, 8, **steps))
    assert texts["frequency"] != texts["negative"] != texts["none"] != texts["repetition"]


# --- G: ends, numerics, vocabularies ----------------------------------------------------------------------------


@pytest.fixture(scope="module")
def usual(target, prompt):
    """Ten greedy tokens."""
    return greedy(target, None, prompt, 10)


@pytest.mark.parametrize("drafted", [True, False], ids=["drafted", "corrected"])
@pytest.mark.parametrize("place", [0, 3, 4, 5])
def test_nothing_comes_after_the_end_wherever_in_a_block_it_is(target, prompt, usual, place, drafted):
    """B95: the token that ends is an accepted draft, the bonus (place 4) or what takes the place of a wrong draft."""
    end = usual[place]
    expected = usual[: usual.index(end) + 1]
    draft = GREEDY if drafted else chain(**ZERO, bias={"ban": (end,)})
    assert greedy(target, target, prompt, 10, draft=draft, eos_ids=frozenset({end})) == expected


def test_an_answer_ends_where_the_model_ends_it(target, drafter):
    """B95: with its own end of turn."""
    words = "<|im_start|>user\nWhat is the capital of France?<|im_end|>\n<|im_start|>assistant\nThe capital of France"
    ids = greedy(target, drafter, target.tokenizer.encode(words), 20, 3, eos_ids=target.eos_ids)
    assert target.tokenizer.decode(ids) == " is Paris.<|im_end|>"


@pytest.mark.parametrize("role", ["target", "drafter"])
def test_one_nan_among_the_logits_is_an_error_with_its_position(target, drafter, prompt, role, monkeypatch):
    """B97, F8: at the third token of the text."""
    model = {"target": target, "drafter": drafter}[role]
    place, honest = len(prompt) + 2, model.forward

    def broken(tokens, cache):
        held = int(cache.lengths[0])
        rows = honest(tokens, cache)
        at = place - 1 - held
        if 0 <= at < tokens.shape[1]:
            rows[:, at, 1234] = mx.nan
        return rows

    monkeypatch.setattr(model, "forward", broken)
    with pytest.raises(FailedCheckError, match=rf"row 0 .*position {place}, model .*the {role}'s row is not a dist"):
        emitted(start(decoder(target, drafter, k=4, max_tokens=12), [prompt]))


@pytest.mark.parametrize("text", ["def fibonacci(n):\n    ", "Once upon a time, there was a"])
def test_greedy_text_is_mlx_lms_and_the_same_with_a_drafter(target, drafter, text):
    """B98: or the first difference is between two logits that are next to equal; docs/greedy_text.py does 200."""
    prompt, length = target.tokenizer.encode(text), 12
    argmax = lambda row: mx.argmax(row, axis=-1)  # noqa: E731
    steps = generate_step(mx.array(prompt), target.module, max_tokens=length, sampler=argmax)
    theirs = [int(token) for token, _ in steps]
    same_or_near(target, prompt, theirs, greedy(target, None, prompt, length))
    same_or_near(target, prompt, theirs, greedy(target, drafter, prompt, length))


# --- E and what the command says --------------------------------------------------------------------------------


@pytest.fixture
def command(path, tmp_path, monkeypatch, capsys):
    """Runs the command on the real target: exit status, stdout, stderr, and the record's folder."""
    monkeypatch.setenv("SPECFW_OUTPUTS", str(tmp_path))

    def run(*words):
        words = (f"target.path={path}", "prompts.text='The capital of France is'", "max_tokens=5", *words)
        status = main(["model@target=gguf", *words])
        out, err = capsys.readouterr()
        return status, out, err, max(tmp_path.glob("2*/*"), default=None)

    return run


def test_counters_of_a_run_in_which_everything_is_accepted(command, path):
    """B80, B85, B87: both rates are there, few proposals are said to be few, sum_min is not taken for sum_prod."""
    words = ("model@drafter=gguf", f"drafter.path={path}", "controller.num_draft_tokens=2")
    status, out, _, folder = command(*words, "acceptance=stochastic")
    assert status == 0
    assert "rounds=2 proposed=3 positions_tested=3 accepted=3 per_position_acceptance=1.0000" in out
    forms = json.loads((folder / "summary.json").read_text())["diagnostics"]["closed_forms"]
    assert forms["sum_min"] == pytest.approx(1, abs=1e-4)
    assert forms["sum_prod"] < 0.9
    assert "few_proposals" in (folder / "events.jsonl").read_text()


def test_the_kill_switch_is_in_the_record(command, path, monkeypatch):
    """B86."""
    monkeypatch.setenv("SPECFW_STOCHASTIC_ACCEPT", "0")
    words = ("model@drafter=gguf", f"drafter.path={path}", "acceptance=stochastic", "controller.num_draft_tokens=1")
    status, out, _, folder = command(*words, "max_tokens=2")
    assert status == 0
    assert "rule=sampler-match" in out
    events = [json.loads(line) for line in (folder / "events.jsonl").read_text().splitlines()]
    (active,) = (event for event in events if event["event"] == "rule_active")
    assert (active["rule"], active["decided_by"]) == ("sampler-match", "environment")


def test_a_drafter_that_cannot_be_read_is_no_plain_decoding(command, path, tmp_path):
    """B90."""
    short = tmp_path / "short.gguf"
    short.write_bytes(Path(path).read_bytes()[:40_000_000])
    status, out, err, _ = command("model@drafter=gguf", f"drafter.path={short}")
    assert (status, out) == (2, "")
    assert err.startswith("specfw: drafter.path ")


def test_a_foreign_drafter_is_refused_with_ids_and_both_strings(command):
    """B100: Gemma's ids mean other tokens; with drafting=intersection it may (above)."""
    status, out, err, _ = command("model@drafter=gguf", f"drafter.path={downloaded(GEMMA3)}")
    assert (status, out) == (2, "")
    assert "drafter must have the target's tokens, but of" in err
    assert "drafting=intersection" in err


def test_a_batch_is_refused(command, path):
    """B14."""
    status, out, err, _ = command("pair=plain", "model@target=gguf", "batch_size=2")
    assert (status, out) == (2, "")
    assert "batch_size must be 1 for a checkpoint" in err


def test_one_survivor_is_greedy(command, path):
    """B62: top_k = 1 at temperature 1, whatever the seed."""
    texts = set()
    for seed in (1, 2):
        words = ("model@drafter=gguf", f"drafter.path={path}", "sampler.top_k.k=1", f"seed={seed}", "max_tokens=2")
        status, out, _, _ = command(*words)
        assert status == 0
        assert "rule=greedy-argmax" in out
        texts.add(out)
    assert len(texts) == 1
