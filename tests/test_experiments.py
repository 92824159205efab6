"""Every experiment that ships runs as a sweep, in small, and its page is made of what the runs left."""

import io
import json
import runpy
from contextlib import redirect_stdout
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from statistics import fmean

import specfw
from specfw import registry
from specfw.__main__ import main
from specfw.acceptance.stochastic import Stochastic
from specfw.config.composing import conf_dir
from specfw.diagnostics.scoreboard import lossless

import pytest
import yaml

DOCS = Path(specfw.__file__).parents[1] / "docs"
SHIPPED = {path.stem: path.read_text() for path in (conf_dir() / "experiment").glob("*.yaml")}
LOSSLESS = {
    name
    for name in registry.names("acceptance")
    if (rule := registry.component("acceptance", name)).preserves_target and rule.domain == "any"
} - {"sampler_match_no_proposal_distribution"}
SEEDS = {"rules_race": "0,1"}
RUNS = {"smoke": 1, "origin_table": 6, "rules_race": 2 * len(LOSSLESS), "draft_length": 5, "filters_order": 8}


@pytest.fixture(scope="module")
def swept(tmp_path_factory):
    """An experiment's sweep in small, run once: its folder."""

    @cache
    def run(name):
        outputs = tmp_path_factory.mktemp(name)
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("SPECFW_OUTPUTS", str(outputs))
            assert main([f"experiment={name}", f"seed={SEEDS.get(name, 0)}", "max_tokens=8", "num_samples=1"]) == 0
        return outputs

    return run


def records(outputs):
    """Configuration and summary of every run."""
    return [
        (yaml.safe_load((path.parent / "config.yaml").read_text()), json.loads(path.read_text()))
        for path in sorted(outputs.rglob("summary.json"))
    ]


@pytest.fixture
def page(swept, monkeypatch):
    """What the script prints of a sweep: its lists, and each table as rows of cells by column."""

    def printed(name):
        monkeypatch.syspath_prepend(DOCS)
        with redirect_stdout(io.StringIO()) as said:
            runpy.run_path(str(DOCS / "result_pages.py"))["main"](name, *swept(name).glob("multirun/*/*"))
        lists, *tables = said.getvalue().split("\n\n")
        return lists, [columns(part.strip().splitlines()) for part in tables]

    return printed


def columns(lines):
    head, _, *rows = ([cell.strip("`") for cell in line.strip("| ").split(" | ")] for line in lines)
    assert all(len(row) == len(head) for row in rows)
    return [dict(zip(head, row, strict=True)) for row in rows]


def test_every_experiment_is_run_here():
    """But those that search, by a sweeper that need not be installed."""
    assert {name for name, text in SHIPPED.items() if "/hydra/sweeper" not in text} == set(RUNS)


def heads(line):
    return [cell.replace("`", "") for cell in line.strip("| ").split(" | ")]


@pytest.mark.parametrize("name", RUNS)
def test_every_experiment_runs(name, swept):
    runs = records(swept(name))
    assert len(runs) == RUNS[name]
    assert all(numbers["verdict"] == "passed" for _, numbers in runs)


@pytest.mark.parametrize("name", [name for name in RUNS if name != "smoke"])
def test_its_page_has_the_lists_and_tables_that_its_runs_make(name, page):
    lists, found = page(name)
    assert f"by {RUNS[name]} runs with" in lists
    assert "1 thread a run" in lists
    shown = [sorted(heads(line)) for line in (DOCS / "results" / f"{name}.md").read_text().splitlines()]
    for table in found:  # the columns of the race stand in the order in which its rules came in
        assert sorted(heads(" | ".join(table[0]))) in shown


def test_the_race_is_of_every_lossless_rule_on_the_same_seeds(swept, page):
    lengths = {
        (config["acceptance"]["name"], config["seed"]): numbers["mean_accepted_len"]
        for config, numbers in records(swept("rules_race"))
    }
    assert set(lengths) == {(rule, seed) for rule in LOSSLESS for seed in (0, 1)}
    _, (race, predictions) = page("rules_race")
    for row in race:
        lead = fmean(lengths[row["rule"], seed] - lengths["stochastic", seed] for seed in (0, 1))
        told = row["more than stochastic"]
        assert told == "" if row["rule"] == "stochastic" else float(told.split()[0]) == pytest.approx(lead, abs=6e-4)
    assert [name.strip("`").replace("-", "_") for name in list(predictions[0])[1:-1]] == [row["rule"] for row in race]


def test_a_rule_of_ones_own_joins_the_race(tmp_path, monkeypatch):
    @dataclass(frozen=True, kw_only=True)
    class Mine(Stochastic):
        id = "mine"

    monkeypatch.setenv("SPECFW_OUTPUTS", str(tmp_path))
    monkeypatch.setitem(registry._components, "acceptance", {**registry._components["acceptance"], "mine": Mine})
    assert set(lossless()) == {*LOSSLESS, "mine"}
    assert main(["experiment=rules_race", "pair=iid", "diagnostics=none", "seed=0", "max_tokens=1"]) == 0
    assert {config["acceptance"]["name"] for config, _ in records(tmp_path)} == {*LOSSLESS, "mine"}


def test_lossless_rules_are_those_that_sample_and_preserve_the_target():
    assert set(lossless()) == LOSSLESS >= {"sampler_match", "gumbel", "stochastic", "block"}


def test_lengths_stand_beside_their_law(page):
    _, (table, lengths) = page("draft_length")
    assert [row["K"] for row in table] == ["0", "1", "2", "4", "8"]
    for row in table[1:]:
        mine = [one for one in lengths if one["K"] == row["K"]]
        assert [one["accepted"] for one in mine] == [str(length) for length in range(int(row["K"]) + 1)]
        assert sum(int(one["rounds"]) for one in mine) == int(row["rounds"])
        mean = sum(int(one["accepted"]) * int(one["rounds"]) for one in mine) / int(row["rounds"])
        assert float(row["accepted a round"].split()[0]) == pytest.approx(mean, abs=6e-4)
        law = sum(int(one["accepted"]) * float(one["by the law"]) for one in mine)
        assert float(row["by the law"]) == pytest.approx(law, abs=0.01)


def test_orders_differ_in_nothing_but_the_order(swept, page):
    for config, numbers in records(swept("filters_order")):
        chain = config["sampler"]
        values = chain["temperature"]["value"], chain["top_k"]["k"], chain["top_p"]["p"], chain["min_p"]["p"]
        assert values == (1.5, 50, 0.9, 0.05)
        assert 1 <= numbers["diagnostics"]["support"]["target_ids"] <= 50
    _, (rows, rates) = page("filters_order")
    assert {row["preset"]: row["acting in order"] for row in rows} == {
        "seed": "temperature, top_k, top_p, min_p",
        "hf": "temperature, top_k, top_p, min_p",
        "llama_cpp": "top_k, top_p, min_p, temperature",
        "mlx_lm": "top_p, min_p, top_k, temperature",
    }
    assert [row["texts equal to `seed`'s"] for row in rates[:2]] == ["1 of 1", "1 of 1"]
