from specfw.acceptance.argmax_against_argmax import ArgmaxAgainstArgmax
from specfw.acceptance.greedy_argmax import GreedyArgmax
from specfw.acceptance.sampler_match import SamplerMatch
from specfw.acceptance.stochastic import Stochastic
from specfw.resolution import VARIABLE, Choice, Circumstances, choose, resolve

import pytest

ALL_WELL = Circumstances(
    greedy_target=False, proposes=True, reports_distribution=True, shares_noise=True, allow_lossy=False
)
RULES = ["stochastic", "sampler_match", "argmax_against_argmax", "greedy_argmax"]


def ran(node, environment=None, argument=None, **circumstances):
    if isinstance(node, str):
        node = {"name": node}
    choice = resolve(choose(node, environment or {}, argument), ALL_WELL._replace(**circumstances))
    return choice.rule.id, choice.decided_by


def test_auto_means_sampler_match():
    assert ran("auto") == ("sampler-match", "auto")


@pytest.mark.parametrize("word", ["1", "true", "yes", "on", " ON ", "True"])
def test_the_variable_turns_auto_into_stochastic(word):
    assert ran("auto", {VARIABLE: word}) == ("stochastic", "environment")


@pytest.mark.parametrize("word", ["1", "yes"])
def test_a_written_rule_is_never_changed_by_1(word):
    assert ran("sampler_match", {VARIABLE: word}) == ("sampler-match", "configuration")


@pytest.mark.parametrize("word", ["0", "false", "No", " off"])
@pytest.mark.parametrize("name", ["auto", *RULES])
def test_0_turns_every_rule_into_sampler_match(name, word):
    assert ran(name, {VARIABLE: word}) == ("sampler-match", "environment")


@pytest.mark.parametrize("name", RULES)
@pytest.mark.parametrize("word", ["0", "1", None])
def test_a_greedy_target_runs_greedy_argmax(name, word):
    rule, decided_by = ran(name, {VARIABLE: word} if word else {}, greedy_target=True)
    assert rule == "greedy-argmax"
    assert decided_by == ("configuration" if name == "greedy_argmax" and word != "0" else "greedy_target")


@pytest.mark.parametrize("word", ["", "2", "ja", "stochastic"])
def test_any_other_value_is_an_error(word):
    with pytest.raises(ValueError, match=rf"{VARIABLE} must be one of: 1, true, .*off; got '{word}'"):
        ran("stochastic", {VARIABLE: word})


@pytest.mark.parametrize("argument", ["stochastic", {"name": "stochastic"}, Stochastic()])
def test_an_argument_beats_the_variable(argument):
    assert ran("sampler_match", {VARIABLE: "0"}, argument) == ("stochastic", "argument")


def test_an_argument_of_auto_is_resolved():
    assert ran("stochastic", {}, "auto") == ("sampler-match", "auto")


def test_stochastic_without_a_distribution_keeps_the_origins_id():
    found = ran("stochastic", reports_distribution=False)
    assert found == ("sampler-match-no-proposal-distribution", "no_proposal_distribution")


@pytest.mark.parametrize("node", [{"name": "stochastic", "strict": True}, {"name": "auto", "strict": True}])
def test_strict_refuses_a_drafter_without_distribution(node):
    with pytest.raises(ValueError, match=r"acceptance.strict=true.* needs the drafter's proposal distribution"):
        ran(node, {VARIABLE: "1"}, reports_distribution=False)


def test_the_origins_id_is_refused_where_it_would_not_be_true():
    name = "sampler_match_no_proposal_distribution"
    with pytest.raises(ValueError, match=r"this one does: write acceptance=sampler_match"):
        ran(name)
    assert ran(name, reports_distribution=False) == ("sampler-match-no-proposal-distribution", "configuration")


def test_sampler_match_needs_no_distribution():
    assert ran("sampler_match", reports_distribution=False) == ("sampler-match", "configuration")


@pytest.mark.parametrize("name", RULES)
def test_nothing_drafted_runs_plain(name):
    assert ran(name, proposes=False) == ("plain", "no_drafter")
    assert ran(name, proposes=False, greedy_target=True) == ("plain", "no_drafter")


def test_lossy_rules_need_leave():
    with pytest.raises(ValueError, match=r"argmax_against_argmax changes the distribution.*allow_lossy must be true"):
        ran("argmax_against_argmax")
    assert ran("argmax_against_argmax", allow_lossy=True) == ("argmax-against-argmax", "configuration")


def test_greedy_argmax_is_refused_where_the_target_samples():
    """B41: a sampled request answered greedily."""
    with pytest.raises(ValueError, match=r"greedy_argmax needs a greedy target"):
        ran("greedy_argmax")


def test_unknown_rule():
    with pytest.raises(ValueError, match=r"acceptance must be one of: .*stochastic.*; got 'nope'"):
        ran("nope")


def test_the_node_of_record_can_be_built_again():
    for rule in (Stochastic(strict=True), SamplerMatch(), GreedyArgmax(), ArgmaxAgainstArgmax()):
        node = Choice(rule, "configuration").node()
        assert choose(node, {}).rule == rule
