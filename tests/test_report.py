"""task=report: any number of records in one table, whoever left them there."""

import copy
import csv
import io
import json
import math
import os
import re
import shlex
import sys
import time
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace

from specfw.__main__ import main
from specfw.diagnostics.population import interval
from specfw.experiment import run
from specfw.study import parquet
from specfw.study.columns import short
from specfw.study.escaping import csv_cell, markdown, one_line
from specfw.study.gathering import gather
from specfw.study.intervals import wilson
from specfw.study.lists import beside, parts
from specfw.study.markdown import page
from specfw.study.pooling import pools
from specfw.study.rows import columns
from specfw.study.sheet import sheet
from specfw.study.tables import checks, claims, pooled
from specfw.study.tokens import tokens
from specfw.tasks.base import Job
from specfw.tasks.report import Report

import duckdb
import numpy as np
import pytest
from kit import config

LINE = re.compile(r"\[Report\] runs=\d+ passed=\d+ failed=\d+ unchecked=\d+ interrupted=\d+ others=\d+ problems=\d+\n")
P, Q = ({"name": "iid", "probs": probs} for probs in ([0.1, 0.2, 0.3, 0.4], [0.4, 0.3, 0.2, 0.1]))
HOSTILE = "<script>alert(1)</script>|\n=cmd|'/C calc'!A0 \u202e`x`"


class Records:
    """A folder of records like those of one real run."""

    def __init__(self, folder, model):
        self.folder, self.summary, self.started = folder, *(copy.deepcopy(part) for part in model[:2])
        self.tokens = model[2]

    def add(self, place, *, settings=(), **changes):
        """Another run: `settings` are keys of the configuration, `changes` entries of summary.json (`a__b` is a.b)."""
        folder = self.folder / place
        folder.mkdir(parents=True)
        summary, started = copy.deepcopy(self.summary), copy.deepcopy(self.started)
        summary["digest"] = started["digest"] = f"{place}-digest"
        for key, value in changes.items():
            put(summary, key.split("__"), value)
        for key, value in dict(settings).items():
            put(started["config"], key.split("."), value)
        started["digest"] = summary["digest"]
        (folder / "summary.json").write_text(json.dumps(summary))
        (folder / "events.jsonl").write_text(json.dumps(started) + "\n")
        (folder / "tokens.jsonl").write_text(self.tokens)
        return folder

    def study(self):
        return gather([str(self.folder)])


def put(tree, path, value):
    *before, last = path
    for part in before:
        tree = tree.setdefault(part, {})
    tree[last] = value


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    """summary.json, run_started and tokens.jsonl of a real run."""
    folder = tmp_path_factory.mktemp("model")
    run(config(P, Q, max_tokens=40), folder=folder, quiet=True)
    events = map(json.loads, (folder / "events.jsonl").read_text().splitlines())
    started = next(event for event in events if event["event"] == "run_started")
    return json.loads((folder / "summary.json").read_text()), started, (folder / "tokens.jsonl").read_text()


@pytest.fixture
def records(tmp_path, model):
    return Records(tmp_path / "records", model)


def reported(outputs, status, capsys):
    """What a report said and wrote."""
    out, err = capsys.readouterr()
    files = {path.name: path for path in outputs.rglob("report.*")}
    rows = list(csv.DictReader(files["report.csv"].read_text().splitlines())) if files else None
    text = files["report.md"].read_text() if files else None
    return SimpleNamespace(status=status, out=out, err=err, files=files, rows=rows, page=text)


@pytest.fixture
def command(tmp_path, monkeypatch, capsys):
    """Run the command on folders."""

    def report(*sources):
        outputs = tmp_path / f"outputs{len(list(tmp_path.glob('outputs*')))}"
        monkeypatch.setenv("SPECFW_OUTPUTS", str(outputs))
        capsys.readouterr()
        status = main(["task=report", f"task.source=[{','.join(map(str, sources))}]"])
        return reported(outputs, status, capsys)

    return report


@pytest.fixture
def report(tmp_path, capsys):
    """Run the task alone on one folder."""

    def report(source):
        outputs = tmp_path / "report"
        outputs.mkdir()
        capsys.readouterr()
        assert Report(source=(str(source),)).run(Job({}, {}, outputs, None)).passed
        return reported(outputs, 0, capsys)

    return report


def sentences(study):
    return {problem.name: problem.sentence for problem in study.problems}


# --- a sweep ----------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def sweep(tmp_path_factory):
    """Two rules and two temperatures of a toy pair."""
    folder = tmp_path_factory.mktemp("sweep")
    words = ["acceptance=stochastic,block", "sampler.temperature.value=0.7,1.0"]
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SPECFW_OUTPUTS", str(folder))
        assert main(["-m", "pair=iid", "max_tokens=60", "num_samples=2", *words]) == 0
    return folder


def test_a_sweep_becomes_one_table(sweep, command):
    found = command(sweep)
    assert found.status == 0
    assert LINE.fullmatch(found.out)
    assert found.out.startswith("[Report] runs=4 passed=4 failed=0")
    assert set(found.files) == {"report.parquet", "report.csv", "report.md", "report.html"}
    assert all(str(path) in found.err for path in found.files.values())
    configurations = [(row["rule"], row["sampler.temperature.value"], row["seed"]) for row in found.rows]
    assert configurations == [(rule, value, "0") for rule in ("stochastic", "block") for value in ("0.7", "1.0")]
    configured = set(found.rows[0]) & {key for key in found.rows[0] if "." in key}
    assert configured == {"sampler.temperature.value", "acceptance.name", "acceptance.strict"}
    for name in ("sum_min", "measured", "low", "high", "z", "log10_e_value", "mean_accepted_len", "tokens_per_s"):
        assert all(math.isfinite(float(row[name])) for row in found.rows), name
    assert "| temperature | sum_min | sum_prod | ratio | block | stochastic |" in found.page
    assert "| 0.7 | `block` |" in found.page


def test_a_row_is_what_the_record_says(sweep):
    for one in gather([str(sweep)]).runs:
        numbers = json.loads((one.folder / "summary.json").read_text())
        forms = numbers["diagnostics"]["closed_forms"]
        row = one.row
        assert row.digest == numbers["digest"]
        assert row.tokens_per_s == numbers["diagnostics"]["throughput"]["tokens_per_s"]
        assert list(row.accepted_lengths) == numbers["diagnostics"]["acceptance"]["accepted_length_counts"]
        if row.rule == "stochastic":
            assert (row.places, row.measured) == ("tested", numbers["per_position_acceptance"])
            assert (row.tested, row.accepted) == (numbers["positions_tested"], numbers["accepted"])
            assert row.sum_min == forms["sum_min"]
        else:
            check = numbers["diagnostics"]["calibration"]["closed_form"]
            assert (row.places, row.measured) == ("first", forms["first_position"]["acceptance"])
            assert (row.tested, row.accepted) == (check["terms"], check["observed"])
            assert row.expected == forms["first_position"]["expected_acceptance"]
        assert row.interval.kind == ("samples" if row.rule == "stochastic" else "wilson")


def test_parquet_and_csv_hold_the_same(sweep, report):
    found = report(sweep)
    table = duckdb.read_parquet(str(found.files["report.parquet"]))
    types = dict(zip(table.columns, map(str, table.types), strict=True))
    assert (types["seed"], types["accepted_lengths"], types["sum_min"]) == ("UBIGINT", "BIGINT[]", "DOUBLE")
    assert types["sampler.temperature.value"] == "DOUBLE"
    assert table.columns == list(found.rows[0])
    for ours, theirs in zip(found.rows, table.fetchall(), strict=True):
        for name, value in zip(table.columns, theirs, strict=True):
            if isinstance(value, float):
                assert float(ours[name]) == value
            elif isinstance(value, bool | list):
                assert json.loads(ours[name]) == value
            else:
                assert ours[name] == ("" if value is None else str(value))


def test_the_tokens_of_a_run_are_counted_by_origin(sweep, report):
    found = report(sweep)
    for row in found.rows:
        counted = sum(int(row[f"{origin}_tokens"]) for origin in ("accepted", "recovered", "bonus", "plain"))
        assert counted == int(row["emitted"])


def test_the_tokens_of_a_run_can_be_read(sweep):
    (one, *_) = gather([str(sweep)]).runs
    said = list(tokens(one))
    assert len(said) == one.row.emitted
    assert said[0].origin in ("accepted", "recovered")
    (one.folder / "tokens.jsonl").write_text("{}\n")
    with pytest.raises(ValueError, match="line 1: origin must be given"):
        list(tokens(one))
    (one.folder / "tokens.jsonl").unlink()
    assert list(tokens(one)) == []


# --- finding ----------------------------------------------------------------------------------------------------


def test_a_record_counts_once_and_2_comes_before_10(records):
    for place in ("10", "2", "a/b/c"):
        records.add(place)
    study = gather([str(records.folder), str(records.folder / "a"), str(records.folder / "2")])
    assert [one.name for one in study.runs] == ["2", "10", "a/b/c"]
    assert gather([str(records.folder / "2")]).runs[0].name == "2"


def test_the_reports_own_folder_and_hidden_ones_are_left_out(records):
    records.add("1")
    records.add(".hidden")
    own = records.add("own")
    study = gather([str(records.folder)], leave_out=own)
    assert [one.name for one in study.runs] == ["1"]


def test_links_to_folders_are_not_followed(records):
    inner = records.add("1")
    (inner / "loop").symlink_to(records.folder)
    (records.folder / "self").symlink_to(".")
    assert [one.name for one in records.study().runs] == ["1"]


@contextmanager
def deep_folders(folder, count):
    """`count` folders within each other, a path longer than may be; gone after, as pytest cannot remove so many."""
    here = os.open(folder, os.O_RDONLY)
    for _ in range(count):
        os.mkdir("d", dir_fd=here)
        here, above = os.open("d", os.O_RDONLY, dir_fd=here), here
        os.close(above)
    try:
        yield
    finally:
        for _ in range(count):
            here, below = os.open("..", os.O_RDONLY, dir_fd=here), here
            os.close(below)
            os.rmdir("d", dir_fd=here)
        os.close(here)


def test_folders_may_lie_deep(records):
    records.add("1")
    with deep_folders(records.folder, 1500):
        assert [one.name for one in records.study().runs] == ["1"]


def test_a_folder_that_cannot_be_read_is_told(records, monkeypatch):
    records.add("1")
    records.add("2")
    scandir = os.scandir

    def refuse(path):
        if path.name == "2":
            raise PermissionError(13, "Permission denied")
        return scandir(path)

    monkeypatch.setattr(os, "scandir", refuse)
    study = records.study()
    assert [one.name for one in study.runs] == ["1"]
    assert sentences(study) == {"2": "the folder cannot be read: Permission denied"}


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_a_folder_without_permission_is_told(records):
    records.add("1")
    closed = records.add("2")
    closed.chmod(0)
    try:
        assert sentences(records.study()) == {"2": "the folder cannot be read: Permission denied"}
    finally:
        closed.chmod(0o700)


# --- records of anyone's making ---------------------------------------------------------------------------------


def written(name, data):
    return lambda folder: (folder / name).write_bytes(data)


def linked(folder):
    (folder / "summary.json").unlink()
    (folder / "summary.json").symlink_to("/etc/passwd")


def piped(folder):
    (folder / "summary.json").unlink()
    os.mkfifo(folder / "summary.json")


def unfinished(folder):
    for name in ("summary.json", "events.jsonl", "tokens.jsonl"):
        (folder / name).rename(folder / f".{name}.part")


def failed(text):
    def spoil(folder):
        unfinished(folder)
        (folder / "error.txt").write_text(text)

    return spoil


BROKEN = [
    (written("summary.json", b'{"rule": "stoch'), 'summary.json must be JSON, got \'{"rule": "stoch\''),
    (written("summary.json", b""), "summary.json must be JSON"),
    (written("summary.json", b"[1, 2]"), "summary.json must be a JSON object"),
    (written("summary.json", b'{"accuracy": 0.9}'), "verdict must be given"),
    (written("summary.json", b'{"verdict": "passed", "digest": "\xff\xfe"}'), "summary.json must be UTF-8"),
    (written("summary.json", b'{"verdict": NaN}'), "summary.json must be JSON"),
    (written("summary.json", b"[" * 200_000), "summary.json must be JSON"),
    (written("summary.json", b'{"seed": ' + b"9" * 10_000 + b"}"), "summary.json must be JSON"),
    (linked, "summary.json must be a regular file"),
    (piped, "summary.json must be a regular file"),
    (written("events.jsonl", b'{"event": "run_star'), "events.jsonl line 1 must be JSON"),
    (written("events.jsonl", b'{"event": "other"}\n' * 3), "events.jsonl has no run_started"),
    (written("events.jsonl", b'{"event": "run_started"}\n'), "run_started.config must be a mapping"),
    (written("events.jsonl", b'{"event": "run_started", "config": {"seed": 0}}\n'), "the digest in events.jsonl"),
    (lambda folder: (folder / "events.jsonl").unlink(), "events.jsonl cannot be read: No such file"),
    (unfinished, "unfinished: there is no summary.json"),
    (failed("top_k.k must be in [0, inf), got -1\n"), "failed: top_k.k must be in [0, inf), got -1"),
    (failed("Traceback (most recent call last):\n  File\nKeyError: 'x'\n\n"), "failed: KeyError: 'x'"),
]


@pytest.mark.parametrize(("spoil", "told"), BROKEN)
def test_a_broken_record_is_told_and_the_rest_stands(records, spoil, told):
    records.add("1")
    spoil(records.add("2"))
    study = records.study()
    assert [one.name for one in study.runs] == ["1"]
    assert sentences(study)["2"].startswith(told)


def test_a_report_of_mostly_broken_records_stands(records, report):
    records.add("0")
    for place, (spoil, _) in enumerate(BROKEN, start=1):
        spoil(records.add(str(place)))
    found = report(records.folder)
    assert [row["folder"] for row in found.rows] == ["0"]
    assert found.out == f"[Report] runs=1 passed=1 failed=0 unchecked=0 interrupted=0 others=0 problems={len(BROKEN)}\n"
    told = found.page.partition("## What is not as it should be")[2]
    assert told.count("\n- ") == len(BROKEN)
    assert "1: summary.json must be JSON" in found.err


@pytest.mark.parametrize("name", ["summary.json", "events.jsonl", "tokens.jsonl"])
def test_a_file_whose_reading_fails_is_told_and_the_rest_stands(records, monkeypatch, name):
    """A disk or a mount that goes away opens files and does not read them."""
    records.add("1")
    lost = records.add("2", seed=2) / name

    class Lost(io.BytesIO):
        def read(self, *_):
            raise OSError(5, "Input/output error")

        readline = read

    known = Path.open
    monkeypatch.setattr(Path, "open", lambda path, *how: Lost() if path == lost else known(path, *how))
    study = records.study()
    assert [one.name for one in study.runs] == (["1", "2"] if name == "tokens.jsonl" else ["1"])
    assert sentences(study) == {"2": f"{name} cannot be read: Input/output error"}


@pytest.mark.parametrize(
    ("key", "value", "told"),
    [
        ("verdict", "great", "verdict must be one of: passed, failed, unchecked, got 'great'"),
        ("rule", 3, "rule must be a string, got 3"),
        ("seed", 2**64, "seed must be an integer in [0, 18446744073709551616)"),
        ("seed", True, "seed must be an integer"),
        ("accepted", 1e300, "accepted must be an integer in [0, 281474976710656), got 1e+300"),
        ("accepted", 10**400, "accepted must be an integer"),
        ("accepted", 10**9, "accepted must be at most the"),
        ("log10_e_value", "<b>", "log10_e_value must be a number"),
        ("diagnostics", [], "diagnostics.closed_forms.sum_min must be in a mapping, got []"),
        ("diagnostics__closed_forms__sum_min", "inf", "diagnostics.closed_forms.sum_min must be a number"),
        ("diagnostics__closed_forms__sum_min", 1.5, "diagnostics.closed_forms.sum_min must be in [0, 1], got 1.5"),
        ("diagnostics__closed_forms__sum_min", math.inf, "summary.json must be JSON"),
        ("diagnostics__throughput__tokens_per_s", 1e308, "diagnostics.throughput.tokens_per_s must be a number in"),
        ("diagnostics__throughput__decode_s", -1, "diagnostics.throughput.decode_s must be at least 0, got -1.0"),
        (
            "diagnostics__calibration__closed_form__variance",
            -1e-9,
            "closed_form.variance must be at least 0, got -1e-09",
        ),
        ("diagnostics__acceptance__accepted_length_counts", "12", "must be a list of counts, got '12'"),
        ("diagnostics__population__prompts", "x", "diagnostics.population.prompts must be a list"),
        ("interrupted", "no", "interrupted must be true or false"),
    ],
)
def test_an_entry_of_a_wrong_type_is_named(records, key, value, told):
    records.add("1")
    records.add("2", **{key: value})
    study = records.study()
    assert [one.name for one in study.runs] == ["1"]
    assert told in sentences(study)["2"]


def test_an_e_value_may_be_infinite_and_numbers_may_be_absent(records, report):
    records.add("1", log10_e_value="inf", verdict="failed")
    records.add("2", seed=1, settings={"seed": 1}, diagnostics={}, log10_e_value=None, verdict="unchecked")
    found = report(records.folder)
    assert found.status == 0
    assert [row["log10_e_value"] for row in found.rows] == ["inf", ""]
    assert (found.rows[1]["sum_min"], found.rows[1]["tokens_per_s"]) == ("", "")
    assert duckdb.read_parquet(str(found.files["report.parquet"])).fetchall()
    assert "1 failed, 1 unchecked" in found.page


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", "tokens.jsonl holds 0 tokens, and 40 were emitted"),
        ('{"origin": "acc', "tokens.jsonl ends in half a line"),
        ('{"origin": "x"}\n"accepted"\n\x00\n', "3 lines of tokens.jsonl are no tokens"),
        ('{"origin": "plain"}\n', "tokens.jsonl holds 1 tokens, and 40 were emitted"),
    ],
)
def test_broken_tokens_are_told_and_the_row_stands(records, report, text, told):
    records.add("1")
    (records.add("2") / "tokens.jsonl").write_text(text)
    found = report(records.folder)
    assert [row["folder"] for row in found.rows] == ["1", "2"]
    assert f"2: {told}" in found.err
    assert (found.rows[0]["recovered_tokens"], int(found.rows[0]["accepted_tokens"]) > 0) != ("", False)


def test_draft_tokens_that_the_record_does_not_count_are_not_called_none(records, report):
    """Without closed_forms a rule that looks past a rejection has no counts of first places."""
    records.add("1", rule="block", stops_at_rejection=False, diagnostics={})
    study, found = records.study(), report(records.folder)
    (row,) = found.rows
    assert (row["tested"], row["accepted"]) == ("", "")
    assert int(row["proposed"]) > 0
    assert checks(pooled(study)).rows[0][1:3] == ("-", "-")
    assert "tested" not in {column.name for column in sheet(study)}


def test_tokens_that_duckdb_cannot_read_are_asked_about_alone(records):
    for place in ("1", "2", "3"):
        records.add(place)
    long = json.dumps({"origin": "plain", "text": "x" * 17_000_000})
    (records.folder / "2" / "tokens.jsonl").write_text(long)
    study = parquet.counted(records.study())
    assert [bool(one.row.origins) for one in study.runs] == [True, False, True]
    assert sentences(study)["2"] == "tokens.jsonl cannot be read by DuckDB"


def test_folders_may_be_named_anything(records, report):
    for place in ("a*[b]?'\"; DROP TABLE x; --", "a,b=c", "x\udcff", HOSTILE.replace("/", "")):
        records.add(place)
    found = report(records.folder)
    assert found.status == 0
    assert len(found.rows) == 4
    assert [row["accepted_tokens"] != "" for row in found.rows].count(True) == 3
    assert r"x\udcff: tokens.jsonl cannot be read by DuckDB" in found.err


def test_names_of_folders_are_no_patterns(records):
    names = ("glob[a]*", "globaX", "q?", "qx", "back\\s", "backs", "both\\s*")
    for place in names:
        records.add(place)
        lines = records.tokens.splitlines(keepends=True)[: 1 + names.index(place)]
        (records.folder / place / "tokens.jsonl").write_text("".join(lines))
    study = parquet.counted(records.study())
    counted = {one.name: sum(one.row.origins.values()) for one in study.runs if one.row.origins}
    assert counted == {place: 1 + number for number, place in enumerate(names[:-1])}
    assert sentences(study)[names[-1]] == "tokens.jsonl cannot be read by DuckDB"


def test_no_name_becomes_a_picture_on_the_terminal(records, report):
    records.add("a:100:b", interrupted=True)
    records.add("c", rule=":warning:")
    err = report(records.folder).err
    assert "a:100:b: was interrupted" in err
    assert ":warning:  " in err


def test_a_long_name_of_a_folder_is_cut_on_the_terminal(records, report):
    place = "/".join(["n" * 200] * 3)
    records.add("1")
    (records.add(place) / "summary.json").write_text("[]")
    (line,) = (line for line in report(records.folder).err.splitlines() if "summary.json must" in line)
    assert line.startswith(f"{'n' * 119}…: ")


def test_what_a_record_says_is_escaped_everywhere(records, report):
    records.add("1")
    hostile = {"prompts.text": HOSTILE, "prompts.=cmd": '=HYPERLINK("http://x")', "prompts.lone": "\ud800"}
    records.add("2", settings=hostile, decided_by="@SUM(1)", error=HOSTILE)
    found = report(records.folder)
    assert found.status == 0
    assert "<script" not in found.page
    assert "\u202e" not in found.page + found.err + found.files["report.csv"].read_text()
    assert found.rows[1]["decided_by"] == "'@SUM(1)"
    assert found.rows[1]["prompts.=cmd"] == '\'=HYPERLINK("http://x")'
    assert found.rows[1]["prompts.lone"] == r"\ud800"
    assert found.rows[1]["prompts.text"].startswith(r"<script>alert(1)</script>|\n=cmd")
    for line in found.page.splitlines():
        if line.startswith("|"):
            assert "`x`" not in line
            assert line.endswith(" |")


@pytest.mark.parametrize("text", ["=1+1", "+1", "-1", "@x", "\t=1", " =1", "\r\n=1"])
def test_no_cell_is_a_formula(text):
    assert csv_cell(text)[0] in "'\\"


@pytest.mark.parametrize("text", ["a;=1", "a; +1", 'a;"=1', "a;;@x"])
def test_no_part_of_a_cell_is_a_formula(text):
    assert re.search(r";'[\s\"]*[=+@]", csv_cell(text))


def test_every_cell_of_the_csv_is_quoted(records, report):
    records.add("1", decided_by='x;=HYPERLINK("http://x")')
    found = report(records.folder)
    head, row = found.files["report.csv"].read_text().splitlines()
    assert head.count('"') == 2 * len(found.rows[0])
    assert re.fullmatch(r'("([^"]|"")*",)*"([^"]|"")*"', row)
    assert found.rows[0]["decided_by"] == 'x;\'=HYPERLINK("http://x")'


@pytest.mark.parametrize(
    "text", ["a|b", "<b>", "a`b", "[x](y)", "![x](y)", "https://x", "www.x.y", "a\\|b", "**a**", "&lt;", "@x", "\n# x"]
)
def test_nothing_is_markup(text):
    shown = markdown(text)
    plain = re.sub(r"&#(\d+);", lambda found: chr(int(found[1])), shown)
    line = one_line(text).strip()
    if plain != f"`{line}`":
        assert plain == line
        assert not re.search(r"[|<>`\[\]*\\@:]|www\.", shown)


def test_keys_of_a_configuration_do_not_replace_columns(records, report):
    records.add("1", settings={"folder": 1, "Rule": "a", "sampler.x": 1, "sampler.X": 1})
    records.add("2", settings={"folder": 2, "Rule": "b", "sampler.x": 2, "sampler.X": 2})
    found = report(records.folder)
    assert [row["folder"] for row in found.rows] == ["1", "2"]
    assert [row["config.folder"] for row in found.rows] == ["1", "2"]
    assert [row["config.Rule"] for row in found.rows] == ["a", "b"]
    assert [row["config.sampler.X"] for row in found.rows] == ["1", "2"]
    assert duckdb.read_parquet(str(found.files["report.parquet"])).columns == list(found.rows[0])


def test_a_configuration_has_so_many_keys_at_most(records):
    records.add("1")
    records.add("2", settings={f"x.k{place}": place for place in range(3000)})
    records.add("3", settings={"sampler.bias.values": {str(token): 1.0 for token in range(3000)}})
    study = records.study()
    assert [one.name for one in study.runs] == ["1", "3"]
    assert "of at most 2000 keys" in sentences(study)["2"]
    assert study.varying == ("sampler.bias.values",)


def test_names_are_so_long_at_most(records):
    records.add("1")
    records.add("2", settings={f"sampler.{'x' * 500}": 1})
    records.add("3", rule="x" * 501)
    records.add("4", settings={f"sampler.{'x' * 492}": 1}, rule="x" * 500)
    study = records.study()
    assert [one.name for one in study.runs] == ["1", "4"]
    assert sentences(study)["2"].startswith("run_started.config must be of keys of at most 500 characters, got 's")
    assert sentences(study)["3"].startswith("rule must be of at most 500 characters, got 'x")


@pytest.mark.parametrize("config", [{"": 1}, {"0": {"a": 1}}, {"": {"a": 1}, "b": 2}])
def test_a_configuration_without_names_is_told_and_the_rest_stands(records, report, config):
    records.add("1")
    started = json.loads((records.add("2") / "events.jsonl").read_text())
    (records.folder / "2" / "events.jsonl").write_text(json.dumps(started | {"config": config}) + "\n")
    found = report(records.folder)
    assert [row["folder"] for row in found.rows] == ["1"]
    assert "2: run_started.config must be of keys that are names" in found.err


# --- DuckDB is told files and nothing else ----------------------------------------------------------------------


@pytest.mark.parametrize(
    "statement",
    [
        "SELECT * FROM read_text('{secret}')",
        "SELECT * FROM '{secret}'",
        "COPY (SELECT 1) TO '{other}'",
        "ATTACH '{other}'",
        "SELECT * FROM read_csv('http://localhost:1/x')",
        "INSTALL httpfs",
        "LOAD httpfs",
        "SET enable_external_access = true",
        "SET autoload_known_extensions = true",
    ],
)
def test_duckdb_opens_no_other_file_and_no_connection(tmp_path, statement):
    (tmp_path / "secret.csv").write_text("a\n1\n")
    (tmp_path / "rows.jsonl").write_text('{"a": 1}\n')
    with parquet._opened([str(tmp_path / "rows.jsonl")]) as database:
        assert database.read_json(str(tmp_path / "rows.jsonl")).fetchall() == [(1,)]
        with pytest.raises(duckdb.Error):
            database.execute(statement.format(secret=tmp_path / "secret.csv", other=tmp_path / "other"))


def test_without_the_extra_nothing_is_begun(records, command, monkeypatch):
    records.add("1")
    monkeypatch.setitem(sys.modules, "duckdb", None)
    monkeypatch.setattr("specfw.tasks.report.gather", lambda *_args, **_more: pytest.fail("began"))
    found = command(records.folder)
    assert found.status == 2
    assert "pip install 'specfw[report]'" in found.err


def test_sources_must_be_folders_with_something_to_read(tmp_path, records, command):
    empty = tmp_path / "empty"
    empty.mkdir()
    found = command(empty)
    assert found.status == 2
    assert "task.source must hold a record that can be read" in found.err
    assert "task.source must name folders" in command(tmp_path / "none").err
    assert "task.source must be a list of at least one folder" in command().err
    unfinished(records.add("1"))
    found = command(records.folder)
    assert found.status == 2
    assert "1: unfinished" in found.err


# --- sweeps that miss jobs --------------------------------------------------------------------------------------


def begun(folder, **said):
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "sweep.json").write_text(json.dumps({"words": ["-m"], "blas": "reference", "threads": 1, **said}))


def test_a_sweep_that_misses_jobs_is_told_once(records, command, monkeypatch):
    for place in range(3):
        (records.add(f"killed/{place}", seed=place) / "job.json").write_text("{}")
    unfinished(records.add("killed/3"))
    failed("seed must be another\n")(records.add("killed/4"))
    begun(records.folder / "killed", jobs=8)
    (records.add("within/killed/0", seed=9) / "job.json").write_text("{}")
    begun(records.folder / "within", jobs=1)  # whose job lies in a sweep within it
    begun(records.folder / "within" / "killed", jobs=1)
    monkeypatch.chdir(records.folder.parent)
    found = command(records.folder.name)
    hint = "to go on: task.resume=records"
    assert " problems=4\n" in found.out
    assert f"killed: sweep: 3 of 8 jobs have finished; {hint}/killed\n" in found.err
    assert f"within: sweep: 0 of 1 jobs have finished; {hint}/within\n" in found.err
    assert found.err.count("jobs have finished") == 2
    # under two sources it counts once, and a folder of any name can be pasted
    spaced = records.folder.rename(records.folder.with_name("a b"))
    told = [one for one in gather([str(spaced), str(spaced / "killed")]).problems if "8 jobs" in one.sentence]
    (line,) = [one.sentence.partition("to go on: ")[2] for one in told]
    assert shlex.split(line) == [f"task.resume='{spaced / 'killed'}'"]


@pytest.mark.parametrize("said", [{}, {"jobs": None}, {"jobs": 2}, {"jobs": 3}], ids=str)
def test_a_sweep_of_which_nothing_is_missing_or_known_is_not_told(said, records):
    for place in range(2):
        (records.add(f"sweep/{place}", seed=place) / "job.json").write_text("{}")
    failed("seed must be another\n")(records.add("sweep/2"))
    begun(records.folder / "sweep", **said)
    assert sentences(records.study()) == {"sweep/2": "failed: seed must be another"}


@pytest.mark.parametrize(
    ("text", "told"), [("{", "sweep.json must be JSON"), ('{"jobs": "many"}', "jobs must be an integer in [0, ")]
)
def test_a_broken_note_of_a_sweep_is_told(text, told, records):
    records.add("sweep/0")
    (records.folder / "sweep" / "sweep.json").write_text(text)
    assert sentences(records.study())["sweep"].startswith(told)


# --- other records ----------------------------------------------------------------------------------------------

OTHERS = {
    "audit": {"line": "[Audit] x", "verdict": "failed", "source": "a|b", "tokens": 9, "log10_e_value": "inf"},
    "proof": {"line": "[Proof] x", "verdict": "passed", "rule": "block", "tests": [{"p_value": 0.25}, {"p_value": 1}]},
    "benchmark": {"line": "[Benchmark] x", "arms": [{}, {}], "recommendation": {"best": "stochastic K=2"}},
    "benchmark_rules": {"line": "[Benchmark rules] x", "sizes": [{}]},
}


def test_audits_proofs_and_benchmarks_have_tables_of_their_own(records, report):
    for kind, numbers in OTHERS.items():
        folder = records.folder / kind
        folder.mkdir(parents=True)
        (folder / f"{kind}.json").write_text(json.dumps(numbers))
        (folder / "error.txt").write_text("a check of the run failed\n")
    found = report(records.folder)
    assert found.out == "[Report] runs=0 passed=0 failed=0 unchecked=0 interrupted=0 others=4 problems=0\n"
    assert "| `audit` | failed | a&#124;b | 9 | inf | - |" in found.page
    assert "| `proof` | passed | `block` | - | - | - | 0.25 | 2 | - |" in found.page
    assert "| `benchmark` | 2 | - | `stochastic K=2` | - | - | - | - |" in found.page
    assert "## Benchmarks of the rules alone" in found.page


@pytest.mark.parametrize("kind", OTHERS)
@pytest.mark.parametrize("text", ["{", "{}", '{"line": 1}', '{"line": "x", "verdict": "odd"}'])
def test_another_record_that_is_broken_is_told(records, kind, text):
    (records.add("1") / f"{kind}.json").write_text(text)
    study = records.study()
    assert len(study.runs) == 1
    assert len(study.problems) == 1


# --- what varies, and pools -------------------------------------------------------------------------------------


def test_what_varies_is_told_from_what_follows(records):
    for place, temperature in enumerate((0.7, 1, 1.0)):
        both = {f"{chain}.temperature.value": temperature for chain in ("sampler", "draft_sampler")}
        records.add(str(place), settings={**both, "seed": place, "task.resume": str(place)}, seed=place)
    assert records.study().varying == ("sampler.temperature.value",)
    records.add("3", settings={"draft_sampler.temperature.value": 0.3, "stop": ["x"], "extra": None})
    assert records.study().varying == ("stop", "sampler.temperature.value", "draft_sampler.temperature.value")


ORDERS = (
    ["bias", "dry", "temperature", "top_k", "top_p", "xtc"],
    ["bias", "dry", "top_k", "top_p", "temperature", "xtc"],
)


def test_long_lists_are_told_by_the_part_in_which_they_differ(records, report):
    for place, order in enumerate(ORDERS):
        records.add(str(place), settings={"sampler.order": order, "draft_sampler.order": order})
    found = report(records.folder)
    assert "| `… temperature, top_k, top_p …` | `stochastic` |" in found.page
    assert "| `… top_k, top_p, temperature …` | `stochastic` |" in found.page
    assert "… temperature, top_k, top_p …" in found.err
    assert [json.loads(row["sampler.order"]) for row in found.rows] == list(ORDERS)


@pytest.mark.parametrize(
    ("lists", "told"),
    [
        ([[0.1, 0.2], [0.3, 0.4], None, "x"], ["[0.1, 0.2]", "[0.3, 0.4]", "null", "x"]),
        ([["a" * 30, "b"], ["a" * 30, "c"], 1, True], ["… b", "… c", "1", "true"]),
        ([["a" * 30, "b"], None], [f"{'a' * 30}, b", "null"]),
        ([["a" * 30], ["a" * 30, "b"], []], ["a" * 30, f"{'a' * 30}, b", "[]"]),
        ([["a", "x" * 30, "b"], ["a", "b"], ["a", "b", "b"]], [f"… {'x' * 30} …", "…", "… b …"]),
        ([["1", "x" * 30], [1, "x" * 30], ["y, z", "x" * 30]], ["'1' …", "1 …", "'y, z' …"]),
        ([[[1, 2], {"a": "b" * 30}], [[1, 3], {"a": "b" * 30}]], ["[1, 2] …", "[1, 3] …"]),
        (["[no list, and longer than short ones", "[" * 5000], ["[no list, and longer than short ones", "[" * 5000]),
    ],
)
def test_what_stands_for_lists_beside_each_other(lists, told):
    values = [json.dumps(one) if isinstance(one, list) else one for one in lists]
    known = parts(values)
    assert [beside(value, known) for value in values] == told


KEYS = ("max_tokens", "sampler.top_k.k", "sampler.top_p.p", "sampler.min_p.p", "sampler.temperature.value", "threads")


def test_keys_without_room_are_told_and_those_kept_tell_rows_apart(records, report):
    """Each of the first four keys sets one run apart from the others, the last two tell all eight."""
    for place in range(8):
        values = (*(int(place == one) for one in range(4)), place % 2, place // 2)
        records.add(str(place), settings=dict(zip(KEYS, values, strict=True)))
    found = report(records.folder)
    head, *rows = found.err.splitlines()
    assert {"temperature", "threads"} <= set(head.split())
    assert len({tuple(row.split()[:4]) for row in rows[:8]}) == 8
    assert rows[8] == "not shown: top_p, min_p"
    assert pooled(records.study()).left_out == ()


def test_no_word_is_lost_of_keys_that_all_have_room(records, report):
    for place in range(2):
        records.add(str(place), settings=dict.fromkeys(KEYS[:2], place))
    assert "not shown" not in report(records.folder).err


def test_short_names_are_unambiguous():
    keys = ("sampler.temperature.value", "draft_sampler.temperature.value", "sampler.top_k.k", "target.path", "seed")
    assert list(short(keys).values()) == [*keys[:2], "top_k", "target", "seed"]


def seeds(records, *counts):
    for place, (accepted, tested) in enumerate(counts):
        check = {"observed": accepted, "expected": tested * 0.6, "variance": tested * 0.24, "z": 0.0}
        forms = {"sum_min": 0.5 + place / 10, "sum_prod": 0.2, "expected_acceptance": 0.5 + place / 10}
        diagnostics = {"calibration": {"closed_form": check}, "closed_forms": forms}
        numbers = {"accepted": accepted, "positions_tested": tested, "diagnostics": diagnostics}
        records.add(str(place), seed=place, settings={"seed": place}, **numbers)


def test_runs_that_differ_in_the_seed_are_pooled_by_what_they_tested(records):
    seeds(records, (50, 100), (10, 30), (9, 10))
    (pool,) = pools(records.study().runs)
    assert (pool.accepted, pool.tested) == (69, 140)
    assert pool.mean("sum_min") == pytest.approx((100 * 0.5 + 30 * 0.6 + 10 * 0.7) / 140)
    assert pool.z == pytest.approx((69 - 84) / math.sqrt(140 * 0.24))
    expected = interval(np.array([50, 10, 9]), np.array([100, 30, 10]), np.array([50, 10, 9]))
    assert pool.interval == (expected["low"], expected["high"], "seeds")
    table = claims(pooled(records.study()))
    assert table.rows == (("0.536", "0.200", "2.7", "0.493"),)


def test_two_seeds_say_nothing_of_how_seeds_differ(records):
    seeds(records, (50, 100), (10, 30))
    (pool,) = pools(records.study().runs)
    assert pool.interval == wilson(60, 130)


def test_wilsons_interval_is_where_a_score_test_turns():
    low, high, _ = wilson(7, 20)
    for end in (low, high):
        assert abs(7 / 20 - end) / math.sqrt(end * (1 - end) / 20) == pytest.approx(1.96, abs=1e-3)
    assert wilson(0, 20).low == 0
    assert wilson(20, 20).high == 1
    assert wilson(0, 0) is None


def test_repeated_and_broken_off_runs_have_rows_and_are_in_no_pool(records):
    seeds(records, (50, 100), (10, 30))
    records.add("3", digest="0-digest")
    records.add("4", interrupted=True)
    records.add("5", error="no such file")
    study = records.study()
    assert len(study.runs) == 5
    (pool,) = pools(study.runs)
    assert [one.name for one in pool.runs] == ["0", "1"]
    told = sentences(study)
    assert told["3"] == "has the digest of 0, and is in no pool"
    assert told["4"].startswith("was interrupted")
    assert told["5"] == "ended by an error, and is in no pool: no such file"


def test_a_permission_is_no_other_configuration(records):
    for place, permitted in enumerate((True, False)):
        records.add(str(place), settings={"allow_lossy": permitted, "seed": place}, seed=place)
    records.add("again", settings={"allow_lossy": False, "seed": 0}, seed=0)
    study = records.study()
    assert study.varying == ()
    (pool,) = pools(study.runs)
    assert [run.name for run in pool.runs] == ["0", "1"]
    assert sentences(study) == {"again": "has the configuration and seed of 0, and is in no pool"}


@pytest.mark.parametrize("key", [("models", "target", "sha256"), ("prompts_digest",)])
def test_runs_of_other_weights_or_prompts_are_not_pooled(records, key):
    seeds(records, (50, 100), (10, 30))
    put(records.started, key, "other")
    records.add("2", seed=2, settings={"seed": 2})
    records.add("3", digest="0-digest")
    records.add("4", digest="0-digest")
    study = records.study()
    assert [[one.name for one in pool.runs] for pool in pools(study.runs)] == [["0", "1"], ["2", "3"]]
    told = sentences(study)
    assert told["3"] == "has the digest of 0 but other models or prompts, and a pool of its own"
    assert told["4"] == "has the digest of 3, and is in no pool"
    assert set(told) == {"3", "4"}


def test_each_closed_form_is_over_the_runs_of_its_own_rule(records):
    for rule, own, other in (("stochastic", "sum_min", "sum_prod"), ("sampler-match", "sum_prod", "sum_min")):
        forms = {own: 0.4, other: 0.3, "expected_acceptance": 0.4}
        settings = {"acceptance.name": rule}
        records.add(rule, rule=rule, settings=settings, diagnostics={"closed_forms": forms})
    head, (row,) = claims(pooled(records.study()))[1:]
    assert row[:3] == ("0.400", "0.400", "1.0")
    assert [getattr(name, "text", name) for name in head] == [
        "sum_min",
        "sum_prod",
        "ratio",
        "sampler-match",
        "stochastic",
    ]


@pytest.mark.parametrize("key", [("models", "target", "sha256"), ("prompts_digest",)])
def test_other_weights_or_prompts_have_a_row_of_their_own(records, key):
    records.add("0", positions_tested=100, accepted=50)
    put(records.started, key, "other")
    records.add("1", positions_tested=100, accepted=10)
    rows = claims(pooled(records.study())).rows
    assert [row[-1] for row in rows] == ["0.500", "0.100"]


def test_a_rules_own_keys_tell_its_runs_apart(records):
    for place, scale in enumerate((0.5, 1.0)):
        records.add(str(place), settings={"acceptance": {"name": "lossy", "scale": scale}}, rule="lossy")
    records.add("2", settings={"acceptance": {"name": "other"}}, rule="other")
    assert [line.rule for line in pooled(records.study()).lines] == ["lossy (scale=0.5)", "lossy (scale=1.0)", "other"]


def test_the_name_that_a_rule_was_asked_for_by_tells_its_runs_apart(records):
    """At temperature 0 every lossless rule becomes one."""
    for place, name in enumerate(("stochastic", "block")):
        records.add(str(place), settings={"acceptance.name": name}, rule="greedy-argmax", positions_tested=100)
    records.add("2", settings={"acceptance.name": "other"}, rule="other")
    found = pooled(records.study())
    rules = ["greedy-argmax (name=block)", "greedy-argmax (name=stochastic)", "other"]
    assert [line.rule for line in found.lines] == rules
    assert len(claims(found).rows[0]) == len(rules) + 3


def test_the_distortion_of_a_lossy_rule_is_pooled_by_rounds(records):
    for seed, (rounds, acceptance) in enumerate(((10, 0.9), (30, 0.5))):
        first = {"acceptance": acceptance, "sum_min": 0.55}
        forms = {"first_position": first, "distortion_lower_bound": max(0, acceptance - 0.55)}
        diagnostics = {"closed_forms": forms}
        numbers = {"preserves_target": False, "rounds": rounds, "diagnostics": diagnostics}
        records.add(str(seed), seed=seed, settings={"seed": seed}, **numbers)
    study = records.study()
    assert [one.row.distortion_lower_bound for one in study.runs] == pytest.approx([0.35, 0])
    (pool,) = pools(study.runs)
    assert pool.distortion_lower_bound == pytest.approx((10 * 0.35 - 30 * 0.05) / 40)


def test_places_are_ordered_by_value(records):
    for place, value in enumerate((10, 9, None, 0.5, "x", True)):
        records.add(str(place), settings={"prompts.select": value})
    assert [row[0] for row in checks(pooled(records.study())).rows][2:5] == ["0.5", "9", "10"]


# --- many -------------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_thousand_records_take_less_than_half_a_minute(records, command):
    for place in range(1000):
        seed = place % 10
        settings = {"seed": seed, "sampler.temperature.value": 0.5 + place // 10 / 100}
        records.add(str(place), seed=seed, settings=settings)
    began = time.monotonic()
    found = command(records.folder)
    assert time.monotonic() - began < 30
    assert len(found.rows) == 1000
    assert found.page.count("\n| ") > 200
    assert sum(path.stat().st_size for path in found.files.values()) < 10 * 2**20
    assert len(columns(records.study())) > 40
    assert len(page(records.study())) < 2**20
