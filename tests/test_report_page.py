"""The page of a study: what its figures show, that nothing of a record is more than text, and that it stays small."""

import base64
import hashlib
import json
import math
import re
import shlex
import time
from collections import Counter
from html.parser import HTMLParser

from specfw.study import page, sheet, text_of_run, told
from specfw.study.figures import acceptance, closed_forms, distortion, lengths, places, scoreboard, speedup
from specfw.study.figures.apart import sideways
from specfw.study.figures.figure import series
from specfw.study.gathered import Other, Study
from specfw.study.gathering import gather

import pytest
from hydra.core.override_parser.overrides_parser import OverridesParser
from study_records import HOSTILE, changed, hostile, many, recorded, started_of

pytest.importorskip("matplotlib")
pytest.importorskip("jinja2")

VOID = {"meta", "input", "link", "br", "circle", "path", "use", "rect"}


@pytest.fixture(scope="module")
def record(tmp_path_factory):
    return recorded(tmp_path_factory.mktemp("record") / "run", "seed=3", "diagnostics.closed_forms.sorting=true")


def study_of(record, folder, *changes, **more):
    for number, change in enumerate(changes):
        changed(record, folder / str(number), **change)
    return gather([str(folder)])._replace(**more)


def at_temperature(value, **summary):
    return {"summary": summary, "started": {"config.sampler.temperature.value": value}}


class Page(HTMLParser):
    """Elements of a page, and whether it is well formed."""

    def __init__(self, text):
        super().__init__()
        assert page.LOST not in text
        self.open, self.elements, self.words = [], [], []
        self.feed(text)
        assert not self.open

    def handle_starttag(self, tag, attrs):
        self.elements.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.elements.append((tag, dict(attrs)))

    def handle_endtag(self, tag):
        if tag not in VOID:
            assert self.open.pop() == tag

    def handle_data(self, data):
        self.words.append(data)

    def every(self, name):
        return [attrs[name] for _, attrs in self.elements if name in attrs]


# --- one file ---------------------------------------------------------------------------------------------------


def test_the_page_asks_nothing_of_a_network_and_runs_its_own_script_alone(record):
    text = page.html(gather([str(record)]))
    shown = Page(text)
    (policy,) = (attrs["content"] for tag, attrs in shown.elements if attrs.get("http-equiv"))
    script = re.search(r"<script>(.*?)</script>", text, re.DOTALL)[1]
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    assert policy.startswith("default-src 'none';")
    assert f"script-src 'sha256-{digest}';" in policy
    assert {tag for tag, _ in shown.elements}.isdisjoint({"link", "img", "iframe", "object", "embed", "base"})
    assert all(href.startswith("#") for href in shown.every("href"))
    assert not [name for _, attrs in shown.elements for name in attrs if name.startswith("on") or name == "src"]
    assert set(re.findall(r"https?://[^\"' ]*", text)) == {"http://www.w3.org/2000/svg"}


def test_the_page_is_well_formed_and_labelled(record, tmp_path):
    study = study_of(record, tmp_path, at_temperature(0.5), at_temperature(1.0, rule="block", stops_at_rejection=False))
    shown = Page(page.html(study))
    assert not [name for name, count in Counter(shown.every("id")).items() if count > 1]
    ids = set(shown.every("id"))
    assert {href.removeprefix("#") for href in shown.every("href")} <= ids
    assert set(shown.every("aria-labelledby")) <= ids
    for tag, attrs in shown.elements:
        if attrs.get("role") in ("region", "group", "img"):
            assert attrs.get("aria-label") or attrs.get("aria-labelledby"), tag
        if tag == "button":
            assert attrs["type"] in ("button", "reset")


@pytest.mark.parametrize("build", [page.html])
def test_the_same_records_give_the_same_page(record, build):
    study = gather([str(record)])
    assert build(study) == build(study)


def test_a_study_of_other_records_alone_has_a_page(record, tmp_path):
    other = Other(tmp_path, "here", "audit", "passed", {"tokens": 3, "named": HOSTILE}, {})
    shown = Page(page.html(Study((str(tmp_path),), (), (other,), (), ())))
    assert any("named" in words for words in shown.words)


# --- strangers --------------------------------------------------------------------------------------------------


def test_whatever_a_record_says_stays_text(record, tmp_path):
    hostile(record, tmp_path / "hostile")
    changed(record, tmp_path / "right")
    study = gather([str(tmp_path)])
    assert len(study.runs) == 2
    text = page.html(study)
    shown = Page(text)
    assert [tag for tag, _ in shown.elements].count("script") == 1
    assert "img" not in {tag for tag, _ in shown.elements}
    assert sum("window.owned=1" in words for words in shown.words) > 10
    assert not [one for one in text if not (one.isprintable() or one in "\n\r\t")]


def test_a_nasty_word_is_text_wherever_it_stands(record, tmp_path):
    """Every string of a record, one after the other in one page."""
    event = started_of(record)
    config = {key: HOSTILE for key, value in _strings(event["config"], "config.") if not key.startswith("config.task")}
    facts = {key: HOSTILE for key, value in _strings(event, "") if not key.startswith(("config", "digest", "event"))}
    changed(record, tmp_path / "0", started=config | facts, tokens={0: {"text": HOSTILE}})
    text = page.html(gather([str(tmp_path)]))
    shown = Page(text)
    assert [tag for tag, _ in shown.elements].count("script") == 1
    assert "\u202e" not in text
    assert "\x1b" not in text


def _strings(tree, path):
    for key, value in tree.items():
        if isinstance(value, dict):
            yield from _strings(value, f"{path}{key}.")
        elif isinstance(value, str):
            yield f"{path}{key}", value


@pytest.mark.parametrize(
    ("path", "nonsense"),
    [
        ("diagnostics.scoreboard", "all"),
        ("diagnostics.scoreboard", {"block": {"mean_accepted_len": "many"}}),
        ("diagnostics.acceptance.by_position", {"proposed": [1], "tested": [2], "accepted": [3]}),
        ("diagnostics.acceptance.by_position", {"proposed": [0], "tested": [0], "accepted": [0]}),
        ("diagnostics.acceptance.by_position.tested", ["x"]),
        ("diagnostics.acceptance.accepted_length_law", [1, 2]),
        ("diagnostics.acceptance.accepted_length_law.variance", [-1.0, 1, 1, 1, 1]),
        ("diagnostics.acceptance.accepted_length_law.expected", [None]),
    ],
)
def test_nonsense_costs_its_own_figure_and_nothing_else(record, tmp_path, path, nonsense):
    study = study_of(record, tmp_path, {"summary": {path: nonsense}})
    drawn = [lengths.draw(study), *places.draw(study), scoreboard.draw(study)]
    without = {one.key for one in drawn if one.svg is None or "Without" in one.note}
    assert without == (
        {"scoreboard"} if "scoreboard" in path else {"lengths"} if "law" in path else {"places", "reached"}
    )


def test_a_figure_that_fails_says_so_and_the_others_stand(record, monkeypatch):
    study = gather([str(record)])
    whole = page.figures(study)
    monkeypatch.setattr(page, "_PARTS", (("acceptance", "A title", lambda _: 1 / 0), *page._PARTS[1:]))
    first, *others = page.figures(study)
    assert first == ("acceptance", "A title", "", None, f"{page.LOST}: ZeroDivisionError: division by zero", *first[5:])
    assert others == whole[1:]
    assert first.why in page.html(study)


def test_a_configuration_of_many_levels_costs_its_own_words_alone(record, tmp_path):
    events = changed(record, tmp_path / "0", started={"config.stop": "deep"}) / "events.jsonl"
    events.write_text(events.read_text().replace('"deep"', "[" * 600 + "]" * 600))
    study = gather([str(tmp_path)])
    assert told.told(study).shared == told._DEEP
    assert told._DEEP in Page(page.html(study)).words


@pytest.mark.parametrize("value", [10**400, True, -1, "warm"])
def test_a_temperature_is_a_number_of_ordinary_size(record, tmp_path, value):
    study = study_of(record, tmp_path, at_temperature(value), at_temperature(2))
    (found,) = closed_forms.draw(study)
    assert [row[0] for row in found.rows] == ["2"]
    Page(page.html(study))


# --- figures ----------------------------------------------------------------------------------------------------


def told_by(svg):
    return re.findall(r'class="mark" role="img" aria-label="([^"]*)"', svg)


def test_marks_stand_on_measured_and_closed_form(record, tmp_path):
    numbers = json.loads((record / "summary.json").read_text())
    found = acceptance.draw(study_of(record, tmp_path, at_temperature(0.5), at_temperature(1.5)))
    assert len(found.rows) == len(told_by(found.svg)) == 2
    rule, configuration, measured, interval, expected, z = found.rows[0]
    assert (rule, configuration) == ("stochastic", "temperature 0.5")
    assert float(measured) == pytest.approx(numbers["per_position_acceptance"], abs=5e-5)
    check = numbers["diagnostics"]["calibration"]["closed_form"]
    half = 1.96 * math.sqrt(check["variance"]) / check["terms"]
    low, high = (float(end) for end in interval.split(" to "))
    assert high - low == pytest.approx(2 * half, abs=3e-4)
    assert float(z.replace("\N{MINUS SIGN}", "-")) == pytest.approx(check["z"], abs=0.006)
    assert float(expected) == pytest.approx(0.6, abs=1e-4)


def across(svg):
    """Where the marks of a picture stand, from left to right."""
    return [float(x) for x in re.findall(r'class="mark"[^>]*>.*?<use [^>]*x="([^"]*)"', svg)]


def test_marks_of_rules_that_agree_stand_side_by_side(record, tmp_path):
    rules = ("stochastic", "block", "other")
    study = study_of(record, tmp_path, *({"summary": {"rule": rule}} for rule in rules))
    found = acceptance.draw(study)
    one, two, three = sorted(across(found.svg))
    assert min(two - one, three - two) > 5
    assert three - one < 20
    assert acceptance._MOVED in found.note
    assert len({words.partition(": ")[2] for words in told_by(found.svg)}) == 1


def test_marks_of_one_rule_stay_where_they_are(record, tmp_path):
    found = acceptance.draw(study_of(record, tmp_path, at_temperature(0.5), at_temperature(1.0)))
    one, two = across(found.svg)
    assert one == two
    assert found.note == ""


def test_marks_are_moved_no_farther_than_two_sizes():
    points = [(0.5, 0.5)] * 7
    assert sideways(points, list("abcdefg"), 0.01) == pytest.approx([0, 0.01, -0.01, 0.02, -0.02, 0, 0])
    assert sideways([(0.5, 0.5), (0.5, 0.508), (0.508, 0.5)], list("abc"), 0.01) == [0, 0, 0]


def test_seeds_are_pooled_and_runs_without_a_closed_form_are_named(record, tmp_path):
    missing = {"rule": "gumbel", "diagnostics.closed_forms.expected_acceptance": None}
    study = study_of(record, tmp_path, {"summary": {"seed": 1}}, {"summary": {"seed": 2}}, {"summary": missing})
    found = acceptance.draw(study)
    assert len(found.rows) == 1
    assert "closed form: 1 of 2 configurations" in found.note
    none = acceptance.draw(study._replace(runs=study.runs[2:]))
    assert none.svg is None
    assert "sorting=true" in none.why


def test_closed_forms_are_means_weighted_by_tested_tokens(record, tmp_path):
    forms = "diagnostics.closed_forms"
    light = {f"{forms}.sum_min": 0.2, f"{forms}.gumbel": None, "positions_tested": 30, "accepted": 3}
    heavy = {"seed": 1, f"{forms}.sum_min": 0.6, f"{forms}.gumbel": 0.5, "positions_tested": 90, "accepted": 3}
    study = study_of(record, tmp_path, at_temperature(1, **light), at_temperature(1, **heavy), at_temperature(2))
    (found,) = closed_forms.draw(study)
    assert [row[0] for row in found.rows] == ["1", "2"]
    assert found.rows[0][1:3] == ("0.5000", "0.5000")
    assert "gumbel: recorded by 2 of 3 runs" in found.note


def test_every_pair_has_its_closed_forms(record, tmp_path):
    pairs = [{"started": {"config.drafter.name": f"pair {place}"}} for place in range(4)]
    found = closed_forms.draw(study_of(record, tmp_path, *pairs))
    assert [one.title.partition(", pair ")[2] for one in found] == [f"{n + 1} of 4: drafter pair {n}" for n in range(3)]


def test_other_weights_of_the_same_settings_are_another_pair(record, tmp_path):
    told = [{"models.drafter": {"sha256": digest}} for digest in "001"]
    weights = [{"summary": {"seed": seed}, "started": started} for seed, started in enumerate(told)]
    found = closed_forms.draw(study_of(record, tmp_path, *weights))
    tested = json.loads((record / "summary.json").read_text())["positions_tested"]
    assert [int(one.rows[0][-1]) for one in found] == [2 * tested, tested]
    assert [one.title.partition(" of 2: ")[2] for one in found] == ["models of 0", "models of 2"]


def test_lengths_stand_beside_their_law(record, tmp_path):
    numbers = json.loads((record / "summary.json").read_text())
    counts = numbers["diagnostics"]["acceptance"]["accepted_length_counts"]
    law = numbers["diagnostics"]["acceptance"]["accepted_length_law"]["expected"]
    (one,) = lengths.lengths(study_of(record, tmp_path, at_temperature(1), at_temperature(2)))
    assert one.counts[: len(counts)].tolist() == [2 * count for count in counts]
    assert one.law[0] == pytest.approx([2 * expected for expected in law])
    found = lengths.draw(gather([str(tmp_path)]))
    assert len(found.rows) == len(told_by(found.svg)) == len(one.counts)


def test_more_lengths_than_a_picture_can_show_are_not_drawn(record, tmp_path):
    known = "diagnostics.acceptance.accepted_length_counts"
    study = study_of(record, tmp_path, {"summary": {known: [1] * (lengths.LONGEST + 1)}})
    assert lengths.draw(study).svg is None


def test_lengths_of_a_record_without_a_law_are_shown_without(record, tmp_path):
    changes = {"diagnostics.acceptance.accepted_length_law": None}
    found = lengths.draw(study_of(record, tmp_path, {"summary": changes}))
    assert {row[4] for row in found.rows} == {"\N{EN DASH}"}
    assert "Without a recorded law: stochastic." in found.note


def test_places_are_those_of_the_record(record, tmp_path):
    counted = json.loads((record / "summary.json").read_text())["diagnostics"]["acceptance"]["by_position"]
    tested, reached = places.draw(study_of(record, tmp_path, at_temperature(1), at_temperature(2)))
    assert [int(row[2]) for row in tested.rows] == [2 * count for count in counted["tested"] if count]
    rates = [a / t for a, t in zip(counted["accepted"], counted["tested"], strict=True) if t]
    assert [float(row[4]) for row in tested.rows] == pytest.approx(rates, abs=5e-5)
    shares = [a / p for a, p in zip(counted["accepted"], counted["proposed"], strict=True)]
    assert [float(row[4]) for row in reached.rows] == pytest.approx(shares, abs=5e-5)
    assert all(0 <= float(row[5]) <= 1 for row in reached.rows)


def test_rules_that_look_past_a_rejection_have_no_acceptance_by_place(record, tmp_path):
    changes = {"rule": "block", "stops_at_rejection": False}
    tested, reached = places.draw(study_of(record, tmp_path, {"summary": changes}))
    assert tested.svg is None
    assert "look past a rejection" in tested.why
    assert reached.svg is not None


def test_the_scoreboard_is_weighted_by_rounds(record, tmp_path):
    def board(rounds, mean, error):
        entry = {"mean_accepted_len": mean, "difference": mean - 1, "standard_error": error}
        own = {"mean_accepted_len": 1, "difference": 0, "standard_error": 0}
        scores = {"stochastic": own, "joint_ceiling": entry}
        return {"summary": {"seed": rounds, "rounds": rounds, "diagnostics.scoreboard": scores}}

    found = scoreboard.draw(study_of(record, tmp_path, board(10, 2.0, 0.3), board(30, 4.0, 0.1)))
    assert found.rows[-1][1:4] == ("joint_ceiling", "3.5000", "2.5000")
    assert float(found.rows[-1][4]) == pytest.approx(math.hypot(10 * 0.3, 30 * 0.1) / 40, abs=5e-5)


def test_the_scoreboard_keeps_a_rules_own_keys_apart(record, tmp_path):
    def board(rule, seed, mean, **own):
        entry = {"mean_accepted_len": mean, "difference": 0.0, "standard_error": 0.0}
        summary = {"rule": rule, "seed": seed, "diagnostics.scoreboard": {rule: entry, "other": entry}}
        return {"summary": summary, "started": {"config.acceptance": {"name": rule, **own}, "config.seed": seed}}

    arms = [board("lenient", seed, scale, lenience=scale) for scale in (0.5, 1.0) for seed in (0, 1)]
    found = scoreboard.draw(study_of(record, tmp_path, *arms, board("stochastic", 0, 2.0)))
    rules = ["stochastic", "lenient (lenience=0.5)", "lenient (lenience=1.0)"]
    assert [entry.words for entry in found.legend] == [f"on blocks of {rule}" for rule in rules]
    assert len({entry.shape for entry in found.legend}) == len({entry.series for entry in found.legend}) == 3
    assert [row[2] for row in found.rows if row[1] == "other"] == ["2.0000", "0.5000", "1.0000"]
    assert sum(words.endswith("the rule that ran") for words in told_by(found.svg)) == 3


def test_a_scoreboard_says_how_much_it_leaves_out(record, tmp_path):
    arms = [{"started": {"config.acceptance": {"name": "lenient", "lenience": place}}} for place in range(14)]
    found = scoreboard.draw(study_of(record, tmp_path, *arms))
    assert len(found.legend) == 12
    assert "2 more are not drawn." in found.note


def test_rules_that_ship_keep_their_looks_and_others_have_their_own():
    looks = {rule: key[1:] for rule, key in series(["first", "block", "second", "stochastic"]).items()}
    assert list(looks) == ["stochastic", "block", "first", "second"]
    assert (looks["stochastic"], looks["block"]) == ((0, "o"), (1, "s"))
    assert len(set(looks.values())) == 4


def plain_arm(seed, speed):
    changes = {"rule": "plain", "seed": seed, "diagnostics.throughput.tokens_per_s": speed, "positions_tested": 0}
    return {"summary": {**changes, "accepted": 0}, "started": {"config.drafting.name": "none", "config.drafter": {}}}


def drafting_arm(seed, speed, **started):
    return {"summary": {"seed": seed, "diagnostics.throughput.tokens_per_s": speed}, "started": started}


def test_speedup_is_paired_by_seed_with_an_interval(record, tmp_path):
    arms = [plain_arm(1, 100), plain_arm(2, 200), drafting_arm(1, 150), drafting_arm(2, 280), drafting_arm(3, 9000)]
    found = speedup.draw(study_of(record, tmp_path, *arms))
    (row,) = found.rows
    assert row[:3] == ("stochastic", "runs", f"{math.sqrt(1.5 * 1.4):.3f}")
    low, high = (float(end) for end in row[3].split(" to "))
    spread = 12.7062 * math.log(1.5 / 1.4) / 2
    assert (math.log(high) - math.log(low)) / 2 == pytest.approx(spread, abs=2e-3)


@pytest.mark.parametrize(
    "change",
    [
        {"processor": "another"},
        {"config.max_tokens": 7},
        {"config.prompts.text": "1"},
        {"models.target": {"sha256": "1"}},
        {"prompts_digest": "1"},
    ],
)
def test_speedup_needs_a_plain_arm_of_the_same_machine_and_work(record, tmp_path, change):
    study = study_of(record, tmp_path, plain_arm(1, 100), drafting_arm(1, 150, **change))
    assert speedup.draw(study).why == speedup.WHY


def test_speedups_are_named_by_what_tells_those_that_are_drawn_apart(record, tmp_path):
    warm = {"config.sampler.temperature.value": 0.7}
    arms = [plain_arm(1, 100), drafting_arm(1, 150), plain_arm(1, 100), drafting_arm(1, 150)]
    for arm in arms[2:]:
        arm["started"] |= warm
    alone = drafting_arm(2, 150, **{"config.allow_lossy": True})
    found = speedup.draw(study_of(record, tmp_path, *arms, alone))
    assert [row[0] for row in found.rows] == ["stochastic, temperature 1.0", "stochastic, temperature 0.7"]
    assert {"stochastic, 1.0", "stochastic, 0.7"} <= set(Page(found.svg).words)


def test_speedup_reads_benchmarks(record, tmp_path):
    ratio = {"estimate": 1.5, "low": 1.2, "high": 1.9}
    arms = [{"name": "plain", "ratios": {}}, {"name": "block K=2", "ratios": {"plain": ratio}}, {"name": 3}, "x"]
    bench = Other(tmp_path, "bench", "benchmark", None, {}, {"arms": arms})
    found = speedup.draw(study_of(record, tmp_path, {}, others=(bench,)))
    assert found.rows == (("block K=2", "benchmark", "1.500", "1.200 to 1.900"),)


def lossy(acceptance_, sum_min, **more):
    first = "diagnostics.closed_forms.first_position"
    changes = {"rule": "lenient", "preserves_target": False, f"{first}.acceptance": acceptance_}
    return {
        "summary": {**changes, f"{first}.sum_min": sum_min, **{f"{first}.{key}": value for key, value in more.items()}}
    }


def test_what_is_shared_is_what_all_runs_have(record, tmp_path):
    permitted = {"started": {"config.allow_lossy": True}, "summary": {"seed": 1}}
    study = study_of(record, tmp_path, {}, permitted)
    assert "allow_lossy" not in told.told(study).shared
    assert "allow_lossy: true" in told.told(study._replace(runs=study.runs[1:])).shared


def test_lossless_studies_have_no_front(record):
    assert distortion.draw(gather([str(record)])) is None


def test_a_lower_bound_lies_on_the_front_and_says_so(record, tmp_path):
    found = distortion.draw(study_of(record, tmp_path, lossy(0.8, 0.65)))
    assert found.rows == (("lenient", "", "0.8000", "0.6500", "0.1500", "lower bound"),)
    assert "distortion at least 0.150" in told_by(found.svg)[0]


def test_a_recorded_distortion_is_drawn_as_it_is(record, tmp_path):
    found = distortion.draw(study_of(record, tmp_path, lossy(0.8, 0.65, distortion=0.4)))
    assert found.rows[0][4:] == ("0.4000", "recorded")
    assert "distortion 0.400" in told_by(found.svg)[0]


def lenient(*leniences, **more):
    own = [{"config.acceptance": {"name": "lenient", "lenience": lenience, **more}} for lenience in leniences]
    return [lossy(0.7 + 0.035 * place, 0.65) | {"started": started} for place, started in enumerate(own)]


def test_marks_of_one_rule_are_named_by_what_tells_them_apart(record, tmp_path):
    other = {"summary": lossy(0.7, 0.5)["summary"] | {"rule": "other"}}
    found = distortion.draw(study_of(record, tmp_path, *lenient(0.3, 0.5, 1.0), other))
    named = re.findall(r">(lenience=[^<]*)<", found.svg)
    assert named == ["lenience=0.3", "lenience=0.5", "lenience=1.0"]


def test_long_names_of_marks_are_values_alone(record, tmp_path):
    first, second, third = lenient(0.3, 0.5, 0.3)
    third["started"]["config.sampler.temperature.value"] = 0.25
    found = distortion.draw(study_of(record, tmp_path, first, second, third))
    assert re.findall(r">([\d.]+, [\d.]+)<", found.svg) == ["1.0, 0.3", "1.0, 0.5", "0.25, 0.3"]


def test_many_marks_have_no_names(record, tmp_path):
    found = distortion.draw(study_of(record, tmp_path, *lenient(*range(distortion._MOST_LABELS + 1))))
    assert "lenience=" not in found.svg


# --- texts ------------------------------------------------------------------------------------------------------


def test_every_token_is_shown_by_its_origin(record):
    rows = [json.loads(line) for line in (record / "tokens.jsonl").read_text().splitlines()]
    (text,) = text_of_run.texts(gather([str(record)]))
    (passage,) = text.passages
    assert [one.kind for one in passage.tokens] == [text_of_run.CLASSES[row["origin"]] for row in rows]
    assert sum(text.counts.values()) == len(rows)
    assert passage.prompt == "0"
    opened = [one.opens for one in passage.tokens]
    assert sum(opened) == len({row["round"] for row in rows})
    position, round_, id_, p, _ = passage.tokens[0].data.split(" ")
    assert (int(position), int(round_), int(id_)) == (rows[0]["position"], rows[0]["round"], rows[0]["id"])
    assert float(p) == pytest.approx(rows[0]["p"], rel=1e-3)


def test_what_does_not_print_is_a_sign(record, tmp_path):
    tokens = {0: {"text": "a\n\tb"}, 1: {"text": ""}, 2: {"text": "\u202e\u0000\ud800"}, 3: {"q": None}}
    study = study_of(record, tmp_path, {"tokens": tokens})
    (text,) = text_of_run.texts(study)
    shown = text.passages[0].tokens
    assert [piece.text for piece in shown[0].pieces] == ["a", "↵", "\n", "⇥", "b"]
    assert [piece.sign for piece in shown[0].pieces] == [False, True, False, True, False]
    assert shown[1].pieces[0].sign
    assert "".join(piece.text for piece in shown[2].pieces) == "\\u202e\\x00\\ud800"
    assert shown[3].data.endswith(" -")
    Page(page.html(study)).words.index("\\u202e")


def test_a_long_token_is_cut(record, tmp_path):
    (text,) = text_of_run.texts(study_of(record, tmp_path, {"tokens": {0: {"text": "\0" * 100_000}}}))
    pieces = [piece.text for piece in text.passages[0].tokens[0].pieces]
    assert pieces == ["\\x00"] * 199 + ["…"]


def test_a_broken_text_is_shown_up_to_where_it_breaks(record, tmp_path):
    changed(record, tmp_path / "0", tokens={5: {"origin": "heaven"}})
    (text,) = text_of_run.texts(gather([str(tmp_path)]))
    assert len(text.passages[0].tokens) == 5
    assert "origin" in text.problem


def test_texts_are_of_few_runs_and_not_endless(record, tmp_path, monkeypatch):
    study = study_of(record, tmp_path, *({"summary": {"seed": seed}, "tokens": {}} for seed in range(5)))
    assert text_of_run.texts(study) == ()
    monkeypatch.setattr(text_of_run, "MOST_TOKENS", 20)
    first, second = text_of_run.texts(study._replace(runs=study.runs[:2]))
    assert len(first.passages[0].tokens) == len(second.passages[0].tokens) == 10
    assert "first 10 tokens" in first.problem


# --- table and provenance ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("runs", "told"),
    [
        ([{"interrupted": True}], ("interrupted", "log10 of the e-value 0.50, fails above 6")),
        ([{"interrupted": True, "verdict": "failed"}], ("✗ failed", "log10 of the e-value 0.50, fails above 6")),
        ([{"verdict": "unchecked", "log10_e_value": None}] * 2, ("0 passed", "2 unchecked")),
        (
            [{}, {"preserves_target": False, "rule": "lossy"}],
            (
                "✓ 2 passed",
                "1 lossy, held against the rule's own law, not the target's; largest log10 e-value 0.50, fails above 6",
            ),
        ),
        ([{}, {"interrupted": True}], ("✓ 1 passed", "1 interrupted; largest log10 e-value 0.50, fails above 6")),
    ],
)
def test_the_head_counts_verdicts_as_the_table_does(record, tmp_path, runs, told):
    study = study_of(record, tmp_path, *({"summary": {"log10_e_value": 0.5, **run}} for run in runs))
    verdict, *_ = page._tiles(study)
    assert (verdict.value, verdict.words) == told


@pytest.mark.parametrize(
    ("days", "told"),
    [
        (["2026-11-30"] * 2, "; made on 2026-11-30"),
        (["2026-12-01", "2026-11-30"], "; made from 2026-11-30 to 2026-12-01"),
    ],
)
def test_the_head_tells_a_day_from_a_source(record, tmp_path, days, told):
    study = study_of(record, tmp_path, *({"started": {"timestamp": f"{day}T12:00:00Z"}} for day in days))
    assert f"{tmp_path}{told}" in Page(page.html(study)).words


def test_the_table_has_what_tells_runs_apart_and_sorts_by_exact_values(record, tmp_path):
    study = study_of(record, tmp_path, at_temperature(0.5), at_temperature(1.0, log10_e_value="inf", verdict="failed"))
    columns = {column.name: column for column in sheet.sheet(study)}
    assert list(columns)[:5] == ["run", "rule", "verdict", "measured", "temperature"]
    assert columns["temperature"].choices == ("0.5", "1.0")
    assert columns["verdict"].choices == ("✓ passed", "✗ failed")
    assert columns["log10 e"].cells[1] == sheet.Cell("∞", "Infinity")
    measured = columns["measured"].cells[0]
    assert float(measured.value) == pytest.approx(study.runs[0].row.measured, rel=1e-8)
    assert "distortion ≥" not in columns


def test_keys_named_like_columns_have_headings_of_their_own(record, tmp_path):
    of = [{"config.target.seed": 1, "config.verdict": "x"}, {"config.target.seed": 2}, {}]
    study = study_of(record, tmp_path, *({"started": started} for started in of))
    columns = {column.name: [cell.text for cell in column.cells] for column in sheet.sheet(study)}
    assert (columns["target.seed"], columns["seed"]) == (["1", "2", sheet.ABSENT], ["3"] * 3)
    assert (columns["config.verdict"][0], columns["verdict"]) == ("x", ["✓ passed"] * 3)


def test_infinities_are_sorted_as_numbers(record, tmp_path):
    study = study_of(record, tmp_path, at_temperature(0.5, log10_e_value="-inf"), at_temperature("endless"))
    events = tmp_path / "1" / "events.jsonl"
    events.write_text(events.read_text().replace('"endless"', "-1e999"))
    columns = {column.name: column for column in sheet.sheet(gather(study.sources))}
    assert columns["log10 e"].cells[0].value == columns["temperature"].cells[1].value == "-Infinity"


@pytest.mark.parametrize("name", ["seed=1,pair=iid", "a b [1]", "o'clock", "null", "1e3", "tmp"])
def test_commands_mean_what_they_say(record, tmp_path, monkeypatch, name):
    changed(record, tmp_path / name / "run")
    monkeypatch.chdir(tmp_path)
    replay, again = (shlex.split(command) for command in told.told(gather([name])).commands)
    parser = OverridesParser.create()
    said = [parser.parse_override(words[-1]) for words in (replay, again)]
    assert [one.value() for one in said] == [f"{name}/run", [name]]
    assert ("'" in again[-1]) == (name != "tmp")


def test_a_rules_own_keys_are_told_where_its_runs_differ_in_them(record, tmp_path):
    def of(rule, **own):
        return {"summary": {"rule": rule}, "started": {"config.acceptance": {"name": rule, **own}}}

    study = study_of(record, tmp_path, of("lossy", scale=0.5), of("lossy", scale=1.0), of("other", strict=True))
    columns = {column.name: column for column in sheet.sheet(study)}
    assert [cell.text for cell in columns["scale"].cells] == ["0.5", "1.0", sheet.ABSENT]
    assert {"acceptance", "strict"}.isdisjoint(columns)
    told_of = [row[:2] for row in acceptance.draw(study).rows]
    assert told_of == [("lossy", "scale 0.5"), ("lossy", "scale 1.0"), ("other", "scale null")]


def test_lists_are_told_by_the_part_in_which_they_differ(record, tmp_path):
    orders = [["temperature", "top_k"], ["top_k", "temperature"]]
    kept = [{"config.sampler.order": ["a long beginning of", *order]} for order in orders]
    study = study_of(record, tmp_path, *({"started": started} for started in kept))
    columns = {column.name: column for column in sheet.sheet(study)}
    told_of = ["… temperature, top_k", "… top_k, temperature"]
    assert [cell.text for cell in columns["order"].cells] == told_of
    assert list(columns["order"].choices) == told_of
    assert [row[1] for row in acceptance.draw(study).rows] == [f"order {one}" for one in told_of]


def test_what_was_run_is_told(record, tmp_path):
    study = study_of(record, tmp_path, at_temperature(0.5), at_temperature(1.0, seed=4))
    found = told.told(study)
    assert {fact.name: fact.values for fact in found.varying}["sampler.temperature.value"] == ("0.5 (1)", "1.0 (1)")
    assert "max_tokens: 32" in found.shared
    assert "  temperature:" not in found.shared.split("draft_sampler")[0]
    assert "draft_sampler: the target's chain, value by value" in told.told(gather([str(record)])).shared
    facts = {fact.name: fact.values for fact in found.provenance}
    assert "mlx " in facts["versions"][0]
    assert len(facts["digest of the configuration"]) == 2
    assert any("sha256" in value for value in facts["target"])
    assert found.commands[0] == f"python -m specfw replay={tmp_path}/0"
    assert found.commands[-1] == f"python -m specfw task=report 'task.source=[{tmp_path}]'"


# --- looks ------------------------------------------------------------------------------------------------------


def luminance(colour):
    parts = [int(colour[place : place + 2], 16) / 255 for place in (1, 3, 5)]
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(one, other):
    light, dark = sorted((luminance(one), luminance(other)), reverse=True)
    return (light + 0.05) / (dark + 0.05)


@pytest.mark.parametrize("scheme", [0, 1], ids=["light", "dark"])
def test_colours_can_be_told_from_what_they_stand_on(scheme):
    """WCAG 2: 4.5 for text, 3 for marks and lines."""
    pairs = dict(re.findall(r"--(\w+): light-dark\((#\w{6}, #\w{6})\)", page._own("page.css")))
    shade = {name: pair.split(", ")[scheme] for name, pair in pairs.items()}
    for ground in ("page", "surface", "raised"):
        assert min(contrast(shade[text], shade[ground]) for text in ("ink", "muted", "accent")) > 4.5
    assert min(contrast(shade[tone], shade["surface"]) for tone in ("good", "bad")) > 4.5
    assert min(contrast(shade[f"s{index}"], shade["surface"]) for index in range(8)) > 3
    for origin, line in (("accepted", "s0"), ("recovered", "s1"), ("bonus", "s2")):
        assert contrast(shade["ink"], shade[origin]) > 7
        assert contrast(shade[line], shade[origin]) > 3


# --- size -------------------------------------------------------------------------------------------------------


def test_a_thousand_runs_are_read_in_seconds_and_stay_small(record, tmp_path):
    many(record, tmp_path, 1000)
    start = time.perf_counter()
    text = page.html(gather([str(tmp_path)]))
    assert time.perf_counter() - start < 30
    assert len(text.encode()) < 10e6
    assert text.count("<tr>") > 1000
