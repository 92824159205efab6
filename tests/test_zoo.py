"""The trainer of the shipped pair, on a corpus of a few files and models of a few thousand numbers."""

import json
from dataclasses import replace
from pathlib import Path

import specfw
from specfw.models.checkpoint import Checkpoint
from specfw.zoo import __main__ as command
from specfw.zoo import checkpoints, corpus, export, forward, heldout, measuring, objective, prepared, runs, sizes
from specfw.zoo.agreement import agreement, samples
from specfw.zoo.batches import Batches
from specfw.zoo.training import Recipe

import mlx.core as mx
import numpy as np
import pytest
from mlx.nn.utils import value_and_grad
from mlx.utils import tree_flatten
from tokenizers import Tokenizer

SIZE = sizes.Size(hidden=16, layers=2, heads=2, feed_forward=24)
RECIPE = Recipe(steps=4, warm_up=1, rate=1e-2, log_every=1, eval_every=2, checkpoint_s=0.0)
RUN = runs.Run(size=SIZE, recipe=RECIPE, seed=3, rows=4, length=8)
TEXT = "def f{0}(x):\n    return x + {0}  # {1}\n\n\n"


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    folder = tmp_path_factory.mktemp("library")
    for index in range(180):
        path = folder / ("package" if index % 2 else "") / f"module{index}.py"
        path.parent.mkdir(exist_ok=True)
        path.write_text("".join(TEXT.format(index * line, "é" * line) for line in range(9)), encoding="utf-8")
    for excluded in ("test", "package/tests", "idlelib", "lib2to3", "site-packages", "config-3.11-here"):
        (folder / excluded).mkdir()
        (folder / excluded / "left_out.py").write_text("SECRET = 1\n")
    (folder / "_sysconfigdata_here.py").write_text("SECRET = 1\n")
    (folder / "old.py").write_bytes("# -*- coding: latin-1 -*-\r\n# é\r\n".encode("latin-1"))
    return folder


@pytest.fixture(scope="module")
def ready(root, tmp_path_factory):
    folder = tmp_path_factory.mktemp("prepared")
    prepared.prepare(root, folder, vocab_size=300)
    return prepared.load(folder)


@pytest.fixture(scope="module")
def trained(ready, tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs") / "target"
    runs.execute(RUN, ready, folder)
    return folder


def test_the_corpus_leaves_out_tests_and_what_a_machine_generated(root):
    text = corpus.read(root)
    everything = (*text.training, *text.held_out)
    assert len(everything) == 181
    assert not any("SECRET" in source.text for source in everything)
    assert corpus.Source("old.py", "# -*- coding: latin-1 -*-\n# é\n") in everything
    assert [source.path for source in text.training] == sorted(source.path for source in text.training)


def test_held_out_files_are_not_trained_on(root, ready):
    text = corpus.read(root)
    held_out = {source.path for source in text.held_out}
    assert held_out == {source.path for source in (*text.training, *text.held_out) if corpus.is_held_out(source.path)}
    assert held_out.isdisjoint(source.path for source in text.training)
    tokenizer = Tokenizer.from_file(str(ready.folder / "tokenizer.json"))
    read_back = tokenizer.decode(ready.training.tolist(), skip_special_tokens=True)
    assert read_back == "".join(source.text for source in text.training)
    assert all(source.text not in read_back for source in text.held_out)


def test_the_digest_is_of_every_path_and_text(root):
    text = corpus.read(root)
    first, *others = text.training
    assert corpus.read(root).digest == text.digest
    assert text._replace(training=(first._replace(path="other.py"), *others)).digest != text.digest
    assert text._replace(training=(first._replace(text=first.text + "\n"), *others)).digest != text.digest


def test_a_corpus_without_files_is_refused(tmp_path):
    with pytest.raises(ValueError, match="must hold Python files"):
        corpus.read(tmp_path)


def test_the_tokenizer_is_fitted_alike_and_ends_every_file(root, ready, tmp_path):
    again = prepared.prepare(root, tmp_path, vocab_size=300)
    assert again == ready.facts
    for name in (*export.TOKENIZER, "training.npy", "held_out.npy"):
        assert (tmp_path / name).read_bytes() == (ready.folder / name).read_bytes()
    assert np.count_nonzero(ready.training == 0) == ready.facts["training"]["files"]
    assert ready.training[-1] == 0
    assert ready.facts["training"]["tokens"] == len(ready.training)


def test_a_step_sees_the_same_windows_whenever_it_is_asked_for():
    batches = Batches(stream=np.arange(1000, dtype=np.int32), rows=3, length=7, seed=5)
    epoch = [batches.at(step) for step in range(batches.steps_per_epoch)]
    assert np.array_equal(batches.at(1), epoch[1])
    assert np.array_equal(epoch[0][:, 1:] - epoch[0][:, :-1], np.ones((3, 7)))
    starts = np.concatenate(epoch)[:, 0]
    assert len(set(starts)) == len(starts) == batches.steps_per_epoch * 3
    assert not np.array_equal(batches.at(batches.steps_per_epoch), epoch[0])
    assert not np.array_equal(replace(batches, seed=6).at(0), epoch[0])


def test_the_training_forward_is_mlx_lms():
    model = sizes.build(SIZE.config(50), seed=1)
    tokens = mx.random.randint(0, 50, (3, 9), key=mx.random.key(2))
    assert mx.allclose(forward.logits(model, tokens), model(tokens), atol=1e-4)
    x = mx.linspace(-80, 80, 1001)
    assert mx.allclose(forward.exp(x), mx.exp(x), rtol=1e-3)
    assert mx.allclose(forward.exp(x / 4), mx.exp(x / 4), rtol=4e-5)


def plain_loss(model, tokens):
    logs = mx.log(mx.softmax(model(tokens[:, :-1]), axis=-1))
    return -mx.take_along_axis(logs, tokens[:, 1:, None], axis=-1).mean()


def distilled_loss(target, share):
    def loss(model, tokens):
        p, logs = mx.softmax(target(tokens[:, :-1]), axis=-1), mx.log(mx.softmax(model(tokens[:, :-1]), axis=-1))
        return -(1 - share) * (p * logs).sum(axis=-1).mean() + share * plain_loss(model, tokens)

    return loss


def test_objectives_and_their_gradients_are_those_of_the_formulas():
    target, model = sizes.build(SIZE.config(50), seed=1), sizes.build(SIZE.config(50), seed=2)
    tokens = mx.random.randint(0, 50, (3, 9), key=mx.random.key(2))
    cases = [(objective.next_token, plain_loss)]
    cases += [(objective.distillation(target, share), distilled_loss(target, share)) for share in (0.0, 0.3)]
    for fast, formula in cases:
        value, gradients = value_and_grad(model, fast)(model, tokens)
        expected, wanted = value_and_grad(model, formula)(model, tokens)
        assert mx.allclose(value, expected, rtol=1e-4)
        for (_, gradient), (name, want) in zip(tree_flatten(gradients), tree_flatten(wanted), strict=True):
            assert mx.allclose(gradient, want, rtol=1e-3, atol=1e-5), name


def test_training_lowers_the_loss_and_logs_it(trained):
    lines = [json.loads(line) for line in (trained / "log.jsonl").read_text().splitlines()]
    losses = [line["loss"] for line in lines if "loss" in line]
    assert len(losses) == RECIPE.steps
    assert losses[-1] < losses[0]
    assert [line["step"] for line in lines if "held_out" in line] == [2, 4]


@pytest.mark.parametrize("target", [False, True])
def test_an_interrupted_run_ends_in_the_same_bits(ready, trained, tmp_path, monkeypatch, target):
    run = replace(RUN, target=trained, text_share=0.5) if target else RUN
    runs.execute(run, ready, tmp_path / "whole")

    def interrupted(*parts):
        save(*parts)
        if parts[-1] == 2:
            raise KeyboardInterrupt

    save = checkpoints.save
    monkeypatch.setattr(checkpoints, "save", interrupted)
    with pytest.raises(KeyboardInterrupt):
        runs.execute(run, ready, tmp_path / "parts")
    runs.execute(run, ready, tmp_path / "parts")
    whole, parts = (mx.load(str(tmp_path / name / checkpoints.FILE)) for name in ("whole", "parts"))
    assert whole.keys() == parts.keys()
    assert all(mx.array_equal(whole[name], parts[name]) for name in whole)
    assert sum(name.startswith("optimizer.") for name in whole) > 2 * RUN.size.layers


def test_a_finished_run_is_left_as_it_is(ready, trained):
    before = (trained / checkpoints.FILE).read_bytes()
    runs.execute(RUN, ready, trained)
    assert (trained / checkpoints.FILE).read_bytes() == before


def test_another_request_in_a_runs_folder_is_refused(ready, trained):
    with pytest.raises(ValueError, match="as it was begun, got another recipe, tokens"):
        runs.execute(replace(RUN, recipe=replace(RECIPE, steps=9)), ready, trained)


@pytest.mark.parametrize(("field", "value"), [("rows", 3), ("length", 0), ("seed", -1), ("text_share", 1.5)])
def test_a_value_out_of_range_is_named(field, value):
    with pytest.raises(ValueError, match=f"{field} must be .*, got {value}"):
        replace(RUN, **{field: value})


@pytest.fixture
def exported(ready, trained, tmp_path, monkeypatch):
    monkeypatch.setitem(sizes.SIZES, "target", SIZE)
    return tmp_path / "target", export.export(trained, ready, tmp_path / "target")


def test_an_exported_run_is_a_checkpoint_of_half_precision(ready, trained, exported):
    import mlx_lm

    folder, loss = exported
    stored = mx.load(str(folder / "model.safetensors"))
    assert {array.dtype for array in stored.values()} == {mx.float16}
    assert sum(array.nbytes for array in stored.values()) == 2 * sum(array.size for array in stored.values())
    model, tokenizer = mlx_lm.load(str(folder))
    ours = Checkpoint(path=str(folder)).load("target")
    tokens = mx.array([tokenizer.encode("def f(x):\n")])
    expected = runs.load(trained)(tokens)
    assert mx.allclose(model(tokens).astype(mx.float32), expected, atol=2e-2)
    assert mx.allclose(ours.forward(tokens, ours.new_cache(1)), expected, atol=2e-2)
    assert tokenizer.eos_token_ids == {0} == set(ours.eos_ids)
    assert loss.tokens == (len(ready.held_out) - 1) // heldout.WINDOW * heldout.WINDOW
    assert loss.nats_per_byte < loss.nats_per_token


def test_the_model_card_says_how_it_was_made(ready, exported):
    folder, loss = exported
    card = (folder / "README.md").read_text()
    wanted = "python -m specfw.zoo train target --size target --steps 4 --rate 0.01 --rows 4 --length 8 --seed 3"
    for fact in (wanted, ready.facts["digest"], ready.facts["python"], f"{loss.nats_per_token:.4f}", "PSF-2.0"):
        assert fact in card
    assert "128: 4 of 4 steps of 4 x 8" in card


def test_a_run_without_its_corpus_or_checkpoint_is_not_exported(ready, trained, tmp_path):
    with pytest.raises(ValueError, match="corpus it was trained on"):
        export.export(trained, ready._replace(facts={}), tmp_path)
    (tmp_path / "run.json").write_text((trained / "run.json").read_text())
    with pytest.raises(ValueError, match="must have a checkpoint"):
        export.export(tmp_path, ready, tmp_path)


def test_the_loss_is_the_text_s_own(ready, trained):
    model = runs.load(trained)
    first = mx.array(ready.held_out[None, : heldout.WINDOW + 1])
    loss = heldout.loss(model, ready.held_out, 1000, limit=1)
    assert loss.nats_per_token == pytest.approx(float(plain_loss(model, first)), rel=1e-5)
    assert loss.nats_per_byte == pytest.approx(loss.nats_per_token * len(ready.held_out) / 1000)


def test_a_model_agrees_with_itself_and_less_with_another(ready, trained):
    model, other = runs.load(trained), sizes.build(SIZE.config(300), seed=8)
    batches = list(heldout.batches(ready.held_out, 2))
    itself, apart = agreement(model, model, batches, 0.7), agreement(model, other, batches, 0.7)
    assert itself.sum_min == pytest.approx(1, abs=1e-5)
    assert 0 < apart.sum_min < itself.sum_min
    assert itself.positions == 2 * heldout.WINDOW


def test_samples_follow_their_prompt_and_seed(trained, monkeypatch):
    model = runs.load(trained)
    prompts = mx.array([[1, 2, 3], [4, 5, 6]], dtype=mx.int32)
    monkeypatch.setattr("specfw.zoo.agreement.WINDOW", 11)
    written = samples(model, prompts, 1.0, seed=1)
    assert written.shape == (2, 12)
    assert mx.array_equal(written[:, :3], prompts)
    assert mx.array_equal(samples(model, prompts, 1.0, seed=1), written)
    assert not mx.array_equal(samples(model, prompts, 1.0, seed=2), written)
    cold = samples(model, prompts, 1e-6, seed=1)
    assert mx.array_equal(mx.argmax(model(cold), axis=-1)[:, 2:-1], cold[:, 3:])


def test_the_command_goes_from_the_corpus_to_a_measured_pair(root, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(measuring, "WINDOWS", 4)
    monkeypatch.setattr("specfw.zoo.agreement.WINDOW", 40)
    monkeypatch.setattr(measuring, "TEMPERATURES", (1.0,))
    for name in ("target", "drafter"):
        monkeypatch.setitem(sizes.SIZES, name, SIZE)
    recipe = ["--steps", "101", "--rows", "2", "--length", "4"]
    home, out = ["--home", str(tmp_path)], tmp_path / "out"
    for call in (
        ["corpus", "--root", str(root)],
        ["train", "target", "--size", "target", *recipe],
        ["distill", "drafter", "--target", "target", "--size", "drafter", *recipe],
        ["export", "target", str(out / "target")],
        ["export", "drafter", str(out / "drafter")],
        ["measure", str(out / "target"), str(out / "drafter"), "--root", str(root)],
    ):
        assert command.main([*home, *call]) == 0
    assert '"sum_min"' in capsys.readouterr().out
    assert "the rows of `target`" in (out / "drafter" / "README.md").read_text()


def test_a_run_is_kept_every_ten_minutes_outside_the_work_tree(ready, monkeypatch):
    asked = []
    monkeypatch.setattr(prepared, "load", lambda _: ready)
    monkeypatch.setattr(runs, "execute", lambda run, _, folder: asked.append((run.recipe.checkpoint_s, folder)))
    assert command.main(["train", "x", "--size", "target", "--steps", "200"]) == 0
    assert asked == [(600, prepared.home() / "x")]
    assert not prepared.home().resolve().is_relative_to(Path(specfw.__file__).resolve().parents[1])


def test_a_wrong_request_is_one_sentence(tmp_path, capsys):
    home = ["--home", str(tmp_path)]
    assert command.main([*home, "train", "x", "--size", "target", "--steps", "200"]) == 2
    assert command.main([*home, "export", "x", str(tmp_path)]) == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 2
    assert "must be prepared first" in error
