"""A package of a user's own: found by entry point and by `plugins`, recorded, and held by the contract."""

import json
import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import specfw
from specfw import registry
from specfw.__main__ import main
from specfw.config import schemas  # noqa: F401 # registers our own components, before theirs are forgotten again
from specfw.verification.contract import check_rule

import pytest

ROOT = Path(specfw.__file__).parents[1]
PAGE = (ROOT / "docs" / "your-own-package.md").read_text()
FILES = dict(re.findall(r"[Ss]ave as `([^`]+)`[^\n]*\n+```\w+\n(.*?)```", PAGE, flags=re.DOTALL))
"""What the page tells the reader to save."""

RUN = ["pair=toy_a", "acceptance=damped", "max_tokens=40", "seed=3"]


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """The files of the page in a folder of their own, and what importing them does undone afterwards."""
    forget()
    for name, text in FILES.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    monkeypatch.setattr(registry, "_components", {group: dict(known) for group, known in registry._components.items()})
    monkeypatch.setattr(registry, "_plugins", {})
    monkeypatch.setenv("SPECFW_OUTPUTS", str(tmp_path / "outputs"))
    monkeypatch.syspath_prepend(tmp_path)
    yield tmp_path
    forget()


def forget():
    """As if the package had never been imported."""
    for module in [name for name in sys.modules if name.partition(".")[0] in ("my_rules", "forgetful")]:
        del sys.modules[module]


def install(folder, value=None):
    """What an installer leaves beside an editable install: the project's metadata on Python's path."""
    project = tomllib.loads((folder / "pyproject.toml").read_text())["project"]
    info = folder / f"my_rules-{project['version']}.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {project['name']}\nVersion: {project['version']}\n")
    points = project["entry-points"][registry.ENTRY_POINTS]
    lines = [f"{name} = {value or where}" for name, where in points.items()]
    (info / "entry_points.txt").write_text("\n".join([f"[{registry.ENTRY_POINTS}]", *lines, ""]))


def records(folder):
    return sorted((folder / "outputs").glob("2*/*"))


def event(record, name):
    events = map(json.loads, (record / "events.jsonl").read_text().splitlines())
    return next(event for event in events if event["event"] == name)


def said(capsys, *words, status=0):
    assert main([*words]) == status, capsys.readouterr().err
    return capsys.readouterr()


def test_the_page_has_all_its_files():
    assert set(FILES) == {
        "my_rules/__init__.py",
        "my_rules/damped.py",
        "pyproject.toml",
        "options/acceptance/faint.yaml",
        "tests/test_my_rules.py",
        "forgetful.py",
    }


def test_it_is_not_there_unasked(folder, capsys):
    assert "acceptance must be one of: " in said(capsys, *RUN, status=2).err
    assert "my_rules" not in sys.modules


def test_an_installed_package_runs_without_being_named(folder, capsys):
    install(folder)
    out = said(capsys, *RUN).out
    assert re.search(r"^\[Speculative acceptance\] rule=damped rounds=\d+ ", out, flags=re.MULTILINE)
    assert out.rstrip().endswith("(damped rejection sampling)")
    (record,) = records(folder)
    summary = json.loads((record / "summary.json").read_text())
    assert (summary["rule"], summary["preserves_target"], summary["verdict"]) == ("damped", True, "passed")
    assert event(record, "rule_active")["rule"] == "damped"
    assert "damped" in said(capsys, "--help").out


def test_a_named_package_runs_alike(folder, capsys):
    """The same words, the same digest: how a rule was found is no part of what it does. The record says it."""
    named = said(capsys, "plugins=[my_rules]", *RUN).out
    assert event(records(folder)[0], "run_started")["plugins"] == ["my_rules"]
    install(folder)
    assert said(capsys, "plugins=[my_rules]", *RUN).out == named
    forget()
    assert said(capsys, *RUN).out == named
    digests = {json.loads((record / "summary.json").read_text())["digest"] for record in records(folder)}
    assert len(digests) == 1


def test_its_keys_are_set_by_word_and_by_file(folder, capsys):
    install(folder)
    by_word = said(capsys, *RUN, "acceptance.share=0.1").out
    by_file = said(capsys, "--config-dir", str(folder / "options"), *RUN, "acceptance=faint").out
    assert by_word == by_file
    assert "rule=damped" in by_file
    assert "acceptance.share must be in (0, 1], got 2.0" in said(capsys, *RUN, "acceptance.share=2", status=2).err
    assert "acceptance.shares is not a key; did you mean " in said(capsys, *RUN, "acceptance.shares=1", status=2).err


def test_all_of_the_share_is_modified_rejection_sampling(folder, capsys):
    def text(*words):
        return said(capsys, "plugins=[my_rules]", *RUN, *words).out.partition("[Spec")[0]

    assert text("acceptance.share=1.0") == text("acceptance=stochastic")


def test_its_acceptance_is_what_it_says(folder, capsys):
    said(capsys, "plugins=[my_rules]", *RUN, "num_samples=60")
    (record,) = records(folder)
    numbers = json.loads((record / "summary.json").read_text())
    assert numbers["verdict"] == "passed"
    assert numbers["diagnostics"]["closed_forms"]["expected_acceptance"] == pytest.approx(1 / 3)
    assert numbers["per_position_acceptance"] == pytest.approx(1 / 3, abs=0.05)


def test_a_sweep_over_its_rule_and_ours(folder, capsys):
    install(folder)
    out = said(capsys, "-m", *RUN, "acceptance=stochastic,damped").out
    assert re.findall(r"rule=(\S+)", out) == ["stochastic", "damped"]


def test_a_replay_of_an_installed_rule(folder, capsys):
    install(folder)
    out = said(capsys, *RUN).out
    (record,) = records(folder)
    assert said(capsys, f"replay='{record}'").out == out


def test_python_callers_find_it(folder):
    install(folder)
    summary = specfw.run(specfw.compose(RUN))
    assert "rule=damped" in summary.line


# --- the contract -----------------------------------------------------------------------------------------------


def test_it_holds_the_contract(folder):
    from my_rules.damped import Damped

    check_rule(Damped(), count=50)


@pytest.mark.slow
def test_the_tests_of_the_page_pass_in_a_process_of_their_own(folder):
    paths = os.pathsep.join([str(ROOT), str(folder)])
    words = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "tests"]
    child = subprocess.run(
        words, cwd=folder, env=os.environ | {"PYTHONPATH": paths}, capture_output=True, text=True, check=False
    )
    assert (child.returncode, "3 passed" in child.stdout) == (0, True), child.stdout


BROKEN = {
    "the residual of another rule": ("1 / self.share)", "1.0)"),
    "the target in place of the residual": ("return p.excess(overlap, 1 / self.share)", "return p"),
    "a closed form that forgets the share": ("return self.share * p.overlap(q)", "return p.overlap(q)"),
    "a share that is taken once": ("mx.cumprod(self.share * ratio, axis=1)", "self.share * mx.cumprod(ratio, axis=1)"),
    "survival beyond 1": ("self.share * ratio", "3 * ratio"),
    "each token for itself": ("mx.cumprod(self.share * ratio, axis=1)", "self.share * ratio"),
    "an id that is no kebab": ('id = "damped"', 'id = "Damped_rule"'),
    "no label": ('label = "damped rejection sampling"', 'label = ""'),
}


@pytest.mark.parametrize("fault", sorted(BROKEN))
def test_a_broken_rule_is_caught(fault, folder):
    right, wrong = BROKEN[fault]
    code = FILES["my_rules/damped.py"]
    assert code.count(right) == 1
    (folder / "my_rules" / "damped.py").write_text(code.replace(right, wrong))
    from my_rules.damped import Damped

    with pytest.raises(AssertionError):
        check_rule(Damped(), count=20)


def test_a_run_of_a_broken_rule_fails(folder, capsys):
    words = ["plugins=[forgetful]", *RUN, "acceptance=forgetful", "max_tokens=200", "num_samples=20"]
    assert "a check of the run failed" in said(capsys, *words, status=1).err


# --- what cannot be loaded --------------------------------------------------------------------------------------


@pytest.mark.parametrize("where", ["my_rulez", "my_rules:nothing", "my_rules.nothing"])
def test_an_entry_point_that_leads_nowhere_is_named(where, folder, capsys):
    install(folder, where)
    err = said(capsys, *RUN, status=2).err
    assert err.startswith(f"specfw: specfw.components 'my_rules' cannot be loaded from '{where}': ")
    assert err.count("\n") == 1


@pytest.mark.parametrize("how", ["entry point", "plugins"])
def test_a_module_that_is_broken_is_named(how, folder, capsys):
    (folder / "my_rules" / "damped.py").write_text("def (\n")
    if how == "entry point":
        install(folder)
    err = said(capsys, *RUN, *(["plugins=[my_rules]"] if how == "plugins" else []), status=2).err
    assert "my_rules" in err
    assert "damped.py, line 1" in err
    assert err.count("\n") == 1


@pytest.mark.parametrize("how", ["entry point", "plugins"])
def test_what_goes_wrong_in_a_module_is_told_with_its_place(how, folder, capsys):
    (folder / "my_rules" / "damped.py").write_text("\nvalue = undefined\n")
    if how == "entry point":
        install(folder)
    err = said(capsys, *RUN, *(["plugins=[my_rules]"] if how == "plugins" else []), status=2).err
    assert err.endswith(f"name 'undefined' is not defined ({folder / 'my_rules' / 'damped.py'}, line 2)\n")
    assert err.count("\n") == 1


@pytest.mark.parametrize("class_name", ["Stochastic", "Mine"])
def test_a_name_that_is_taken_is_refused_with_both_modules(class_name, folder, capsys):
    code = FILES["my_rules/damped.py"].replace("class Damped", f"class {class_name}")
    (folder / "my_rules" / "stochastic.py").write_text(code)
    err = said(capsys, "plugins=[my_rules]", *RUN, status=2).err
    assert "acceptance 'stochastic' is registered twice: specfw.acceptance.stochastic, my_rules.stochastic" in err


def test_a_record_cannot_name_a_package(folder, capsys):
    said(capsys, "plugins=[my_rules]", *RUN)
    (record,) = records(folder)
    file = record / "config.yaml"
    file.write_text(file.read_text() + "plugins: [my_rules]\n")
    assert "plugins must be given on the command line alone" in said(capsys, f"replay='{record}'", status=2).err
