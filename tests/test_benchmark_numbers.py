"""The arithmetic of a benchmark on hand-made times: medians, intervals, the bound, the flip point."""

import math
from statistics import median

from specfw.benchmark import report as reporting
from specfw.benchmark.arms import Arm, Counts, Timed
from specfw.benchmark.line_up import NO_SPEEDUP, LineUp
from specfw.benchmark.measuring import Measured, Taken
from specfw.benchmark.numbers import Costs, Ratio, acceptance, mean_length, paired, tokens_of_round
from specfw.benchmark.report import Ran, report
from specfw.benchmark.tables import sentences

import pytest
from scipy import stats

COSTS = Costs({1: 0.010, 2: 0.012, 5: 0.020}, {1: 0.001, 2: 0.002, 5: 0.002})


class Paper(Arm):
    """An arm that nobody decodes."""

    def decode(self, prompt, seed, clock):
        raise NotImplementedError


def arm(name, drafted=0, engine="specfw", controller=None):
    rule = name.split()[0]
    return Paper(name=name, engine=engine, rule=rule, num_draft_tokens=drafted, controller=controller)


def test_a_ratio_is_paired_in_logarithms():
    ours, theirs = [10.0, 12.0, 9.0, 11.0], [5.0, 5.0, 6.0, 5.5]
    found = paired(ours, theirs)
    logs = [math.log(one / other) for one, other in zip(ours, theirs, strict=True)]
    expected = stats.ttest_1samp(logs, 0).confidence_interval(0.95)
    assert math.log(found.estimate) == pytest.approx(sum(logs) / 4)
    assert (found.low, found.high) == pytest.approx((math.exp(expected.low), math.exp(expected.high)))


def test_a_constant_ratio_has_no_width_whatever_the_machine_did():
    assert paired([2.0, 200.0, 20.0], [1.0, 100.0, 10.0]) == pytest.approx((2, 2, 2))


def test_one_repeat_has_no_interval_and_decides_nothing():
    found = paired([3.0], [2.0])
    assert found.estimate == pytest.approx(1.5)
    assert math.isnan(found.low)
    assert math.isnan(found.high)
    assert not found.decided


@pytest.mark.parametrize(("low", "high", "decided"), [(1.01, 2, True), (0.5, 0.99, True), (0.9, 1.1, False)])
def test_what_an_interval_decides(low, high, decided):
    assert Ratio(1.0, low, high).decided is decided


def test_the_bound_and_the_cost_of_a_round():
    assert COSTS.round_s({4: 1}) == pytest.approx(0.020 + 4 * 0.001)
    assert COSTS.round_s({0: 1}) == 0.010
    assert COSTS.bound(3.0, {4: 1}) == pytest.approx(3.0 * 0.010 / 0.024)
    assert Costs({1: 0.010}, {}).round_s({0: 1}) == 0.010


@pytest.mark.parametrize("drafted", [1, 2, 8])
@pytest.mark.parametrize("chance", [0.0, 0.3, 0.9, 1.0])
def test_acceptance_undoes_the_tokens_of_a_round(drafted, chance):
    tokens = tokens_of_round(chance, {drafted: 1})
    assert tokens == pytest.approx((1 - chance ** (drafted + 1)) / (1 - chance) if chance < 1 else drafted + 1)
    assert acceptance(tokens, {drafted: 1}) == pytest.approx(chance, abs=1e-12)


def test_acceptance_where_everything_or_nothing_pays():
    assert acceptance(0.5, {3: 1}) == 0.0
    assert acceptance(4.001, {3: 1}) is None


def test_the_flip_point_breaks_even():
    chance = COSTS.flip({4: 1})
    assert COSTS.bound(tokens_of_round(chance, {4: 1}), {4: 1}) == pytest.approx(1)
    assert COSTS.flip({1: 1}) == pytest.approx(0.3)  # 1 + a = (0.012 + 0.001) / 0.010
    slower = COSTS.flip({4: 1}, share=0.8)
    assert 0.8 * COSTS.bound(tokens_of_round(slower, {4: 1}), {4: 1}) == pytest.approx(1)
    assert COSTS.flip({1: 1}, share=0.1) is None


def test_rounds_of_several_lengths_cost_and_yield_their_mean():
    """Three of K = 0 and one of K = 2, whose target pass lies between the measured ones."""
    rounds = {0: 3, 2: 1}
    between = 0.012 + (0.020 - 0.012) / 3
    assert mean_length(rounds) == pytest.approx(0.5)
    assert COSTS.round_s(rounds) == pytest.approx((3 * 0.010 + between + 2 * 0.001) / 4)
    assert tokens_of_round(0.5, rounds) == pytest.approx((3 + 1.75) / 4)
    assert acceptance((3 + 1.75) / 4, rounds) == pytest.approx(0.5)
    assert acceptance(1.51, rounds) is None
    assert acceptance(1.0, {0: 7}) == 0.0


# --- a whole report ---------------------------------------------------------------------------------------------


def measured(seconds, counts, repeats=3):
    """Times by arm and repeat, 10 tokens each; peak memory is 1, 2, .. bytes."""

    def timed(name, repeat):
        return Timed(seconds[name][repeat], 10, counts.get(name, Counts()), (), lengths=LENGTHS.get(name, ()))

    taken = [
        Taken(repeat + 1, place, name, repeat, timed(name, repeat), repeat + 1)
        for repeat in range(repeats)
        for place, name in enumerate(seconds)
    ]
    costs = [Costs({1: c, 2: 2 * c, 5: 2 * c}, {1: c / 10, 2: c, 5: c}) for c in (0.3, 0.1, 0.2)][:repeats]
    split = {"stochastic K=4": Timed(1.0, 10, Counts(), (), (0.2, 0.6, 0.4), 4)}
    return Measured(tuple(taken), tuple(costs), split, repeats, interrupted=False)


PLAIN = {"plain": [2.0, 2.0, 4.0]}
FAST = {"stochastic K=4": [1.0, 1.1, 1.9]}
COUNTS = {"stochastic K=4": Counts(rounds=4, proposed=16, tested=10, accepted=6, emitted=10)}
LENGTHS = {"stochastic cost": (4, 0, 1, 0)}
RAN = Ran({"target": "toy"}, (3,), ())


def reported(seconds, arms, speedup=None, diagnosed=None, repeats=3):
    line_up = LineUp(tuple(arms), {}, diagnosed)
    return report(line_up, measured(seconds, COUNTS, repeats), RAN, speedup=speedup)


def test_an_arm_is_summed_up():
    found = reported(PLAIN | FAST, [arm("plain"), arm("stochastic K=4", 4)])
    one = found.found["stochastic K=4"]
    numbers = one.numbers()
    assert numbers["median_s"] == median(FAST["stochastic K=4"])
    assert numbers["tokens_per_s"] == pytest.approx(10 / 1.1)
    assert found.speedup("stochastic K=4").estimate == pytest.approx((2 / 1 * 2 / 1.1 * 4 / 1.9) ** (1 / 3))
    assert numbers["per_position_acceptance"] == pytest.approx(18 / 30)
    assert numbers["mean_accepted_len"] == pytest.approx(18 / 12)
    assert numbers["mean_tokens_per_round"] == pytest.approx(2.5)
    assert numbers["peak_memory_bytes"] == 3
    assert numbers["phases"] == {"draft_s": 0.05, "verify_s": pytest.approx(0.15), "decide_s": 0.1}
    bound = 2.5 * 0.2 / (0.4 + 4 * 0.02)  # of the medians over repeats
    assert numbers["bound"] == pytest.approx(bound)
    assert numbers["share_of_bound"]["plain"] == pytest.approx(found.speedup("stochastic K=4").estimate / bound)


def test_what_pays_is_recommended_with_the_point_where_it_would_not():
    found = reported(PLAIN | FAST, [arm("plain"), arm("stochastic K=4", 4)])
    advice = found.recommendation
    assert (advice.choice, advice.best, advice.decided) == ("stochastic K=4", "stochastic K=4", True)
    assert advice.expected_tokens_per_s == pytest.approx(2.5 / (0.4 + 4 * 0.02))
    assert advice.tokens_per_s == pytest.approx(10 / 1.1)
    assert advice.low < advice.tokens_per_s < advice.high
    assert advice.acceptance == pytest.approx(acceptance(2.5, {4: 1}))
    assert tokens_of_round(advice.flip, {4: 1}) == pytest.approx(0.48 / 0.2)
    share = found.found["stochastic K=4"].share("plain")
    assert tokens_of_round(advice.flip_as_measured, {4: 1}) == pytest.approx(0.48 / 0.2 / share)


def test_where_the_length_changes_all_rounds_count():
    """Rounds of 4, 0, 1 and 0 draft tokens gave 10 tokens; the arm at a constant K is slower."""
    times = PLAIN | {"stochastic K=4": [1.2, 1.3, 2.0], "stochastic cost": FAST["stochastic K=4"]}
    arms = [arm("plain"), arm("stochastic K=4", 4), arm("stochastic cost", 16, controller={"name": "cost"})]
    found = reported(times, arms)
    one, advice = found.found["stochastic cost"], found.recommendation
    assert one.rounds == {4: 3, 0: 6, 1: 3}
    assert one.numbers()["mean_num_draft_tokens"] == pytest.approx(1.25)
    assert one.numbers()["mean_tokens_per_round"] == pytest.approx(2.5)
    cost = ((0.4 + 4 * 0.02) + 2 * 0.2 + (0.4 + 0.02)) / 4
    assert one.bound == pytest.approx(2.5 * 0.2 / cost)
    assert (advice.choice, advice.best) == ("stochastic cost", "stochastic cost")
    assert advice.expected_tokens_per_s == pytest.approx(2.5 / cost)
    assert advice.acceptance is None, "2.5 tokens a round of 1.25 draft tokens in the mean"
    assert tokens_of_round(advice.flip, one.rounds) == pytest.approx(cost / 0.2)
    (words,) = (words for words in sentences(found) if words.startswith("recommendation"))
    assert words.startswith("recommendation: the configured drafter with stochastic, controller = cost; ")


def test_where_drafting_is_slower_plain_decoding_is_recommended():
    slow = {"stochastic K=4": [3.0, 3.1, 6.2]}
    advice = reported(PLAIN | slow, [arm("plain"), arm("stochastic K=4", 4)]).recommendation
    assert (advice.choice, advice.best, advice.decided) == ("plain", "stochastic K=4", True)
    assert advice.expected_tokens_per_s == pytest.approx(1 / 0.2)
    assert advice.tokens_per_s == pytest.approx(5.0)


def test_an_interval_that_includes_1_is_not_decided():
    even = {"stochastic K=4": [1.9, 2.3, 3.9]}
    advice = reported(PLAIN | even, [arm("plain"), arm("stochastic K=4", 4)]).recommendation
    assert not advice.decided


def test_arms_of_another_engine_are_compared_and_never_recommended():
    times = PLAIN | FAST | {"mlx_lm_plain": [4.0, 4.0, 8.0], "mlx_lm_speculative K=4": [0.1, 0.1, 0.1]}
    foreign = [arm("mlx_lm_plain", engine="mlx-lm"), arm("mlx_lm_speculative K=4", 4, "mlx-lm")]
    found = reported(times, [arm("plain"), *foreign, arm("stochastic K=4", 4)])
    assert found.recommendation.best == "stochastic K=4"
    assert set(found.found["stochastic K=4"].ratios) == {"plain", "mlx_lm_plain", "mlx_lm_speculative K=4"}
    assert set(found.found["mlx_lm_speculative K=4"].ratios) == {"plain", "mlx_lm_plain"}
    assert set(found.found["mlx_lm_plain"].ratios) == {"plain"}
    assert found.found["plain"].ratios["mlx_lm_plain"] == pytest.approx((2, 2, 2))


def test_without_the_plain_arm_there_is_no_speedup():
    found = reported(FAST, [arm("stochastic K=4", 4)])
    assert found.found["stochastic K=4"].ratios == {}
    assert (found.recommendation, found.why_none) == (None, NO_SPEEDUP)
    with pytest.raises(ValueError, match=f"^{NO_SPEEDUP}$"):
        found.speedup("stochastic K=4")


def test_a_speedup_that_is_not_wanted_is_not_there():
    found = reported(PLAIN | FAST, [arm("plain"), arm("stochastic K=4", 4)], speedup=False)
    assert found.found["stochastic K=4"].ratios == {}
    assert found.recommendation is None


def test_the_cost_of_diagnostics_is_how_many_times_as_long_it_takes():
    times = PLAIN | FAST | {"stochastic K=4 with diagnostics": [2 * time for time in FAST["stochastic K=4"]]}
    arms = [arm(name, 4 * ("K=4" in name)) for name in times]
    found = reported(times, arms, diagnosed=("stochastic K=4 with diagnostics", "stochastic K=4"))
    assert found.diagnostics == pytest.approx((2, 2, 2))
    assert found.recommendation.best == "stochastic K=4"


def test_an_arm_with_diagnostics_is_never_recommended():
    times = PLAIN | FAST | {"stochastic K=4 with diagnostics": [0.5, 0.5, 0.5]}
    arms = [arm(name, 4 * ("K=4" in name)) for name in times]
    found = reported(times, arms, diagnosed=("stochastic K=4 with diagnostics", "stochastic K=4"))
    assert found.recommendation.best == "stochastic K=4"


def test_costs_are_medians_over_the_repeats():
    typical = reporting.typical([Costs({1: one, 2: 2 * one}, {1: 1 / one}) for one in (3.0, 1.0, 2.0)])
    assert typical == Costs({1: 2.0, 2: 4.0}, {1: 0.5})


def test_counts_are_added_by_name():
    assert Counts(1, 2, 3, 4, 5).plus(Counts(10, 20, 30, 40, 50)) == Counts(11, 22, 33, 44, 55)
    one = Timed(1.0, 2, Counts(1), ((1, 2),), (1.0, 2.0, 3.0), 4)
    both = Timed(3.0, 5, Counts(2), ((1, 2), (3,)), (2.0, 4.0, 6.0), 9)
    assert one.plus(Timed(2.0, 3, Counts(1), ((3,),), (1.0, 2.0, 3.0), 5)) == both
