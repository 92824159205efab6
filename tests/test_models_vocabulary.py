"""One vocabulary for two models: ids mean the same, or are never drawn, or the drafter is refused (F13, B100)."""

import json
from pathlib import Path

from specfw.experiment import run
from specfw.models.checkpoint import Checkpoint
from specfw.models.cycle import Cycle
from specfw.models.iid import Iid
from specfw.models.vocabulary import Fitted, fitted, summary, without_padding

import checkpoints
import mlx.core as mx
import numpy as np
import pytest
from kit import chain, config, decoder, emitted, shipped, start

TOKENS = checkpoints.VOCABULARY
PADDED, LESS_PADDED, SHORT = TOKENS + 128, TOKENS + 64, TOKENS - 48
IDS = mx.array([[5, 17, 2047, 900]])


class Words:
    """As much of a language model and its tokenizer as comparing vocabularies asks for."""

    eos_ids = frozenset()
    eos_id, batched, notes = None, True, ()

    def __init__(self, name, vocabulary, size=None):
        self.name, self.vocab_size = name, size or len(vocabulary)
        self.tokenizer = self
        self.vocabulary = lambda: dict(enumerate(vocabulary)) if isinstance(vocabulary, list) else vocabulary
        self.special_ids = frozenset


def sized(folder, size, **extra):
    """A tiny llama with `size` ids and the shipped tokenizer of 2,048."""
    return checkpoints.write(folder, {**checkpoints.LLAMA, "vocab_size": size}, **extra)


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    return tmp_path_factory.mktemp("models")


@pytest.fixture(scope="module")
def target(home):
    return without_padding(Checkpoint(path=sized(home / "target", PADDED)).load("target"))


@pytest.fixture(scope="module", params=[LESS_PADDED, SHORT, PADDED + 64])
def drafter(request, home):
    """A drafter with less padding than the target, with fewer ids than there are tokens, with more padding."""
    return Checkpoint(path=sized(home / f"drafter{request.param}", request.param)).load("drafter")


def rows(model, ids=IDS):
    return np.array(model.forward(ids, model.new_cache(1)))


def test_pairs_that_mean_the_same_are_left_as_they_are():
    for role in ("target", "drafter"):
        assert without_padding(shipped(role)) is shipped(role)
    assert fitted(shipped("drafter"), shipped("target")) is shipped("drafter")
    toys = [Iid(probs=(0.5, 0.5)).load("target"), Cycle(successors=(1, 0)).load("drafter")]
    assert [without_padding(toy) for toy in toys] == toys
    assert fitted(toys[1], toys[0]) is toys[1]
    words = Words("target", ["a", "b"])
    assert fitted(toys[1], words) is toys[1]


def test_rows_of_the_target_lose_its_padding(target):
    plain = Checkpoint(path=target.fingerprint()["path"]).load("target")
    seen, whole = rows(target), rows(plain)
    assert target.vocab_size == plain.vocab_size == PADDED
    np.testing.assert_array_equal(seen[..., :TOKENS], whole[..., :TOKENS])
    assert np.isneginf(seen[..., TOKENS:]).all()
    assert np.isfinite(whole).all()
    assert target.notes == (f"{target.name}: 128 of {PADDED} ids stand for no token and are never drawn",)
    assert target.fingerprint()["drawable_ids"] == TOKENS


def test_rows_of_a_drafter_take_the_targets_size(target, drafter):
    pair = fitted(drafter, target)
    seen, whole = rows(pair, IDS % 1000), rows(drafter, IDS % 1000)
    drawable = min(TOKENS, drafter.vocab_size)
    assert seen.shape == (1, 4, PADDED)
    np.testing.assert_array_equal(seen[..., :drawable], whole[..., :drawable])
    assert np.isneginf(seen[..., drawable:]).all()
    short = (f"{drafter.name}: drafts {drawable} of the target's {TOKENS} tokens",)
    assert pair.notes == (short if drawable < TOKENS else ())


def test_a_drafter_reads_ids_it_does_not_have_as_its_end_of_sequence(home, target):
    short = fitted(Checkpoint(path=sized(home / "short", SHORT)).load("drafter"), target)
    np.testing.assert_array_equal(rows(short), rows(short, mx.where(IDS < SHORT, IDS, 0)))
    other = rows(short, mx.where(IDS < SHORT, IDS, 1))
    assert np.abs(rows(short)[..., :SHORT] - other[..., :SHORT]).max() > 1e-3


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_rows_keep_their_number_format(home, dtype):
    model = Checkpoint(path=sized(home / "target", PADDED), dtype=dtype).load("target")
    assert without_padding(model).forward(IDS, model.new_cache(1)).dtype == getattr(mx, dtype)


@pytest.mark.parametrize("rule", ["stochastic", "sampler_match"])
@pytest.mark.parametrize("bias", [{}, {PADDED - 1: 50.0}], ids=["", "though a bias asks for it"])
def test_padding_is_never_emitted_nor_proposed(target, drafter, rule, bias):
    """Of 200 draws from rows this flat twelve would be padding."""
    parts = decoder(target, fitted(drafter, target), rule, 4, sampler=chain(bias={"values": bias}), max_tokens=100)
    generations = [start(parts, [(5, 17)], samples=2, keep=[sample]) for sample in (0, 1)]
    outcomes = [outcome for generation in generations for outcome in generation]
    tokens = np.concatenate([generation.tokens[0, : generation.lengths[0]] for generation in generations])
    drafts = np.concatenate([outcome.drafts[0, : outcome.lengths[0]] for outcome in outcomes])
    assert len(tokens) == 204
    assert tokens.max() < TOKENS
    assert drafts.max() < min(TOKENS, drafter.vocab_size)
    assert len(drafts) > 200


def test_text_does_not_depend_on_the_size_of_the_drafter(target, drafter):
    sampled = {"max_tokens": 40, "seed": 3}
    plain = emitted(start(decoder(target, None, "sampler_match", **sampled), [(5, 17)]))
    assert emitted(start(decoder(target, fitted(drafter, target), "sampler_match", **sampled), [(5, 17)])) == plain


def test_a_run_with_other_sizes_follows_its_law(home, target, drafter, tmp_path):
    """End to end: the numbers are held against p and q as they are drawn from; the record has both tokenizers."""
    paths = [model.fingerprint()["path"] for model in (target, drafter)]
    models = [{"name": "checkpoint", "path": path} for path in paths]
    whole = config(*models, max_tokens=100, prompts={"name": "ids", "ids": [[5, 17]]})
    summary_ = run(whole, folder=tmp_path, quiet=True)
    assert summary_.verdict == "passed"
    events = [json.loads(line) for line in (tmp_path / "events.jsonl").read_text().splitlines()]
    (begun,) = (event for event in events if event["event"] == "run_started")
    ours, theirs = (begun["models"][role]["tokenizer"] for role in ("target", "drafter"))
    assert ours == theirs
    assert (ours["tokens"], ours["eos_ids"], ours["special_ids"]) == (TOKENS, [0], [0])
    assert any("stand for no token" in event.get("note", "") for event in events)


@pytest.mark.parametrize(
    ("drafter", "sentence"),
    [
        (["a", "c", "b"], r"of 3 ids that both have 2 differ: id 1 is 'b' and 'c', id 2 is 'c' and 'b' in ours and th"),
        (
            ["x", "y", "z"],
            r"of 3 ids that both have 3 differ: id 0 is 'a' and 'x', id 1 is 'b' and 'y', id 2 is 'c' and 'z' in",
        ),
        (["a", "b", "d", "c"], r"of 3 ids that both have 1 differ: id 2 is 'c' and 'd' in"),
        ({7: "a"}, r"of 0 ids that both have 0 differ: none is common in ours and theirs"),
    ],
    ids=["swapped", "all other", "shifted", "disjoint"],
)
def test_foreign_drafters_are_refused_with_ids_and_both_strings(drafter, sentence):
    with pytest.raises(ValueError, match=f"^drafter must have the target's tokens, but {sentence}"):
        fitted(Words("theirs", drafter, size=8), Words("ours", ["a", "b", "c"]))


def test_swapped_ids_of_equal_size_in_a_checkpoint_are_refused(home, tmp_path, target):
    def swap(content):
        words = content["model"]["vocab"]
        words["field"], words["!"] = words["!"], words["field"]

    (field,) = shipped("target").tokenizer.encode("field")
    checkpoints.retokenise(sized(tmp_path / "swapped", PADDED), swap)
    sentence = rf"2 differ: id 1 is '!' and 'field', id {field} is 'field' and '!' in target"
    with pytest.raises(ValueError, match=sentence):
        fitted(Checkpoint(path=str(tmp_path / "swapped")).load("drafter"), target)


def test_ids_of_one_model_alone_are_never_drawn(home, tmp_path, target):
    """A drafter with two control tokens in what is padding to the target, and a target with them in the drafter's."""

    def extend(content):
        (first,) = content["added_tokens"]
        content["added_tokens"] += [{**first, "id": TOKENS, "content": "<|im_start|>"}]

    checkpoints.retokenise(sized(tmp_path / "more", PADDED), extend)
    more = Checkpoint(path=str(tmp_path / "more"))
    pair = fitted(more.load("drafter"), target)
    assert np.isneginf(rows(pair)[..., TOKENS:]).all()
    assert any("ids [2048] are special tokens to one of the two models alone" in note for note in pair.notes)
    wide = without_padding(more.load("target"))
    assert np.isfinite(rows(wide)[0, 0, TOKENS:]).nonzero()[0].tolist() == [0]
    pair = fitted(Checkpoint(path=sized(home / "drafter", PADDED)).load("drafter"), wide)
    assert np.isneginf(rows(pair)[..., TOKENS:]).all()
    assert f"drafts {TOKENS} of the target's {TOKENS + 1} tokens" in pair.notes[0]


def test_other_ends_of_sequence_are_told(tmp_path, target):
    Path(sized(tmp_path / "other", PADDED), "generation_config.json").write_text('{"eos_token_id": [3, 9]}')
    pair = fitted(Checkpoint(path=str(tmp_path / "other")).load("drafter"), target)
    assert isinstance(pair, Fitted)
    assert any("end-of-sequence ids [0, 3, 9] are not the target's [0]" in note for note in pair.notes)


def test_toys_need_one_number_of_ids():
    with pytest.raises(ValueError, match=r"number of token ids, 2 \(target \(iid\)\), got 3 \(drafter \(iid\)\)"):
        fitted(Iid(probs=("1/3",) * 3).load("drafter"), Iid(probs=(0.5, 0.5)).load("target"))


def test_the_digest_is_of_the_content(home):
    words = shipped("target").tokenizer
    assert summary(words, frozenset({0})) == summary(shipped("drafter").tokenizer, frozenset({0}))
    ours, theirs = (summary(Words("", list(tokens)), frozenset()) for tokens in ("ab", "ba"))
    assert ours["sha256"] != theirs["sha256"]
    assert ours["tokens"] == theirs["tokens"] == 2
