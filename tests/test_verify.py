"""task=verify: right rules pass, wrong ones fail and are named, and what a sample cannot see is said."""

import json
import re
from dataclasses import dataclass, replace
from pathlib import Path

import specfw
from specfw.__main__ import main
from specfw.diagnostics._evidence import log_mean_exp
from specfw.diagnostics.base import Observer, Setting
from specfw.diagnostics.calibration import Calibration
from specfw.distribution import Dense
from specfw.drafting.model import ModelDrafting, ModelSession
from specfw.drafting.none import NoDrafting
from specfw.generation import Generation
from specfw.models.base import LanguageModel
from specfw.models.pretrained.folder import ZOO, digests
from specfw.types import Block
from specfw.verification.exact import enumerate_rule, iid
from specfw.verification.faults import FAULTS
from specfw.verification.faults.factors import replaced
from specfw.verification.faults.proposals import Misdrafting
from specfw.verification.fits import examined, rows_by_last_token
from specfw.verification.power import Count, exact_effects, would_need
from specfw.verification.promises import promises
from specfw.verification.proof import Proof
from specfw.verification.sample import draw
from specfw.verification.statistics import chi_square, g_test, noncentrality

import mlx.core as mx
import numpy as np
import pytest
from checkpoints import LLAMA, write
from kit import chain, decoder, rule
from kit import iid as iid_model
from kit import markov as markov_model

RULES = ("sampler_match", "stochastic", "block", "gumbel")
SHORT = ["task=verify", "task.length=16", "task.power=false"]
P, Q = [0.1, 0.2, 0.3, 0.4], [0.4, 0.3, 0.2, 0.1]
MARKOV = [[0.1, 0.6, 0.3], [0.5, 0.1, 0.4], [0.2, 0.7, 0.1]], [[0.3, 0.4, 0.3], [0.2, 0.3, 0.5], [0.6, 0.3, 0.1]]
PROMPT = (0, 0)
DOCS = Path(specfw.__file__).parents[1] / "docs"


@pytest.fixture
def prove(tmp_path, monkeypatch, capsys):
    """Runs task=verify; its exit status, proof.json (None if there is none) and what it said."""
    monkeypatch.setenv("SPECFW_OUTPUTS", str(tmp_path))
    monkeypatch.setattr("specfw.verification.promises.LENGTH", 16)
    monkeypatch.setattr("specfw.verification.proof.RUN_TOKENS", 512)

    def run(*words):
        before = set(tmp_path.rglob("proof.json"))
        status = main([*SHORT, *words])
        written = set(tmp_path.rglob("proof.json")) - before
        said = capsys.readouterr()
        return status, json.loads(written.pop().read_text()) if written else None, said

    return run


@pytest.fixture
def only(monkeypatch):
    """Leaves one fault to the power arm."""
    return lambda name: monkeypatch.setattr("specfw.verification.proof.FAULTS", {name: FAULTS[name]})


def sees(proof):
    return {name.split(",")[0] for name in proof["rejected_by"]}


# --- right configurations ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("pair", "acceptance"),
    [
        *((pair, acceptance) for pair in ("markov", "position") for acceptance in RULES),
        ("iid", "gumbel"),
        ("toy_e", "block"),
        ("cycle", "stochastic"),
        ("cache_length", "block"),
        ("cache_length", "sampler_match"),
    ],
)
def test_a_right_rule_passes(pair, acceptance, prove):
    status, proof, said = prove(f"pair={pair}", f"acceptance={acceptance}", "task.tokens=1600")
    assert (status, proof["rejected_by"]) == (0, []), said.err
    assert proof["exact"]["total_variation"] < 1e-9
    assert all(promise["held"] for promise in proof["promises"])


@pytest.mark.parametrize(
    ("words", "active", "enumerated"),
    [
        (["sampler.temperature.value=0"], "greedy-argmax", True),
        (["drafting=none"], "plain", False),
        (["acceptance=stochastic", "drafting.proposal=greedy"], "stochastic", True),
        (["acceptance=block", "sampler.xtc.probability=0.5"], "block", False),
        (["acceptance=stochastic", "sampler.repetition.penalty=1.5"], "stochastic", True),
        (["acceptance=block", "sampler.frequency.penalty=0.3", "draft_sampler.top_k.k=2"], "block", True),
        (["acceptance=argmax_against_argmax", "allow_lossy=true"], "argmax-against-argmax", True),
        (["acceptance=stochastic", "controller.num_draft_tokens=0"], "stochastic", False),
        (["acceptance=stochastic", "sampler.temperature.value=0.02"], "stochastic", True),
        (["acceptance=stochastic", "task.tokens=16"], "stochastic", True),
    ],
)
def test_any_chain_and_drafting(words, active, enumerated, prove):
    status, proof, said = prove("pair=iid", "task.tokens=1600", *words)
    assert (status, proof["rejected_by"]) == (0, []), said.err
    assert proof["rule"] == active
    assert (proof["exact"] is not None) is enumerated


def test_a_checkpoint(prove, tmp_path):
    """It decodes one sequence at a time, its vocabulary cannot be enumerated, and its transforms are binned."""
    path = write(tmp_path / "tiny", LLAMA)
    words = [f"target.path={path}", f"drafter.path={path}", "draft_sampler.temperature.value=0.5", "task.tokens=160"]
    status, proof, said = prove("acceptance=stochastic", *words)
    assert (status, proof["rejected_by"]) == (0, []), said.err
    assert proof["exact"] is None
    assert proof["tokens"] == 160


def test_a_lossy_rule_is_held_against_what_it_declares():
    """And rejected, by the same checks, when it does something else."""
    parts = decoder(iid_model(P), iid_model(Q), "argmax_against_argmax", max_tokens=16)
    wrong = replace(
        parts, rule=replaced(rule("stochastic"), preserves_target=False, surrogate=lambda _, p, __: p.mode())
    )
    assert min(one.p_value for one in examined(draw(parts, PROMPT, 50), None, True)) > 1e-4
    sample = draw(wrong, PROMPT, 50)
    assert (sample.p == 0).any()
    with pytest.raises(ValueError, match="acceptance must be a rule that says which law its text follows"):
        draw(replace(parts, rule=replaced(rule("stochastic"), preserves_target=False)), PROMPT, 1)


# --- faults -----------------------------------------------------------------------------------------------------

FILTERED = ["sampler.top_k.k=3", "draft_sampler.top_k.k=2"]
SEEN = [
    ("accept_all", "stochastic", "iid", 640, [], {"exact bench", "first tokens of rounds", "pairs", "run: lengths"}),
    ("resample_from_target", "stochastic", "iid", 6400, [], {"first tokens of rounds", "run: emitted_by_ratio"}),
    ("resample_from_target", "block", "toy_e", 6400, [], {"first tokens of rounds", "run: emitted_by_ratio"}),
    ("softmax_residual", "stochastic", "iid", 3200, [], {"first tokens of rounds", "run: emitted"}),
    ("scalar_uniform", "stochastic", "iid", 6400, [], {"place 1 of rounds", "pairs", "run: lengths"}),
    ("shared_uniform", "stochastic", "iid", 6400, [], {"exact bench", "first tokens of rounds", "pairs"}),
    ("shared_noise", "stochastic", "iid", 64_000, [], {"exact bench", "first tokens of rounds", "pairs"}),
    ("same_or_coin", "stochastic", "iid", 12_800, [], {"first tokens of rounds", "run: closed_form"}),
    ("block_break_at_first_failure", "block", "toy_e", 3200, [], {"first tokens of rounds", "run: lengths"}),
    ("argmax_text", "sampler_match", "iid", 640, [], {"all tokens", "equality with plain decoding at the same seed"}),
    ("rows_one_late", "stochastic", "markov", 3200, [], {"place 1 of rounds", "pairs"}),
    ("rows_one_late", "gumbel", "position", 3200, [], {"all tokens", "equality with plain decoding at the same seed"}),
    ("raw_q", "stochastic", "iid", 6400, FILTERED, {"exact bench", "first tokens of rounds", "run: drafts"}),
    ("q_before_filters", "stochastic", "iid", 6400, FILTERED, {"first tokens of rounds", "run: drafts"}),
    ("greedy_draft_soft_q", "stochastic", "iid", 3200, [], {"first tokens of rounds", "run: drafts"}),
    ("discard_low_confidence", "stochastic", "toy_a", 6400, [], {"first tokens of rounds", "run: drafts"}),
    ("discard_low_confidence", "block", "toy_a", 6400, [], {"exact bench", "pairs", "run: drafts"}),
    ("no_support_guard", "stochastic", "iid", 160, ["sampler.top_k.k=2", "draft_sampler.top_k.k=0"], {"exact bench"}),
]


@pytest.mark.parametrize(("fault", "acceptance", "pair", "tokens", "words", "checks"), SEEN)
def test_a_fault_fails_and_the_checks_that_saw_it_are_named(fault, acceptance, pair, tokens, words, checks, prove):
    at = [f"acceptance={acceptance}", f"pair={pair}", f"task.tokens={tokens}"]
    status, proof, said = prove(f"task.fault={fault}", *at, *words)
    assert status == 1
    assert checks <= sees(proof)
    assert (proof["verdict"], proof["fault"]) == ("failed", fault)
    assert f"with fault {fault}: failed" in said.err


@pytest.mark.parametrize(("fault", "pair"), [("scalar_uniform", "iid"), ("rows_one_late", "markov")])
def test_first_tokens_are_right_where_later_ones_are_wrong(fault, pair, prove):
    _, proof, _ = prove("acceptance=stochastic", f"pair={pair}", f"task.fault={fault}", "task.tokens=12800")
    assert {"pairs", "place 1 of rounds"} <= sees(proof)
    assert "first tokens of rounds" not in sees(proof)


def test_a_support_that_is_left_is_a_broken_promise(prove):
    words = ["sampler.top_k.k=2", "draft_sampler.top_k.k=0", "task.fault=accept_all", "task.tokens=320"]
    _, proof, _ = prove("pair=iid", "acceptance=stochastic", *words)
    assert "support" in proof["rejected_by"]
    assert proof["exact"]["impossible"] > 0.01


def test_a_fault_that_the_prompt_hides_is_enumerated(prove):
    words = ["pair=markov", "acceptance=stochastic", "task.fault=discard_low_confidence", "task.tokens=64"]
    _, proof, _ = prove(*words)
    assert proof["exact"]["total_variation"] > 0.1


@pytest.mark.slow
def test_a_wrong_residual_is_seen_by_pairs_and_not_by_first_tokens(prove):
    words = ["pair=toy_e", "acceptance=block", "task.fault=block_token_residual"]
    _, proof, _ = prove(*words, "task.tokens=500000", "task.length=64")
    assert {"exact bench", "pairs"} <= sees(proof)
    assert "first tokens of rounds" not in sees(proof)
    _, proof, _ = prove(*words, "task.tokens=12800")
    assert sees(proof) == {"exact bench"}


@pytest.mark.slow
def test_overlapping_pairs_have_wrong_p_values():
    """On the same million tokens, by the p-values over parts of them."""
    parts = decoder(iid_model([1 / 3, 2 / 3]), iid_model([2 / 3, 1 / 3]), max_tokens=64)
    sample, rows = draw(parts, PROMPT, 1_000_000 // 64), np.array([[1 / 3, 2 / 3]] * 2)
    right, wrong = (
        {one.name: one.p_value for one in examined(sample, rows, True, overlapping=overlapping)}
        for overlapping in (False, True)
    )
    name = "p-values of pairs, Kolmogorov-Smirnov"
    assert min(right.values()) > 1e-5
    assert wrong[name] < 1e-10


# --- what is refused --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["task.fault=nothing"], "task.fault must be one of: resample_from_target, "),
        (["task.fault=scalar_uniform", "acceptance=block"], "task.fault must be one that block can have, got"),
        (["task.fault=accept_all", "acceptance=gumbel"], "task.fault must be one that gumbel can have, got"),
        (["task.fault=accept_all", "drafting=none"], "task.fault must be one that plain can have, got 'accept_all'"),
        (["task.tokens=15"], "task.tokens must be in [length = 16, 20000000], got 15"),
        (["task.length=7"], "task.length must be 8 or more, got 7"),
        (["task.alpha=0"], "task.alpha must be in (0, 1), got 0.0"),
    ],
)
def test_bad_input_is_one_sentence_before_any_forward_pass(words, sentence, prove, monkeypatch):
    def forward(*_):
        raise AssertionError("a forward pass")

    monkeypatch.setattr("specfw.models.iid.Iid.load", forward)
    status, proof, said = prove("pair=iid", *words)
    assert (status, proof) == (2, None)
    (line,) = said.err.strip().splitlines()
    assert line.startswith(f"specfw: {sentence}")


def test_a_fault_is_no_key_of_generate(prove, capsys):
    assert main(["pair=iid", "task.fault=accept_all"]) == 2
    assert "task.fault is not a key" in capsys.readouterr().err


def test_wrong_drafts_need_a_drafter_model():
    fault = FAULTS["greedy_draft_soft_q"]
    assert fault.fits_drafting(ModelDrafting())
    assert not fault.fits_drafting(NoDrafting())
    assert FAULTS["accept_all"].fits_drafting(ModelDrafting())
    plain = {name for name, fault in FAULTS.items() if fault.fits_drafting(NoDrafting())}
    assert plain == {"argmax_text", "overlapping_pairs"}


# --- the power arm ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("fault", "tokens"), [("shared_uniform", 320), ("shared_noise", 640)])
def test_a_fault_that_is_not_seen_says_how_many_tokens_it_takes(fault, tokens, prove, only):
    """At that many it is seen by the sample, and at a tenth of it it is not."""
    only(fault)
    at = ["pair=iid", "acceptance=stochastic"]
    status, proof, said = prove(*at, f"task.tokens={tokens}", "task.power=true")
    (seen,) = proof["power"]
    assert (status, seen["by"], seen["by_run"]) == (0, [], {})
    assert "not seen" in said.err
    assert str(seen["would_need"]) in said.err
    assert "faults_seen=0/1" in proof["line"]
    for size, expected in ((seen["would_need"], True), (seen["would_need"] // 10, False)):
        _, proof, _ = prove(*at, f"task.fault={fault}", f"task.tokens={size}")
        assert {"first tokens of rounds", "pairs"} & sees(proof) == (
            {"first tokens of rounds", "pairs"} if expected else set()
        )


@pytest.mark.parametrize(
    ("fault", "at", "words"),
    [
        (
            "shared_uniform",
            ["pair=toy_a", "acceptance=stochastic"],
            "no sample of this pair",
        ),  # one token in the residual
        ("rows_one_late", ["pair=iid", "acceptance=stochastic"], "no sample of this pair"),  # every row is the same
        ("no_support_guard", ["pair=iid", "acceptance=stochastic"], "no sample of this pair"),
        ("overlapping_pairs", ["pair=iid", "acceptance=stochastic"], "unknown"),
    ],
)
def test_a_fault_that_no_sample_sees(fault, at, words, prove, only):
    only(fault)
    _, proof, said = prove(*at, "task.tokens=160", "task.power=true")
    (seen,) = proof["power"]
    assert (seen["by"], seen["would_need"]) == ([], None)
    assert words in said.err


def test_a_fault_that_is_seen_says_by_what(prove, only):
    only("accept_all")
    status, proof, said = prove("pair=iid", "acceptance=stochastic", "task.tokens=1600", "task.power=true")
    (seen,) = proof["power"]
    assert status == 0
    assert {"lengths", "closed_form"} <= set(seen["by_run"])
    assert "first tokens of rounds, chi-square" in seen["by"]
    assert all(0 < tokens < 1600 for tokens in seen["by_run"].values())
    assert "faults_seen=1/1" in said.out


def test_every_fitting_fault_is_tried_and_no_other(prove, monkeypatch):
    tried = []
    monkeypatch.setattr("specfw.verification.proof.Bench._tried", lambda _, fault: tried.append(fault.name))
    monkeypatch.setattr("specfw.tasks.verify.record", lambda _: {})
    monkeypatch.setattr("specfw.tasks.verify.show", lambda *_: None)
    monkeypatch.setattr("specfw.tasks.verify.line", lambda _: "")
    prove("pair=iid", "acceptance=block", "task.tokens=16", "task.power=true")
    fitting = {name for name, fault in FAULTS.items() if fault.fits(rule("block"))}
    assert set(tried) == fitting - {"raw_q", "q_before_filters"}  # this chain has nothing that they could leave out


def test_would_need_takes_the_best_count():
    lone = Count(0.01, 3, 2.0)
    assert would_need([lone], 1e-4) == pytest.approx(2 * 56.5 / 0.01, rel=1e-3)
    assert would_need([lone, Count(0.1, 3, 2.0)], 1e-4) == pytest.approx(2 * 56.5 / 0.1, rel=1e-3)
    assert would_need([Count(0.0, 3, 2.0), Count(1e-17, 3, 2.0)], 1e-4) is None
    assert would_need([], 1e-4) is None


def test_effects_are_those_of_the_published_control():
    """Drawing from the target on toy B emits (1/3, 4/9, 2/9): n/9 in T3 of the rules' design."""
    pair = iid([1 / 2, 1 / 3, 1 / 6], [1 / 6, 1 / 3, 1 / 2], 1)
    found = FAULTS["resample_from_target"].enumerate(rule("stochastic"), pair)
    assert exact_effects(found.emitted, pair)[0] == pytest.approx(1 / 9)
    right = enumerate_rule(rule("stochastic"), pair)
    assert exact_effects(right.emitted, pair) == pytest.approx((0, 0), abs=1e-15)


# --- the record -------------------------------------------------------------------------------------------------

LINE = re.compile(
    r"\[Proof\] rule=[a-z-]+ verdict=(passed|failed) fault=(none|[a-z_]+) tokens=\d+ exact_tv=(-|\d\S*) "
    r"smallest_p=\d\S* of=\d+ faults_seen=\d+/\d+"
)


def test_the_record_and_the_line_have_their_shape(prove, only):
    only("shared_noise")
    _, proof, said = prove("pair=iid", "acceptance=stochastic", "task.tokens=160", "task.power=true")
    assert LINE.fullmatch(proof["line"])
    assert said.out == proof["line"] + "\n"
    assert set(proof) == {*Proof._fields, "verdict", "rejected_by", "line"}
    assert set(proof["exact"]) == {"draft_tokens", "total_variation", "impossible", "expected_accepted"}
    assert {frozenset(one) for one in proof["tests"]} == {
        frozenset({"name", "p_value", "statistic", "degrees", "observations"})
    }
    assert {frozenset(one) for one in proof["promises"]} == {frozenset({"name", "held", "words"})}
    assert set(proof["power"][0]) == {"fault", "what", "by", "by_run", "tokens", "would_need", "exact"}
    page = (DOCS / "log-schema.md").read_text().partition("## proof.json")[2].partition("\n## ")[0]
    explained = set(re.findall(r"`([^`]+)`", re.sub(r"```.*?```", "", page, flags=re.DOTALL)))
    assert set(proof) | set(proof["exact"]) | set(proof["tests"][0]) | set(proof["power"][0]) <= explained


def test_the_same_seed_gives_the_same_proof(prove):
    words = ["pair=markov", "acceptance=block", "task.tokens=160", "seed=3"]
    assert prove(*words)[1] == prove(*words)[1]
    assert prove(*words)[1]["tests"] != prove(*words[:-1])[1]["tests"]


# --- the pages ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["stochastic", "block"])
def test_the_page_says_how_soon_a_run_sees_every_fault(name):
    """Of the pair that is shipped; `python docs/fault_table.py docs/verification.md` makes it anew."""
    page = (DOCS / "verification.md").read_text()
    made = page.partition("<!-- generated by docs/fault_table.py -->")[2].partition("<!-- end -->")[0]
    rows = re.findall(r"^\| `(\w+)`(?= )", made.partition(f"| `{name}` with")[2].partition("\n\n")[0], re.MULTILINE)
    assert set(rows) == {fault.name for fault in FAULTS.values() if fault.fits(rule(name)) and not fault.overlapping}
    for role in ("target", "drafter"):
        assert f"{role} `{digests(ZOO[f'zoo:{role}'])['model.safetensors'][:16]}`" in made


def test_the_page_has_every_fault():
    assert set(FAULTS) <= set(re.findall(r"`(\w+)`", (DOCS / "verification.md").read_text()))


# --- what it found -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("acceptance", ["stochastic", "block"])
def test_a_few_survivors_of_a_large_vocabulary(acceptance, prove):
    """The bonus token stands on other ids than the row before it."""
    words = ["sampler.top_k.k=20", "sampler.temperature.value=1.5", "task.tokens=320"]
    status, proof, said = prove(f"acceptance={acceptance}", *words)
    assert (status, proof["rejected_by"]) == (0, []), said.err


def test_block_survival_stays_in_bounds_where_rows_are_equal_up_to_rounding():
    """A remainder as small as rounding must not make a chance above 1, which a run would refuse."""
    random, count = np.random.default_rng(0), 4000
    q = random.dirichlet([1] * 4, count)
    p = q + 1.7e-7 * random.random((count, 1)) * np.array([1, -1, 0, 0])
    first = np.broadcast_to([0.5, 0.5, 0, 0], (count, 4))
    target, draft = (Dense(mx.array(np.stack(rows, 1).astype(np.float32))) for rows in ([first, p, p], [first, q]))
    tokens, lengths = mx.array([[0, 1]] * count, dtype=mx.int32), mx.full((count,), 2, dtype=mx.int32)
    assert np.array(rule("block").law(Block(target, draft, tokens, lengths))).max() <= 1


# --- promises ---------------------------------------------------------------------------------------------------


def broken(parts):
    """The promises that a decoder breaks."""
    short = replace(parts, max_tokens=16)
    found = promises(short, PROMPT, draw(short, PROMPT, 8), chain(temperature={"value": 0}))
    return {one.name: one.words for one in found if not one.held}


@dataclass
class MoreThanOne:
    """A model whose logits depend on how many tokens it is fed at once, as a library's may."""

    inner: LanguageModel

    def __getattr__(self, name):
        return getattr(self.inner, name)

    def forward(self, tokens, cache):
        logits = self.inner.forward(tokens, cache)
        shift = mx.array([0.5, 0.0, 0.0, 0.0]) if tokens.shape[1] > 1 else mx.zeros(4)
        return logits + shift


def test_a_right_decoder_breaks_nothing():
    for name in RULES:
        assert broken(decoder(iid_model(P), iid_model(Q), name)) == {}


def test_a_greedy_text_that_depends_on_the_block_is_reported_with_its_gap():
    parts = decoder(MoreThanOne(iid_model([0.3, 0.4, 0.2, 0.1])), iid_model(Q), "stochastic")
    words = broken(parts)["equality at temperature 0"]
    assert re.fullmatch(r"sample 0 differs at token 0: 0, 1; the two largest logits there are 0\.\d+ apart", words)


def test_a_drafting_that_ignores_the_seed_is_noticed():
    other = np.random.default_rng(0)

    def opened(drafting, start):
        return ModelSession(
            drafting, start, draw=lambda row, *_: row.draw(mx.array(other.random((*row.probs.shape[:2], 2))))
        )

    parts = decoder(iid_model(P), iid_model(Q), "stochastic")
    wrong = replace(parts, drafting=Misdrafting(inner=ModelDrafting(), opened=opened))
    assert set(broken(wrong)) == {"the same seed gives the same text"}


def seeded(right, seed):
    """A rule that draws on noise of another seed."""
    return replaced(right, decide=lambda _, block, noise: right.decide(block, replace(noise, seed=seed(noise.seed))))


def test_a_rule_that_ignores_the_seed_is_noticed():
    wrong = replace(
        decoder(iid_model(P), iid_model(Q), "sampler_match"), rule=seeded(rule("sampler_match"), lambda _: 0)
    )
    assert set(broken(wrong)) == {"another seed gives another text"}


def test_a_rule_on_noise_of_its_own_is_no_plain_decoding():
    mine = seeded(rule("sampler_match"), lambda seed: seed + 1)
    wrong = replace(decoder(iid_model(P), iid_model(Q), "sampler_match"), rule=mine)
    words = broken(wrong)
    assert set(words) == {"equality with plain decoding at the same seed"}
    assert re.fullmatch(
        r"sample 0 differs at token \d+: \d, \d", words["equality with plain decoding at the same seed"]
    )


@pytest.mark.parametrize("asserts", [True, False])
def test_a_cache_that_is_not_rewound_fails_cleanly(asserts, prove, monkeypatch):
    """Whether or not the loop's own assertions are compiled in."""
    from specfw.models._toy import ToyCache

    if not asserts:
        monkeypatch.setattr(Generation, "_rewind", lambda one, count, kept: one._rounds.cache.rewind(count + 1 - kept))
    monkeypatch.setattr(ToyCache, "rewind", lambda *_: None)
    status, proof, said = prove("pair=iid", "acceptance=stochastic", "task.tokens=160")
    assert (status, proof) == (1, None)
    assert said.err.strip().splitlines()[-1].startswith("specfw: cache lengths")


# --- statistics -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("words", "test"), [("pearson", chi_square), ("log-likelihood", g_test)])
def test_both_statistics_are_those_of_a_library(words, test):
    from scipy.stats import power_divergence

    probs, counts = np.array(P), np.array([25, 33, 66, 76])
    expected = power_divergence(counts, probs * counts.sum(), lambda_=words)
    fit = test(counts, probs)
    assert (fit.statistic, fit.p_value) == pytest.approx((expected.statistic, expected.pvalue))
    assert (fit.degrees, fit.observations) == (3, 200)


def test_an_impossible_count_rejects_and_rare_cells_are_pooled():
    assert g_test([5, 5, 1], [0.5, 0.5, 0]).p_value == 0
    assert g_test([50, 45, 3, 2], [0.5, 0.45, 0.03, 0.02]).degrees == 2
    assert g_test([0, 100], [0.1, 0.9]).statistic == pytest.approx(200 * np.log(1 / 0.9))


@pytest.mark.parametrize(("degrees", "shift"), [(1, 48.7), (2, 53.2), (3, 56.5)])
def test_noncentrality_is_that_of_the_design(degrees, shift):
    assert noncentrality(degrees, 1e-4, 0.999) == pytest.approx(shift, abs=0.05)


# --- false alarms -----------------------------------------------------------------------------------------------

RUNS, SEQUENCES, LENGTH = 1000, 16, 48


class Parts(Observer):
    """The calibration of many runs that are decoded together, `SEQUENCES` rows each."""

    def __init__(self, setting):
        self._runs = [Calibration(sorting=True).open(setting) for _ in range(RUNS)]
        self.trace = self._runs[0].trace
        self.worst = 0.0

    def observe(self, outcome, trace):
        for place, run in enumerate(self._runs):
            rows = slice(place * SEQUENCES, (place + 1) * SEQUENCES)
            mine = {name: value[rows] for name, value in outcome._asdict().items() if isinstance(value, np.ndarray)}
            run.observe(outcome._replace(**mine), [values[rows] for values in trace])
            logs = [check.log_e_value for check in run.checks().values()]
            self.worst = max(self.worst, log_mean_exp(np.array(logs)))

    def numbers(self):
        return {}


@pytest.mark.slow
@pytest.mark.parametrize("acceptance", RULES)
def test_right_runs_are_rejected_as_often_as_promised(acceptance):
    """1,000 runs of 768 tokens: samples of one seed share no draw, as different seeds share none."""
    from scipy.stats import binom, kstest

    parts = decoder(iid_model(P), iid_model(Q), acceptance, 3, seed=17, max_tokens=LENGTH)
    runs = Parts(Setting(rule=parts.rule, point_mass=False))
    whole = draw(parts, PROMPT, RUNS * SEQUENCES, [runs])
    found: dict[str, list[float]] = {}
    for place in range(RUNS):
        rows = slice(place * SEQUENCES, (place + 1) * SEQUENCES)
        cut = {name: getattr(whole, name)[rows] for name in ("tokens", "previous", "place", "p", "transform")}
        for one in examined(whole._replace(**cut), np.array([P] * 4), parts.rule.stops_at_rejection):
            found.setdefault(one.name, []).append(one.p_value)
    for name in (
        "first tokens of rounds, chi-square",
        "all tokens, G",
        "pairs, chi-square",
        "neighbours, lag-1 correlation",
    ):
        values = np.array(found[name])
        assert len(values) == RUNS
        assert kstest(values, "uniform").pvalue > 1e-3, name
        for level in (0.05, 0.01):
            low, high = binom.interval(0.999, RUNS, level)
            assert low <= (values < level).sum() <= high, (name, level)
    assert runs.worst < np.log(1e6)


@pytest.mark.slow
def test_a_million_tokens_of_a_markov_pair_are_drawn_and_examined():
    target, drafter = (markov_model(rows) for rows in MARKOV)
    parts = decoder(target, drafter, "stochastic", max_tokens=64)
    sample = draw(parts, PROMPT, 1_000_000 // 64)
    tests = examined(sample, rows_by_last_token(target, chain()), True)
    assert sample.size == 1_000_000
    assert len(tests) == 16
    assert min(one.p_value for one in tests) > 1e-4 / len(tests)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["pair=iid", "task.fault=raw_q"], "task.fault must be one that changes something under this draft_sampler"),
        (["pair=markov", "task.fault=rows_one_late", "drafting=none"], "task.fault must be one that this drafting"),
        (["pair=iid", "task.tokens=1000000000000"], "task.tokens must be in [length = 16, 20000000]"),
    ],
)
def test_what_could_change_nothing_or_never_fit_is_refused(words, said, prove):
    status, proof, spoken = prove("acceptance=stochastic", *words)
    assert (status, proof, spoken.out) == (2, None, "")
    assert said in spoken.err


def test_a_chain_without_a_temperature_and_a_controller_that_measures(prove):
    """Neither is anything special to a run, so it is nothing special here."""
    words = ["sampler.order=[top_k,top_p]", "sampler.top_k.k=3", "controller=cost"]
    status, proof, _ = prove("pair=iid", "acceptance=block", "task.tokens=640", *words)
    assert status == 0
    assert proof["verdict"] == "passed"
