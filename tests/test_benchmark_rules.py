"""task=benchmark_rules: numpy decides as we do, contenders take turns, and everything stands in the record."""

import json
import re
import sys
from importlib.machinery import ModuleSpec
from pathlib import Path
from statistics import median
from types import SimpleNamespace

import specfw
from specfw.__main__ import main
from specfw.benchmark.deciding import in_numpy, in_torch, measuring
from specfw.benchmark.deciding.arrays import arrays
from specfw.benchmark.deciding.contenders import chain, contenders, copy_bandwidth, decided, noise_of
from specfw.benchmark.deciding.in_numpy import RULES, Decision
from specfw.benchmark.deciding.measuring import Plan, Size, measure
from specfw.benchmark.numbers import paired

import mlx.core as mx
import numpy as np
import pytest
from kit import rule

LINE = re.compile(
    r"\[Benchmark rules\] sizes=\d+ rules=[a-z_,]+ repeats=\d+ copy_gb_per_s=\d+\.\d slowest_x_softmax=\d+\.\d\d\n"
)
SCHEMA = (Path(specfw.__file__).parents[1] / "docs/log-schema.md").read_text()
EXPLAINED = set(re.findall(r"`([^`]+)`", re.sub(r"```.*?```", "", SCHEMA, flags=re.DOTALL)))
SMALL = ["task.vocab_sizes=[600]", "task.num_draft_tokens=[1,3]", "task.repeats=2", "pair=iid"]


class Given(in_numpy.Draws):
    """The draws of one of our rounds."""

    def __init__(self, noise):
        self._noise = noise

    def accept(self):
        return self._noise.accept()[0].item()

    def residual(self):
        return tuple(self._noise.residual()[0].tolist())

    def target(self, rows, vocab_size):
        return np.array(self._noise.target(range(rows))[0])


@pytest.mark.parametrize("name", sorted(RULES))
@pytest.mark.parametrize("drafted", [1, 4])
def test_numpy_decides_as_we_do_on_the_same_uniforms(name, drafted):
    seen = set()
    for seed in range(60):
        made = arrays(1500, drafted, seed)
        noise = noise_of(seed, 5, 1500)
        verdict = decided(rule(name), chain(0), [mx.array(part)[None] for part in made], noise)
        ours = Decision(verdict.accepted[0].item(), verdict.token[0].item())
        assert RULES[name](made, Given(noise)) == ours
        seen.add(ours.accepted)
    assert len(seen) > 1


def test_the_same_sizes_and_seed_give_the_same_arrays():
    one, other, third = arrays(700, 3, 1), arrays(700, 3, 1), arrays(700, 3, 2)
    assert all((a == b).all() for a, b in zip(one, other, strict=True))
    assert not (one.target == third.target).all()
    assert (one.target.shape, one.draft.shape, one.tokens.shape) == ((4, 700), (3, 700), (3,))
    assert one.nbytes == 7 * 700 * 4
    assert np.corrcoef(one.target[0], one.draft[0])[0, 1] == pytest.approx(0.95, abs=0.02)


def test_draft_tokens_survive_a_truncation():
    made = arrays(2000, 8, 3)
    for row, token in zip(made.draft, made.tokens, strict=True):
        assert (row > row[token]).sum() < 64


def test_what_takes_turns():
    named = contenders(arrays(600, 2, 0), {name: rule(name) for name in ("stochastic", "gumbel")}, 64, 0)
    assert list(named) == [
        "mx.softmax",
        "stochastic",
        "stochastic top_k",
        "stochastic numpy",
        "gumbel",
        "gumbel top_k",
    ]
    assert chain(0).steps == ()
    assert chain(64).describe() == ["top_k(k=64)"]
    for one in named.values():
        one(0)


def test_times_are_paired_and_the_first_turn_is_not_counted(monkeypatch):
    """Three contenders; each turn takes as long as its name says, times the number of the repeat."""
    speed, now, order = {"mx.softmax": 1.0, "stochastic": 2.0, "sampler_match": 4.0, "stochastic top_k": 0.5}, [0.0], []

    def turn(name):
        def act(repeat):
            order.append((repeat, name))
            now[0] += speed[name] * (repeat or 1000)

        return act

    monkeypatch.setattr(measuring, "contenders", lambda *_: {name: turn(name) for name in speed})
    monkeypatch.setattr(measuring, "copy_bandwidth", lambda: 5600.0)
    rules = {name: rule(name) for name in ("stochastic", "sampler_match")}
    monkeypatch.setattr(in_torch, "find_spec", lambda _: None)
    found = measure(Plan(((100, 3),), rules, 64, 2, 0, 1), lambda: now[0], str)
    (size,) = found.sizes
    assert size.seconds["stochastic"] == [2.0, 4.0]
    assert size.times("stochastic", "mx.softmax") == pytest.approx((2, 2, 2))
    assert size.times("stochastic", "sampler_match").estimate == pytest.approx(0.5)
    assert size.times("stochastic", "stochastic numpy") is None
    assert size.floor_s == 7 * 100 * 4 / 5600
    assert [name for repeat, name in order if repeat == 1] == [*list(speed)[1:], "mx.softmax"]
    assert found.torch == "torch is not installed"


def test_numbers_of_a_size():
    seconds = {
        "mx.softmax": [1.0, 1.0, 2.0],
        "stochastic": [1.5, 1.5, 3.0],
        "stochastic top_k": [0.75, 0.75, 1.5],
        "stochastic numpy": [3.0, 3.0, 6.0],
    }
    found = measuring.numbers(Size(100, 3, seconds, [5.0, 6.0, 4.0], 0.5), ("stochastic",))
    one = found["rules"]["stochastic"]
    assert one["median_s"] == 1.5
    assert one["times_as_long_as"]["softmax"]["estimate"] == pytest.approx(1.5)
    assert one["times_as_long_as"]["numpy"] == pytest.approx(paired([0.5] * 3, [1.0] * 3)._asdict())
    assert one["times_as_long_as"]["sampler_match"] is None
    assert one["top_k_times_as_long"]["estimate"] == pytest.approx(0.5)
    assert (one["of_floor"], one["of_transformers"]) == (3.0, 0.3)


def test_bandwidth_counts_bytes_read_and_written(monkeypatch):
    ticks = iter(range(100))
    monkeypatch.setattr("specfw.benchmark.deciding.contenders.perf_counter", lambda: float(next(ticks)))
    assert copy_bandwidth() == 2 * 2**26


# --- transformers, in a child process -----------------------------------------------------------------------------


def test_torch_that_is_not_there_is_said(monkeypatch):
    monkeypatch.setattr(in_torch, "find_spec", lambda _: None)
    assert in_torch.seconds([(600, 1)], 0, 1, 1) == "torch is not installed"


def test_a_child_that_fails_is_said(monkeypatch):
    monkeypatch.setattr(in_torch, "find_spec", lambda _: ModuleSpec("torch", None))
    monkeypatch.setattr(sys, "executable", "/bin/false")
    assert in_torch.seconds([(600, 1)], 0, 1, 1) == "the child process failed: no words"


def test_the_child_hands_over_the_same_arrays_and_times_every_repeat(monkeypatch):
    calls = []

    class Tensor:
        def __init__(self, values):
            self.values = values

        def __getitem__(self, _):
            return Tensor(self.values[None])

    torch = SimpleNamespace(
        set_num_threads=lambda count: calls.append(("threads", count)), manual_seed=lambda _: None, from_numpy=Tensor
    )
    utils = SimpleNamespace(_speculative_sampling=lambda *given: calls.append(given))
    monkeypatch.setattr(in_torch, "import_module", {"torch": torch, "transformers.generation.utils": utils}.get)
    asked = {"sizes": [[600, 2]], "seed": 4, "repeats": 3, "threads": 2}
    ((*times,),) = in_torch.measured(asked)
    assert len(times) == 3
    assert all(time >= 0 for time in times)
    threads, *passed = calls
    assert threads == ("threads", 2)
    assert len(passed) == 4
    ids, draft, count, target = passed[0]
    made = arrays(600, 2, 4)
    assert (ids.values.shape, draft.values.shape, target.values.shape, count) == ((1, 2), (1, 2, 600), (1, 3, 600), 2)
    assert (target.values[0] == made.target).all()
    assert (ids.values[0] == made.tokens).all()


def test_what_the_child_prints_is_read(monkeypatch):
    monkeypatch.setattr(in_torch, "find_spec", lambda _: ModuleSpec("torch", None))
    told = []

    def child(command, **_):
        told.append((command[1:3], json.loads(command[3])))
        return SimpleNamespace(returncode=0, stdout="[[0.5, 0.25]]", stderr="")

    monkeypatch.setattr(in_torch.subprocess, "run", child)
    assert in_torch.seconds([(600, 1)], 3, 2, 1) == [[0.5, 0.25]]
    asked = {"sizes": [[600, 1]], "seed": 3, "repeats": 2, "threads": 1}
    assert told == [(["-m", "specfw.benchmark.deciding.in_torch"], asked)]


def keys(node):
    """Every key of a tree, but not those that are data."""
    if isinstance(node, dict):
        own = set() if "mx.softmax" in node or "stochastic" in node else set(node)
        return own.union(*(keys(value) for key, value in node.items() if key != "versions"))
    return set().union(*map(keys, node)) if isinstance(node, list) else set()


# --- the command --------------------------------------------------------------------------------------------------


@pytest.fixture
def command(tmp_path, monkeypatch, capsys):
    """Run a command line: exit status, stdout, stderr, and the folder it wrote."""

    def run(*words):
        monkeypatch.setenv("SPECFW_OUTPUTS", str(tmp_path / "outputs"))
        monkeypatch.setattr(in_torch, "find_spec", lambda _: None)
        capsys.readouterr()
        status = main(["task=benchmark_rules", *words])
        out, err = capsys.readouterr()
        return status, out, err, next(iter((tmp_path / "outputs").glob("2*/*")), None)

    return run


def test_a_command_leaves_a_line_a_table_numbers_and_a_page(command):
    status, out, err, folder = command(*SMALL)
    assert status == 0
    assert LINE.fullmatch(out)
    assert "torch is not installed" in err
    found = json.loads((folder / "benchmark_rules.json").read_text())
    assert [(size["vocab_size"], size["num_draft_tokens"]) for size in found["sizes"]] == [(600, 1), (600, 3)]
    for size in found["sizes"]:
        assert list(size["rules"]) == ["stochastic", "block", "sampler_match", "gumbel"]
        assert all(len(times) == 2 for times in size["seconds"].values())
        assert size["softmax_s"] == median(size["seconds"]["mx.softmax"])
    assert keys(found) <= EXPLAINED
    page = (folder / "benchmark_rules.md").read_text()
    assert "`python -m specfw task=benchmark_rules" in page
    assert page.count("| 600 |") == 2 + 2 * 4
    assert "torch is not installed" in page


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["task.vocab_sizes=[511]"], r"task.vocab_sizes must be a list of numbers of at least 512, got \[511\]"),
        (["task.top_k=8"], "task.top_k must be at least 64, among which draft tokens lie, got 8"),
        (["task.num_draft_tokens=[]"], r"task.num_draft_tokens must be a list of numbers in \[1, 64\], got \[\]"),
        (["task.rules=[block,block]"], "task.rules must be a list that names nothing twice, got .*"),
        (["task.rules=[best]"], "task.*rules must be one of: .*; got 'best'"),
        (["task.rules=[greedy_argmax]"], ".*greedy_argmax needs a greedy target.*"),
        (["task.rules=[argmax_against_argmax]"], ".*changes the distribution of the text.*"),
        (["task.repeats=0"], "task.repeats must be at least 1, got 0"),
        (
            ["sampler.temperature.value=0.5"],
            r"sampler must be neutral for benchmark_rules, which has chains of its own, got \['temperature.*'\]",
        ),
    ],
)
def test_a_command_is_refused_in_one_sentence(command, words, sentence):
    status, out, err, _ = command(*SMALL, *words)
    assert (status, out) == (2, "")
    assert re.fullmatch(f"specfw: {sentence}\n", err), err
