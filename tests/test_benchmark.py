"""task=benchmark: each arm runs what it says, in turns; what cannot be compared is refused; the record is complete."""

import dataclasses
import itertools
import json
import re
from pathlib import Path

import specfw
from specfw.__main__ import main
from specfw.benchmark import bench, measuring, mlx_lm_arms, mlx_lm_sampler
from specfw.benchmark.arms import Counts
from specfw.benchmark.line_up import NO_SPEEDUP, Parts, Wanted, check, line_up
from specfw.benchmark.machine import machine
from specfw.benchmark.measuring import Course, measure, rotated
from specfw.benchmark.mlx_lm_arms import counted, rounds_of
from specfw.benchmark.page import page
from specfw.drafting.controllers.confidence import Confidence
from specfw.drafting.controllers.heuristic import Heuristic
from specfw.experiment import run
from specfw.generation import Generation
from specfw.parts import Models, load, plan
from specfw.prompts.base import Encoded

import checkpoints
import pytest
from kit import chain, config

LINE = re.compile(
    r"\[Benchmark\] arms=\d+ repeats=\d+ plain_tokens_per_s=(\d+\.\d|nan) best=\S+ ratio=(\d+\.\d{3}|nan) "
    r"low=(\d+\.\d{3}|nan) high=(\d+\.\d{3}|nan) \((draft|plain|not decided|no recommendation)\)\n"
)
TOYS = ({"name": "iid", "probs": [0.1, 0.2, 0.3, 0.4]}, {"name": "iid", "probs": [0.4, 0.3, 0.2, 0.1]})
SCHEMA = (Path(specfw.__file__).parents[1] / "docs/log-schema.md").read_text()
EXPLAINED = set(re.findall(r"`([^`]+)`", re.sub(r"```.*?```", "", SCHEMA, flags=re.DOTALL)))
DATA = ("versions", "left_out", "controller", "ratios", "share_of_bound", "models", "target_s", "drafter_s")
ALL = ("plain", "mlx_lm_plain", "mlx_lm_speculative", "rules")


def wanted(
    arms=None, rules=("stochastic", "sampler_match"), counts=(2,), diagnostics=False, speedup=None, controllers=()
):
    return Wanted(arms, rules, counts, diagnostics, speedup, controllers)


def whole(target=TOYS[0], drafter=TOYS[1], **changes):
    return config(target, drafter, **{"diagnostics": {}, "max_tokens": 24, **changes})


@pytest.fixture(scope="module")
def pair(tmp_path_factory):
    """Nodes of two tiny checkpoints whose greedy text varies."""
    folder = tmp_path_factory.mktemp("pair")
    names = {"target": "llama", "drafter": "qwen2"}
    paths = {
        role: checkpoints.write(folder / role, checkpoints.SPEAKING[name], checkpoints.speaking(name))
        for role, name in names.items()
    }
    return [{"name": "checkpoint", "path": path} for path in paths.values()]


@pytest.fixture
def lined_up():
    def make(want, conf):
        planned = plan(conf)
        check(want, conf, planned)
        return line_up(want, Parts(conf, planned, load(planned)))

    return make


def ticking():
    ticks = itertools.count()
    return lambda: float(next(ticks))


def names(found):
    return [arm.name for arm in found.arms]


def keys(node):
    """Every key of a tree, but not those that are data."""
    if isinstance(node, dict):
        return set(node).union(*(keys(value) for key, value in node.items() if key not in DATA))
    return set().union(*map(keys, node)) if isinstance(node, list) else set()


# --- which arms -------------------------------------------------------------------------------------------------


def test_all_arms_of_a_pair_of_checkpoints(lined_up, pair):
    found = lined_up(wanted(counts=(1, 2)), whole(*pair))
    drafting = ["mlx_lm_speculative", "stochastic", "sampler-match"]
    assert names(found) == ["plain", "mlx_lm_plain", *(f"{name} K={k}" for name in drafting for k in (1, 2))]
    assert found.left_out == {}
    assert {arm.engine for arm in found.arms if arm.name.startswith("mlx")} == {"mlx-lm"}


def test_a_toy_pair_leaves_out_what_it_has_not_and_says_why(lined_up):
    found = lined_up(wanted(), whole())
    assert names(found) == ["plain", "stochastic K=2", "sampler-match K=2"]
    assert found.left_out == dict.fromkeys(
        ALL[1:3], "mlx-lm cannot run target (iid), a toy or a vocabulary of another size"
    )


def test_without_a_drafter_only_plain_arms_are_left(lined_up, pair):
    found = lined_up(wanted(), whole(pair[0], None, drafting={"name": "none"}))
    assert names(found) == ["plain", "mlx_lm_plain"]
    assert found.left_out == {"rules": "nothing drafts", "mlx_lm_speculative": "nothing drafts"}


def test_own_arms_have_their_rule_and_length_and_no_diagnostics(lined_up):
    found = lined_up(wanted(counts=(1, 5), rules=("gumbel", "block")), whole(diagnostics={"tokens": {}}))
    made = [(arm.decoder.rule.id, arm.decoder.controller.longest, arm.diagnostics) for arm in found.arms[1:]]
    assert made == [("gumbel", 1, {}), ("gumbel", 5, {}), ("block", 1, {}), ("block", 5, {})]
    assert [arm.stops_at_rejection for arm in found.arms[1:]] == [True, True, False, False]
    assert found.arms[0].decoder.rule.id == "plain"
    assert found.arms[0].decoder.drafter is None


def test_the_configured_rule_is_timed_with_and_without_diagnostics(lined_up):
    found = lined_up(wanted(diagnostics=True), whole(diagnostics={"calibration": {}, "tokens": {}}))
    assert names(found)[3:] == ["stochastic K=4", "stochastic K=4 with diagnostics"]
    assert found.diagnosed == ("stochastic K=4 with diagnostics", "stochastic K=4")
    assert set(found.arms[-1].diagnostics) == {"calibration", "tokens"}
    again = lined_up(wanted(counts=(4,), diagnostics=True), whole(diagnostics={"tokens": {}}))
    assert names(again).count("stochastic K=4") == 1


def test_controllers_are_arms_of_every_rule_with_the_fields_of_the_configured_one(lined_up):
    own = {"name": "heuristic", "num_draft_tokens": 2, "most": 3}
    conf = whole(controller=own, max_tokens=64, diagnostics={"tokens": {}})
    found = lined_up(wanted(controllers=("heuristic", "confidence"), diagnostics=True), conf)
    rules = ("stochastic", "sampler-match")
    drafting = [f"{rule} {length}" for rule in rules for length in ("K=2", "heuristic", "confidence")]
    assert names(found) == ["plain", *drafting, "stochastic heuristic with diagnostics"]
    assert found.diagnosed == ("stochastic heuristic with diagnostics", "stochastic heuristic")
    by_name = {arm.name: arm for arm in found.arms}
    assert by_name["sampler-match heuristic"].decoder.controller == Heuristic(num_draft_tokens=2, most=3)
    assert by_name["sampler-match heuristic"].controller["most"] == 3
    assert by_name["stochastic confidence"].decoder.controller == Confidence()
    assert by_name["stochastic K=2"].controller is by_name["plain"].controller is None


@pytest.mark.parametrize(
    ("want", "changes", "sentence"),
    [
        (wanted(arms=("rules",), speedup=True), {}, NO_SPEEDUP),
        (wanted(), {"num_samples": 2}, "num_samples must be 1 for a benchmark, which repeats, got 2"),
        (wanted(), {"batch_size": 2}, "batch_size must be null or 1 for a benchmark, got 2"),
        (wanted(), {"stop": ["x"]}, r"stop must be \[\] for a benchmark, which handles no text, got \['x'\]"),
        (wanted(counts=(12,)), {}, "max_tokens must be at least 26, so that two rounds fit, got 24"),
        (
            wanted(),
            {"controller": {"name": "heuristic"}},
            "controller must be constant, or one of task.controllers, got 'heuristic'",
        ),
        (
            wanted(controllers=("confidence",)),
            {"max_tokens": 41},
            "max_tokens must be at least 42, so that two rounds fit, got 41",
        ),
        (
            wanted(arms=("plain",), controllers=("cost",)),
            {"max_tokens": 64},
            r"task.controllers must be \[\] where no rule drafts, got \['cost'\]",
        ),
        (wanted(diagnostics=True), {}, "task.diagnostics_cost must be false where no diagnostic is on: .*"),
        (
            wanted(diagnostics=True),
            {"k": 0, "diagnostics": {"tokens": {}}},
            "controller.num_draft_tokens must be at least 1 for task.diagnostics_cost, got 0",
        ),
        (
            wanted(arms=("plain", "rules")),
            {"drafting": {"name": "none"}},
            r"task.arms must be without rules where nothing drafts, got \['plain', 'rules'\]",
        ),
        (
            wanted(),
            {"sampler": {"temperature": {"value": 0}}},
            "task.rules must name paths that differ, but here stochastic and sampler_match both run greedy-argmax",
        ),
        (
            wanted(),
            {"drafting": {"name": "model", "report_distribution": False}},
            "task.rules must name paths that differ, but here stochastic and sampler_match both run sampler-match",
        ),
        (
            wanted(arms=("plain", "mlx_lm_plain")),
            {},
            r"task.arms must be without mlx_lm_plain: mlx-lm cannot run target \(iid\), a toy or .*",
        ),
        (wanted(rules=("argmax_against_argmax",)), {}, ".* changes the distribution of the text: allow_lossy .*"),
    ],
)
def test_what_cannot_be_compared_is_refused(lined_up, want, changes, sentence):
    with pytest.raises(ValueError, match=f"^{sentence}$"):
        lined_up(want, whole(**changes))


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        (
            {"sampler": {"repetition": {"penalty": 1.2}}},
            r"mlx-lm cannot draw as this chain does: sampler.repetition is no step of its sampler; task.arms=.*",
        ),
        (
            {"draft_sampler": {"temperature": {"value": 0.5}}},
            r"draft_sampler must be the target's for mlx_lm_speculative .*, got \['temperature\(value=0.5\)'\]",
        ),
        (
            {"drafting": {"name": "model", "proposal": "greedy"}},
            "drafting.proposal must be sampled for mlx_lm_speculative .*, got 'greedy'",
        ),
    ],
)
def test_what_mlx_lm_cannot_do_is_refused_and_not_dropped(lined_up, pair, changes, sentence):
    with pytest.raises(ValueError, match=f"^{sentence}$"):
        lined_up(wanted(), whole(*pair, **changes))


def test_the_kill_switch_leaves_one_rule(monkeypatch, lined_up):
    monkeypatch.setenv("SPECFW_STOCHASTIC_ACCEPT", "0")
    with pytest.raises(ValueError, match=r"here stochastic and block both run sampler-match$"):
        lined_up(wanted(rules=("stochastic", "block")), whole())
    assert names(lined_up(wanted(rules=("stochastic",)), whole())) == ["plain", "sampler-match K=2"]


def test_a_drafter_that_mlx_lm_cannot_run_leaves_its_plain_arm(lined_up, pair, tmp_path):
    other = checkpoints.write(tmp_path / "other", {**checkpoints.LLAMA, "vocab_size": checkpoints.VOCABULARY + 64})
    found = lined_up(wanted(), whole(pair[0], {"name": "checkpoint", "path": other}))
    assert names(found) == ["plain", "mlx_lm_plain", "stochastic K=2", "sampler-match K=2"]
    assert re.match(r"mlx-lm cannot run drafter \(.*other\), ", found.left_out["mlx_lm_speculative"])


def test_quantised_caches_are_refused_to_the_arms_of_mlx_lm(lined_up, pair):
    quantised = {**pair[0], "kv_bits": 8, "kv_group_size": 32}
    with pytest.raises(ValueError, match=r"target\.kv_bits must be null for the arms of mlx-lm"):
        lined_up(wanted(), whole(quantised, pair[1]))
    assert names(lined_up(wanted(arms=("plain", "rules")), whole(quantised, pair[1])))[0] == "plain"


# --- the sampler of mlx-lm --------------------------------------------------------------------------------------

MLX_LM = ["top_p", "min_p", "xtc", "top_k", "temperature"]


@pytest.mark.parametrize(
    ("order", "steps", "expected"),
    [
        (["temperature"], {}, {"temp": 1.0}),
        (["temperature"], {"temperature": {"value": 0}}, {"temp": 0.0}),
        (["temperature", "top_k"], {"temperature": {"value": 0.5}, "top_k": {"k": 7}}, {"temp": 0.5, "top_k": 7}),
        (["top_k", "top_p"], {"top_k": {"k": 1}, "top_p": {"p": 0.5}}, {"temp": 0.0}),
        (
            ["top_k", "min_p"],
            {"top_k": {"k": 9}, "min_p": {"p": 0.1, "min_tokens_to_keep": 2}},
            {"temp": 1.0, "top_k": 9, "min_p": 0.1, "min_tokens_to_keep": 2},
        ),
        (
            MLX_LM,
            {"top_p": {"p": 0.9}, "xtc": {"probability": 0.5, "threshold": 0.2, "excluded": [3]}},
            {"temp": 1.0, "top_p": 0.9, "xtc_probability": 0.5, "xtc_threshold": 0.2, "xtc_special_tokens": [3]},
        ),
    ],
)
def test_a_chain_in_the_words_of_mlx_lm(order, steps, expected):
    assert mlx_lm_sampler.settings(chain(order=order, **steps)) == expected


@pytest.mark.parametrize(
    ("order", "steps", "step"),
    [
        (["temperature", "top_p"], {"temperature": {"value": 0.5}, "top_p": {"p": 0.9}}, "top_p acts after temp"),
        (["top_k", "top_p"], {"top_k": {"k": 5}, "top_p": {"p": 0.9}}, "top_p acts after top_k"),
        (["temperature", "bias"], {"temperature": {"value": 0}, "bias": {"ban": [1]}}, "bias is no step"),
        (["dry"], {"dry": {"multiplier": 1.0}}, "dry is no step"),
        (["top_p"], {"top_p": {"p": 0.9, "min_tokens_to_keep": 2}}, "top_p has no min_tokens_to_keep"),
    ],
)
def test_a_chain_that_mlx_lm_cannot_draw_by_is_refused_by_its_step(order, steps, step):
    with pytest.raises(ValueError, match=rf"sampler\.{step}"):
        mlx_lm_sampler.settings(chain(order=order, **steps))


# --- what runs --------------------------------------------------------------------------------------------------


def test_every_arm_in_every_repeat_in_rotating_order_under_the_repeats_seed(monkeypatch, lined_up, pair):
    """Recorded at the engines themselves: what was called, with which rule, K and seed."""
    calls = []
    monkeypatch.setattr(mlx_lm_arms.mx.random, "seed", lambda seed: calls.append(("seed", seed)))
    for name in ("generate_step", "speculative_generate_step"):
        inner = getattr(mlx_lm_arms, name)

        def recorded(*given, name=name, inner=inner, **options):
            count = options.get("num_draft_tokens", 0)
            calls.append((name, count, len(given) - 1, options["max_tokens"], options["prefill_step_size"]))
            return inner(*given, **options)

        monkeypatch.setattr(mlx_lm_arms, name, recorded)
    begun = Generation.__post_init__

    def begin(generation):
        decoder = generation.decoder
        if not decoder.split:
            calls.append((decoder.rule.id, decoder.controller.longest if decoder.drafter else 0, decoder.seed))
        begun(generation)

    monkeypatch.setattr(Generation, "__post_init__", begin)
    conf = whole(*pair, seed=2**64 - 1, prefill_chunk=3, ignore_eos=True)
    planned = plan(conf)
    models = load(planned)
    found = line_up(wanted(rules=("stochastic",)), Parts(conf, planned, models))
    course = Course(
        found.arms, (Encoded(index=0, ids=(5, 6, 7, 8), notes=()),), models, conf["seed"], 2, ticking(), str
    )
    done = measure(course)

    def of(arm, seed):
        return {
            "plain": [("plain", 0, seed)],
            "mlx_lm_plain": [("seed", seed), ("generate_step", 0, 1, 24, 3)],
            "mlx_lm_speculative K=2": [("seed", seed), ("speculative_generate_step", 2, 2, 24, 3)],
            "stochastic K=2": [("stochastic", 2, seed)],
        }[arm]

    orders = [rotated(names(found), repeat) for repeat in range(3)]
    seeds = [2**64 - 1, 0, 1]
    expected = [call for order, seed in zip(orders, seeds, strict=True) for arm in order for call in of(arm, seed)]
    assert calls == expected
    assert [(one.repeat, one.place, one.arm, one.seed) for one in done.taken] == [
        (repeat, place, arm, seeds[repeat]) for repeat in (1, 2) for place, arm in enumerate(orders[repeat])
    ]
    assert all(one.timed.seconds == 1.0 for one in done.taken)  # the clock is read twice in each decoding
    assert set(done.split) == {"plain", "stochastic K=2"}
    assert all(time > 0 for time in done.split["stochastic K=2"].phases)
    assert len(done.costs) == 2
    assert set(done.costs[0].target_s) == {1, 2, 3, 4, 8, 16} == set(done.costs[0].drafter_s)


def test_orders_rotate():
    assert [rotated("abc", repeat) for repeat in range(4)] == [list("abc"), list("bca"), list("cab"), list("abc")]


def test_an_own_arm_emits_the_text_of_a_run(lined_up):
    conf = whole(max_tokens=40)
    for name, changes in {
        "plain": {"drafting": {"name": "none"}},
        "stochastic K=2": {"controller": {"name": "constant", "num_draft_tokens": 2}},
        "stochastic heuristic": {"controller": {"name": "heuristic"}},
    }.items():
        found = lined_up(wanted(controllers=("heuristic",)), conf)
        arm = next(arm for arm in found.arms if arm.name == name)
        summary = run({**conf, **changes, "seed": 7}, quiet=True)
        timed = arm.decode(Encoded(index=0, ids=(0, 0), notes=()), 7, ticking())
        assert timed.emitted == (summary.outputs[0].tokens,)
        drafted = summary.numbers["rounds"], summary.numbers["proposed"], summary.numbers["positions_tested"]
        assert timed.counts[:4] == (*drafted, summary.numbers["accepted"])
        assert timed.rounds == summary.numbers["rounds"] + summary.numbers["plain_rounds"] - 1
        assert len(timed.lengths) == (timed.rounds if "heuristic" in name else 0)
        assert len(set(timed.lengths)) > 1 or "heuristic" not in name


@pytest.mark.parametrize("drafter", [0, 1])
def test_greedy_arms_of_both_engines_emit_the_same_tokens(lined_up, pair, drafter):
    """With the target as its own drafter everything is accepted, with another model nothing."""
    greedy = {"sampler": {"temperature": {"value": 0}}, "max_tokens": 30, "ignore_eos": True}
    models = pair[0], pair[drafter]
    found = lined_up(wanted(rules=("greedy_argmax",), counts=(3,)), whole(*models, **greedy))
    prompt = Encoded(index=0, ids=(7, 300, 11, 1999), notes=())
    texts = {arm.name: arm.decode(prompt, 1, ticking()) for arm in found.arms}
    assert len(texts) == 4
    assert len({timed.emitted for timed in texts.values()}) == 1
    assert len(set(texts["plain"].emitted[0])) > 5
    assert texts["plain"].tokens == texts["mlx_lm_plain"].tokens == 29
    # of the last token mlx-lm makes a draft, and we do not
    drafted = {"mlx_lm_speculative K=3": (30, 23), "greedy-argmax K=3": (29 if drafter else 30, 22)}
    for name, (emitted, accepted) in drafted.items():
        assert texts[name].tokens == (29 if drafter else 26)
        assert texts[name].counts.emitted == emitted
        assert texts[name].counts.accepted == (0 if drafter else accepted)


def test_texts_end_at_the_end_of_sequence_in_both_engines(lined_up, pair):
    greedy = {"sampler": {"temperature": {"value": 0}}, "max_tokens": 30, "ignore_eos": True}
    prompt = Encoded(index=0, ids=(7, 300, 11, 1999), notes=())
    found = lined_up(wanted(rules=("greedy_argmax",), counts=(3,)), whole(*pair, **greedy))
    text = found.arms[0].decode(prompt, 1, ticking()).emitted[0]
    place = next(place for place in range(12, 30) if text[place] not in text[:place])
    for arm in found.arms:
        if arm.engine == "specfw":
            ending = dataclasses.replace(
                arm, decoder=dataclasses.replace(arm.decoder, eos_ids=frozenset({text[place]}))
            )
        else:
            ending = dataclasses.replace(arm, eos_ids=frozenset({text[place]}))
        assert ending.decode(prompt, 1, ticking()).emitted[0] == text[: place + 1]


def test_what_is_over_within_its_first_round_cannot_be_timed(lined_up):
    (arm, *_) = lined_up(wanted(arms=("plain",)), whole({**TOYS[0], "eos_id": 3})).arms
    ending = dataclasses.replace(arm, decoder=dataclasses.replace(arm.decoder, eos_ids=frozenset(range(4))))
    with pytest.raises(ValueError, match=r"^plain ended within its first round, so"):
        ending.decode(Encoded(index=0, ids=(0,), notes=()), 0, ticking())


@pytest.mark.parametrize(
    ("drafted", "rounds", "counts"),
    [
        ([True, True, False, False], [3, 1], Counts(2, 6, 4, 2, 4)),
        ([False, True, True, True], [1, 3], Counts(2, 6, 4, 3, 4)),
        ([True, True, True, False, True], [4, 1], Counts(2, 4, 4, 4, 5)),
    ],
)
def test_rounds_of_mlx_lm_are_told_by_its_flags(drafted, rounds, counts):
    """K = 3; the last has 5 tokens at most, so that its second round drafts one."""
    most = 5 if len(drafted) == 5 else 100
    assert rounds_of(drafted) == rounds
    assert counted(rounds, drafted, 3, most) == counts


def test_an_interrupt_keeps_what_is_complete(lined_up):
    conf = whole()
    models = load(plan(conf))
    turns = itertools.count()

    def say(_):
        if next(turns) == 2:
            raise KeyboardInterrupt

    course = Course(
        lined_up(wanted(), conf).arms, (Encoded(index=0, ids=(0,), notes=()),), models, 0, 5, ticking(), say
    )
    done = measure(course)
    assert (done.repeats, done.interrupted, len(done.taken), done.split) == (2, True, 2 * 3, {})
    turns = itertools.count(2)
    with pytest.raises(KeyboardInterrupt):
        measure(course)


def test_costs_are_measured_at_the_longest_prompts_length(monkeypatch, lined_up):
    asked = []
    monkeypatch.setattr(
        measuring,
        "forward_cost",
        lambda _, rows, context, __: asked.append((rows, context)) or dict.fromkeys(rows, 1),
    )
    conf = whole()
    prompts = tuple(Encoded(index=place, ids=(0,) * length, notes=()) for place, length in enumerate((2, 9, 4)))
    models = load(plan(conf))
    measure(Course(lined_up(wanted(), conf).arms, prompts, Models(models.target, None), 0, 1, ticking(), str))
    assert asked == [([1, 2, 3, 4, 8, 16], 9)] * 2


# --- the command ------------------------------------------------------------------------------------------------


@pytest.fixture
def command(tmp_path, monkeypatch, capsys):
    """Run a command line: exit status, stdout, stderr, and the folder it wrote."""

    def run(*words):
        outputs = tmp_path / f"outputs{len(list(tmp_path.glob('outputs*')))}"
        monkeypatch.setenv("SPECFW_OUTPUTS", str(outputs))
        capsys.readouterr()
        status = main(["task=benchmark", *words])
        out, err = capsys.readouterr()
        return status, out, err, max(outputs.glob("2*/*"), default=None)

    return run


CONTROLLED = ["task.rules=[stochastic]", "task.diagnostics_cost=false"]
SMALL = ["pair=iid", "max_tokens=30", "task.repeats=2", "task.num_draft_tokens=[1,2]"]


def test_a_command_leaves_a_line_tables_numbers_and_a_page(command):
    status, out, err, folder = command(*SMALL, "acceptance=stochastic", "controller.num_draft_tokens=2")
    assert status == 0
    assert LINE.fullmatch(out)
    assert "benchmark: mlx_lm_plain left out: mlx-lm cannot run target (iid), a toy" in err
    found = json.loads((folder / "benchmark.json").read_text())
    arms = ["plain", *(f"{rule} K={k}" for rule in ("stochastic", "sampler-match") for k in (1, 2))]
    arms.append("stochastic K=2 with diagnostics")
    assert [arm["name"] for arm in found["arms"]] == arms
    assert len(found["taken"]) == 2 * len(arms)
    assert found["diagnostics_cost"]["arm"] == "stochastic K=2"
    assert found["recommendation"]["best"] in arms[1:5]
    assert found["line"] + "\n" == out
    assert keys(found) <= EXPLAINED
    page = (folder / "benchmark.md").read_text()
    assert f"`python -m specfw task=benchmark {' '.join(SMALL[:3])} 'task.num_draft_tokens=[1,2]'" in page
    for piece in (
        found["machine"]["processor"],
        "mlx 0.",
        "- models: target (iid), drafter (iid)\n",
        f", {found['machine']['threads']} thread\n",
        "| rows | target ms |",
        "recommendation:",
        "flips where",
        *arms,
    ):
        assert piece in page, piece
    assert all(f"| {arm} |" in page for arm in arms)
    assert "mlx_lm_plain |" not in page.replace("by x mlx_lm_plain |", "")
    assert str(folder.parents[1]) not in page


@pytest.mark.parametrize(("threads", "words"), [(1, "1 thread"), (2, "2 threads"), (None, "its own number of threads")])
def test_a_page_counts_threads_in_english(threads, words, tmp_path):
    shown = page("title", {**machine(tmp_path), "threads": threads}, (), (), "end")
    assert re.search(rf"^- float32 products: .*, {words}$", shown, flags=re.MULTILINE)


def test_arms_of_controllers_are_in_the_record_with_the_costs_they_know(command):
    status, _, err, folder = command(*SMALL, "max_tokens=40", "task.controllers=[heuristic,cost]", *CONTROLLED)
    assert status == 0
    found = json.loads((folder / "benchmark.json").read_text())
    arms = {arm["name"]: arm for arm in found["arms"]}
    assert list(arms)[3:] == ["stochastic heuristic", "stochastic cost"]
    assert arms["stochastic K=1"]["controller"] is None
    assert arms["stochastic K=1"]["mean_num_draft_tokens"] == 1
    heuristic, cost = (arms[f"stochastic {name}"] for name in ("heuristic", "cost"))
    assert heuristic["controller"]["name"] == "heuristic"
    assert 1 <= heuristic["mean_num_draft_tokens"] <= 16
    assert [rows for rows, _ in cost["controller"]["curve"]] == [1, 2, 3, 5, 9, 17]
    assert cost["controller"]["draft_step_s"] > 0
    assert err.count("controller knows") == 1
    assert all(arm["bound"] > 0 for name, arm in arms.items() if name != "plain")
    assert not any(name.startswith("mlx_lm") for name in heuristic["ratios"])
    assert keys(found) <= EXPLAINED


def test_without_the_plain_arm_no_ratio_is_shown(command):
    words = [*SMALL, "task.arms=[rules]", "task.diagnostics_cost=false"]
    status, out, err, folder = command(*words)
    assert status == 0
    assert "best=none ratio=nan low=nan high=nan (no recommendation)" in out
    assert NO_SPEEDUP in err
    assert "x plain" not in (folder / "benchmark.md").read_text()
    status, out, err, _ = command(*words, "task.speedup=true")
    assert (status, out, err) == (2, "", f"specfw: {NO_SPEEDUP}\n")


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["task.arms=[fast]"], r"task.arms must be auto, or a list of: plain, mlx_lm_plain, .*, got \('fast',\)"),
        (["task.arms=all"], "task.arms must be auto, or a list of: .*, got 'all'"),
        (["task.arms=[plain,plain]"], r"task.arms must be a list that names nothing twice, got .*"),
        (["task.rules=[stochastic,stochastic]"], "task.rules must be a list that names nothing twice, got .*"),
        (["task.rules=[best]"], "task.rules must be made of: .*, got 'best'"),
        (["task.rules=[]"], r"task.rules must be a list of at least one rule, got \[\]"),
        (["task.num_draft_tokens=[0]"], r"task.num_draft_tokens must be a list of numbers in \[1, 64\], got \[0\]"),
        (["task.num_draft_tokens=[2,2]"], "task.num_draft_tokens must be a list that names nothing twice, got .*"),
        (["task.repeats=0"], "task.repeats must be at least 1, got 0"),
        (
            ["task.controllers=[constant]"],
            "task.controllers must be made of: confidence, cost, heuristic, got 'constant'",
        ),
        (["task.controllers=[cost,cost]"], "task.controllers must be a list that names nothing twice, got .*"),
        (["diagnostics=none"], "task.diagnostics_cost must be false where no diagnostic is on: .*"),
    ],
)
def test_a_command_is_refused_in_one_sentence(command, words, sentence):
    status, out, err, _ = command(*SMALL, *words)
    assert (status, out) == (2, "")
    assert re.fullmatch(f"specfw: {sentence}\n", err), err


def test_an_interrupted_benchmark_leaves_its_complete_repeats(command, monkeypatch):
    turns = itertools.count()

    def say(_):
        if next(turns) == 5:  # two arms left out, the list of arms, the warm-up, one repeat
            raise KeyboardInterrupt

    monkeypatch.setattr(bench, "stderr", say)
    monkeypatch.setitem(bench.benchmark.__kwdefaults__, "say", say)
    status, _, err, folder = command(*SMALL)
    assert status == 130
    found = json.loads((folder / "benchmark.json").read_text())
    assert (found["interrupted"], found["repeats"]) == (True, 2)
    assert "interrupted after 2 repeats" in err
