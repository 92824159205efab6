import re
import shlex
import sys
from pathlib import Path

import specfw
from specfw import registry
from specfw.config import composing, overrides, schemas
from specfw.config.checks import checked
from specfw.config.composing import conf_dir

import pytest
import yaml
from hydra import compose as hydra_compose
from hydra import initialize_config_dir
from hydra.core.config_store import ConfigStore
from hydra.core.global_hydra import GlobalHydra

TOY = "pair=iid"
CONF = conf_dir()
OPTIONS = sorted(path.relative_to(CONF).with_suffix("") for path in CONF.rglob("*.yaml") if path.parent != CONF)
OF_EXTRAS = ("experiment/tune", "hydra/launcher/ray_local", "hydra/launcher/ray_cluster")
WITH_EXTRAS = [
    pytest.param(option, marks=pytest.mark.launchers if str(option) in OF_EXTRAS else ()) for option in OPTIONS
]
OURS = [option for option in WITH_EXTRAS if option.values[0].parts[0] != "hydra"]
NEEDS = {
    "pair/custom": ["model@target=cache_length", "model@drafter=cache_length"],
    "prompts/texts": ["prompts.texts=[a]"],
    "prompts/chat": ["prompts.messages=[{role:user,content:x}]"],
    "prompts/file": ["prompts.path=x"],
    "prompts/json_lines": ["prompts.path=x"],
    "prompts/ids": ["prompts.ids=[0]"],
    "task/audit": ["task.source=x"],
    "task/report": ["task.source=[x]"],
    "model/cycle": ["target.successors=[0]"],
    "model/iid": ["target.probs=[1]"],
    "model/markov": ["target.rows=[[1]]"],
    "model/position": ["target.rows=[[1]]"],
    "model/checkpoint": ["target.path=zoo:target"],
    "model/gguf": ["target.path=x.gguf"],
}
"""What an option cannot be composed without."""

PLUGIN = """
from dataclasses import dataclass
from specfw.acceptance.sampler_match import SamplerMatch
from specfw.registry import register
from specfw.sampling.temperature import Temperature

@register("acceptance", "mine")
@dataclass(frozen=True, kw_only=True)
class Mine:
    weight: float = 1.0

@register("filter", "my_filter")
@dataclass(frozen=True, kw_only=True)
class MyFilter:
    strength = "x"
    x: float = 0.0
    neutral = True
"""


@pytest.fixture
def plugin(tmp_path, monkeypatch):
    """An importable module that registers a rule and a filter, forgotten afterwards."""
    monkeypatch.setattr(registry, "_components", {group: dict(known) for group, known in registry._components.items()})
    (tmp_path / "a_plugin.py").write_text(PLUGIN)
    monkeypatch.syspath_prepend(tmp_path)
    yield "a_plugin"
    sys.modules.pop("a_plugin", None)


@pytest.fixture
def record(tmp_path):
    """A function that leaves a run's config.yaml in a folder."""

    def leave(*lines, **changes):
        folder = tmp_path / "a run"
        folder.mkdir(exist_ok=True)
        (folder / "config.yaml").write_text(yaml.safe_dump(specfw.compose([TOY, *lines]) | changes))
        return folder

    return leave


def refusal(*lines):
    with pytest.raises(ValueError) as error:  # noqa: PT011 # the sentence is what the caller looks at
        specfw.compose(lines)
    return str(error.value)


# --- what comes of overrides ------------------------------------------------------------------------------------


def test_overrides_become_a_plain_mapping():
    config = specfw.compose([TOY, "seed=7", "acceptance=stochastic", "sampler.temperature.value=0.5"])
    assert type(config) is dict
    assert config["seed"] == 7
    assert config["acceptance"] == {"name": "stochastic", "strict": False}
    assert config["sampler"]["temperature"] == {"value": 0.5}
    assert config["target"]["name"] == config["drafter"]["name"] == "iid"
    assert config["prompts"]["text"] == "0"
    assert not {"hydra", "plugins", "replay", "defaults"} & set(config)


def test_the_default_is_the_shipped_pair_and_no_rule_but_a_request_for_one():
    config = specfw.compose()
    assert (config["target"]["path"], config["drafter"]["path"]) == ("zoo:target", "zoo:drafter")
    assert config["acceptance"] == {"name": "auto", "strict": False}
    assert config["task"] == {"name": "generate", "objective": None}


def test_the_schema_holds_the_keys_that_the_first_page_explains():
    page = yaml.safe_load((CONF / "config.yaml").read_text())
    chosen = {re.sub(r".*@", "", key) for entry in page["defaults"] if isinstance(entry, dict) for key in entry}
    explained = (set(page) - {"defaults"}) | chosen - {"pair", "experiment"} | {"target", "drafter", "drafting"}
    explained = {key for key in explained if not key.startswith("override ")}
    assert explained == set(schemas.Root.__dataclass_fields__)


def test_the_draft_chain_follows_the_targets_leaf_by_leaf():
    lines = [TOY, "sampler.temperature.value=0.5", "sampler.bias.values={1: 2.0}", "draft_sampler.top_k.k=3"]
    lines += ["sampler.order=[bias,temperature,top_k]", "draft_sampler.order=[bias,temperature,top_k]"]
    config = specfw.compose(lines)
    assert config["draft_sampler"]["temperature"] == {"value": "${sampler.temperature.value}"}
    assert config["draft_sampler"]["top_k"]["k"] == 3
    resolved = checked(config).config
    assert resolved["draft_sampler"]["temperature"] == {"value": 0.5}
    assert resolved["draft_sampler"]["bias"]["values"] == {1: 2.0}
    assert resolved["sampler"]["top_k"]["k"] != 3
    assert set(resolved["draft_sampler"]) == {"order", *registry.names("filter")}


def test_a_mapping_takes_keys_of_its_own_in_either_chain():
    order = "sampler.order=[bias]"
    config = specfw.compose([TOY, order, "sampler.bias.values={3: 1.0}", "draft_sampler.bias.values={2: -1.0}"])
    assert config["sampler"]["bias"]["values"] == {3: 1.0}
    assert config["draft_sampler"]["bias"]["values"] == {2: -1.0}


def test_only_the_draft_chains_interpolations_stay_in_the_record(monkeypatch):
    monkeypatch.setenv("SOME_SEED", "11")
    monkeypatch.setenv("SOME_SHARE", "0.5")
    config = specfw.compose([TOY, "seed=${oc.env:SOME_SEED}", "draft_sampler.top_p.p=${oc.env:SOME_SHARE}"])
    assert config["seed"] == 11
    assert config["draft_sampler"]["top_p"]["p"] == 0.5


@pytest.mark.parametrize("text", ["${x}", "a ${x", r"\${x}", r"\\${x}", r"C:\n", "$x {y} ${"])
def test_what_looks_like_an_interpolation_is_read_again_as_it_was(text, record):
    config = specfw.compose([TOY])
    escaped = re.sub(r"(\\*)\$\{", r"\1\1\\${", text)
    config["prompts"]["text"] = escaped
    config["stop"] = [escaped]
    first = checked(config)
    assert (first.config["prompts"]["text"], first.config["stop"]) == (text, [text])
    assert checked(first.unresolved) == first
    folder = record(prompts=first.unresolved["prompts"])
    assert checked(specfw.compose([f"replay={quoted(folder)}"])).config["prompts"]["text"] == text


def test_hydras_own_values_may_be_used():
    assert specfw.compose([TOY, "prompts.text=${hydra:job.name}"])["prompts"]["text"] == "specfw"


def test_an_experiments_own_keys_are_not_lost(tmp_path):
    folder = tmp_path / "experiment"
    folder.mkdir()
    (folder / "own.yaml").write_text("# @package _global_\ndefaults:\n  - override /pair: toy_a\n  - _self_\nseed: 5\n")
    config = specfw.compose(["experiment=own", f"hydra.searchpath=[file://{tmp_path}]"])
    assert (config["seed"], config["target"]["probs"]) == (5, ["1/3", "2/3"])


def test_composing_keeps_out_of_an_applications_own_hydra(tmp_path):
    (tmp_path / "app.yaml").write_text("x: 1\n")
    with initialize_config_dir(str(tmp_path), version_base="1.3"):
        assert specfw.compose([TOY])["target"]["name"] == "iid"
        assert hydra_compose("app") == {"x": 1}
    assert not GlobalHydra.instance().is_initialized()


def test_sixty_four_bit_seeds():
    assert specfw.compose([TOY, f"seed={2**64 - 1}"])["seed"] == 2**64 - 1


# --- files ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("option", OPTIONS, ids=str)
def test_a_file_begins_with_its_header_then_says_what_it_is(option):
    first, second, *_ = (CONF / option.with_suffix(".yaml")).read_text().splitlines()
    text = (CONF / option.with_suffix(".yaml")).read_text()
    headed = "# @package" in text
    assert first.startswith("# @package") if headed else first.startswith("# ")
    assert (second if headed else first).startswith("# ")
    assert "python -m specfw" in text


@pytest.mark.parametrize("option", WITH_EXTRAS, ids=str)
def test_the_command_a_file_names_composes(option):
    text = " ".join(
        line.removeprefix("#")
        for line in (CONF / option.with_suffix(".yaml")).read_text().splitlines()
        if line.startswith("#")
    )
    filled_in = text.replace("<date>/<time>", "0")
    for place in ("<folder>", "<hub id>"):
        filled_in = filled_in.replace(place, "zoo:target")
    words = shlex.split(filled_in.partition("python -m specfw")[2])
    assert not any("<" in word for word in words)
    flags = overrides.arguments(words)
    line = overrides.read(flags.overrides)
    with composing.session() as hydra:
        primary = composing.prepare(hydra, line)
        tree = composing.composed(hydra, primary, line, sweep=True)
        if not (flags.help or flags.multirun or composing.is_sweep(tree)):
            composing.check(hydra, primary, line)


@pytest.mark.parametrize("option", OURS, ids=str)
def test_every_option_composes(option):
    group, name = option.parent.as_posix(), option.name
    mount = "model@target" if group == "model" else group
    pair = ["pair=custom", "model@drafter=cache_length", "prompts=toy"] if group == "model" else []
    lines = [*pair, f"{mount}={name}", *NEEDS.get(str(option), [])]
    words = overrides.read(lines)
    with composing.session() as hydra:
        primary = composing.prepare(hydra, words)
        composing.check(hydra, primary, words)


@pytest.mark.parametrize("group", schemas.NAMED)
def test_every_component_has_its_file(group):
    files = {path.stem for path in (CONF / group).glob("*.yaml")}
    assert set(registry.names(group)) <= files


# --- refusals ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("line", "sentence"),
    [
        ("samplr.temperature.value=1", r"samplr\.temperature\.value is not a key; did you mean sampler\.temperature"),
        ("sampler.temperatur.value=1", r"sampler\.temperatur\.value is not a key; did you mean sampler\.temperature"),
        ("accept=stochastic", r"accept is not a key; did you mean acceptance\?"),
        ("+nonsense=1", r"nonsense is not a key; allowed: .*\bseed\b"),
        ("target.path=x", r"target\.path is not a key"),
        ("seed=abc", r"seed must be an integer, got 'abc'"),
        ("seed=1.5", r"seed must be an integer, got 1\.5"),
        ("seed=null", r"seed must be given a value, got None"),
        ("seed=-1", r"seed must be in \[0, 2\^64\), got -1"),
        (f"seed={2**64}", rf"seed must be in \[0, 2\^64\), got {2**64}"),
        ("max_tokens=-1", r"max_tokens must be in \[0, inf\), got -1"),
        ("num_samples=0", r"num_samples must be in \[1, inf\), got 0"),
        ("prefill_chunk=0", r"prefill_chunk must be in \[1, inf\), got 0"),
        ("batch_size=0", r"batch_size must be null or in \[1, inf\), got 0"),
        ("log_level=loud", r"log_level must be one of: info, debug, got 'loud'"),
        ("backend.blas=fast", r"backend\.blas must be auto, openblas or reference, got 'fast'"),
        ("stop=end", r"stop must be a list, got 'end'"),
        ("stop=[[a]]", r"stop must be strings of at least one character, got \[\['a'\]\]"),
        ("stop=[null]", r"stop\[0\] must be given a value, got None"),
        ("prompts.select=[[0]]", r"prompts.select must be of type int, got \[0\]"),
        ("allow_lossy=maybe", r"allow_lossy must be true or false, got 'maybe'"),
        ("sampler.top_p.p=1.5", r"sampler\.top_p\.p must be in .*, got 1\.5"),
        ("draft_sampler.top_p.p=1.5", r"draft_sampler\.top_p\.p must be in .*, got 1\.5"),
        ("sampler.temperature=1", r"sampler\.temperature must be .* keys, got 1: write sampler\.temperature\.value=1$"),
        ("sampler.top_k=50", r"sampler\.top_k must be .* keys, got 50: write sampler\.top_k\.k=50$"),
        ("draft_sampler.temperature=hot", r"draft_sampler\.temperature must be a mapping of its keys, got 'hot'$"),
        ("diagnostics.tokens=false", r"diagnostics\.tokens must be .*: write diagnostics\.tokens\.enabled=false$"),
        ("acceptance=sampler-match", r"acceptance must be .*; got 'sampler-match'; did you mean sampler_match\?$"),
        ("acceptance=Stochasitc", r"acceptance must be .*; got 'Stochasitc'; did you mean stochastic\?$"),
        ("acceptance.name=sampler-match", r"acceptance must be .*; did you mean sampler_match\?$"),
        ("experiment=origin-table", r"experiment must be .*; did you mean origin_table\?$"),
        ("sampler.order=temperature", r"sampler\.order must be a list, got 'temperature'"),
        ("sampler.order={a: 1}", r"sampler\.order must be a list"),
        ("sampler.order=[temperature,temperature]", r"sampler\.order must .*each step once, got 'temperature'"),
        ("sampler.order=[nope]", r"sampler\.order must be made of: .*temperature.*, got 'nope'"),
        ("sampler.temperature.value=${nope}", r"sampler\.temperature\.value: Interpolation key 'nope' not found"),
        ("sampler.bias.values={a: 1}", r"sampler\.bias\.values\.a: Key a \(str\) is incompatible with \(int\)"),
        ("controller.num_draft_tokens=1000", r"controller\.num_draft_tokens must be in \[0, 64\], got 1000"),
        ("acceptance=nope", r"acceptance must be one of: .*stochastic.*; got 'nope'"),
        ("acceptance.name=nope", r"acceptance must be one of: .*stochastic.*; got 'nope'"),
        ("model@target=nope", r"model@target must be one of: .*iid.*; got 'nope'"),
        ("sampler@draft_sampler=nope", r"sampler@draft_sampler must be one of: as_target, .*; got 'nope'"),
        ("experiment=nope", r"experiment must be one of: .*smoke, tune; got 'nope'"),
        ("target.name=cycle", r"target\.probs is not a key"),
        ("model=iid", r"model is not mounted by that name; allowed: model@drafter, model@target"),
        ("model@targt=iid", r"model@targt is not mounted by that name; allowed: model@drafter, model@target"),
        ("acceptance=null", r"acceptance must be the name of one option, got 'acceptance=null'"),
        ("experiment=null", r"experiment must be the name of one option, got 'experiment=null'"),
        ("acceptance=[auto,stochastic]", r"acceptance must be the name of one option"),
        ("+acceptance=stochastic", r"acceptance is chosen already: write acceptance=stochastic without the \+"),
        ("target=3", r"target must be a mapping of its keys, got 3"),
        ("drafter=null", r"drafter must be a model unless drafting=none, got None"),
        ("prompts.select=[-1]", r"prompts\.select must be"),
        ("diagnostics.nope.enabled=true", r"diagnostics\.nope\.enabled is not a key; did you mean diagnostics\."),
        ("task.source=x", r"task\.source is not a key"),
        ("seed=1,2", r"seed=1,2 is a sweep: add --multirun"),
        ("seed", r"an override must be key=value, got 'seed'"),
        ("=3", r"an override must be key=value, got '=3'"),
        ("[", r"an override must be key=value, got '\['"),
        ("sampler=as_target", r"sampler must be .*: write sampler@draft_sampler=as_target"),
        ("draft_sampler=seed", r"draft_sampler must be .* chosen as sampler@draft_sampler=seed"),
        ("draft_sampler=seed,hf", r"draft_sampler must be .* chosen as sampler@draft_sampler=seed,hf"),
        ("plugins=[no_such_module]", r"plugins must name importable modules; 'no_such_module'"),
        ("plugins=no_such_module", r"plugins must be a list of importable modules"),
        ("replay=/nonexistent", r"replay must be the folder of a run that left its config\.yaml, got '/nonexistent'"),
        ("backend.threads=1,2", r"backend\.threads must be one value, the BLAS is bound before MLX is imported"),
        ("replay=a,b", r"replay must be one value, a record is loaded before anything is composed"),
    ],
)
def test_a_refusal_is_one_sentence(line, sentence):
    said = refusal(TOY, line)
    assert re.match(sentence, said)
    assert "\n" not in said


def test_models_of_another_kind_go_together():
    assert "pair=custom" in refusal("model@target=iid")
    assert refusal("pair=custom") == refusal("pair=custom", "seed=1")
    assert re.match(r"model@\w+ must be one of: .*; got nothing", refusal("pair=custom"))
    assert refusal("pair=custom", "model@target=iid", "model@drafter=iid") == "target.probs must be given"
    assert "drafter must be a model" in refusal("pair=plain", "drafting=model")


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("plugins: [a_plugin]", r"plugins must be given on the command line alone, got \['a_plugin'\]"),
        ("replay: /tmp", r"replay must be given on the command line alone, got '/tmp'"),
        ("defaults:\n  - override /sampler: as_target", r"sampler\.\S+: Recursive interpolation"),
        ("nonsense: 1", r"nonsense is not a key.*\(in experiment/bad\)"),
        ("seed: x", r"seed must be an integer, got 'x' \(in experiment/bad\)"),
        ("defaults:\n  - override /acceptance: nope", r"acceptance must be one of"),
        ("a: [", r"in .*bad\.yaml"),
    ],
)
def test_a_file_is_refused_like_a_line(tmp_path, text, sentence, plugin):
    folder = tmp_path / "experiment"
    folder.mkdir()
    (folder / "bad.yaml").write_text(f"# @package _global_\n{text}\n")
    said = refusal(TOY, "experiment=bad", f"hydra.searchpath=[file://{tmp_path}]")
    assert re.search(sentence, said)
    assert "\n" not in said
    assert plugin not in sys.modules


def test_a_callers_mapping_goes_through_the_schemas_too():
    config = specfw.compose([TOY])
    for changes, sentence in [
        ({"seed": "x"}, "seed must be an integer, got 'x'"),
        ({"sed": 1}, "sed is not a key"),
        ({"controller": {"name": "constant", "num_draft_tokens": -1}}, "controller.num_draft_tokens must be"),
        (
            {"controller": {"num_draft_tokens": 1}},
            "controller must be one of: confidence, constant, cost, heuristic; got 'None'",
        ),
        ({"plugins": ["os"]}, "plugins must be given on the command line alone"),
        ({"sampler": None}, "sampler must be a mapping of its keys, got None"),
    ]:
        with pytest.raises(ValueError, match=re.escape(sentence)):
            specfw.run(config | changes)
    del config["seed"]
    with pytest.raises(ValueError, match="seed must be given"):
        specfw.run(config)


# --- plugins ----------------------------------------------------------------------------------------------------


def test_a_plugin_is_selectable_without_a_file(plugin):
    config = specfw.compose([TOY, f"plugins=[{plugin}]", "acceptance=mine", "acceptance.weight=2"])
    assert config["acceptance"] == {"name": "mine", "weight": 2.0}
    assert config["sampler"]["my_filter"] == {"x": 0.0}
    assert config["draft_sampler"]["my_filter"] == {"x": "${sampler.my_filter.x}"}


def test_a_plugins_own_file_comes_first(plugin, tmp_path):
    folder = tmp_path / "acceptance"
    folder.mkdir()
    (folder / "mine.yaml").write_text("defaults:\n  - /schema/acceptance/mine@_here_\n  - _self_\nweight: 3\n")
    lines = [TOY, f"plugins=[{plugin}]", "acceptance=mine"]
    with_file = specfw.compose([*lines, f"hydra.searchpath=[file://{tmp_path}]"])
    assert with_file["acceptance"]["weight"] == 3.0
    assert specfw.compose(lines)["acceptance"]["weight"] == 1.0


def test_what_a_plugin_stored_itself_is_kept(plugin):
    store = ConfigStore.instance()
    store.store(group="prompts", name="of_a_plugin", node={"defaults": ["text", "_self_"], "text": "1 2"})
    try:
        assert specfw.compose([TOY, "prompts=of_a_plugin"])["prompts"]["text"] == "1 2"
        assert specfw.compose([TOY, "prompts=of_a_plugin"])["prompts"]["text"] == "1 2"
    finally:
        del store.repo["prompts"]["of_a_plugin.yaml"]


# --- replay -----------------------------------------------------------------------------------------------------


def test_a_record_is_replayed_as_it_was(record):
    lines = ["seed=5", "acceptance=stochastic", "sampler.temperature.value=0.5", "draft_sampler.top_k.k=2", "stop=[a]"]
    lines += ["pair=toy_m"]
    folder = record(*lines)
    assert specfw.compose([f"replay={quoted(folder)}"]) == specfw.compose([TOY, *lines])


@pytest.mark.parametrize(
    ("line", "key", "value"),
    [
        ("seed=9", "seed", 9),
        ("acceptance=stochastic", "acceptance", {"name": "stochastic", "strict": False}),
        ("controller.num_draft_tokens=2", "controller", {"name": "constant", "num_draft_tokens": 2}),
        ("pair=toy_a", "target", {"name": "iid", "probs": ["1/3", "2/3"], "eos_id": None}),
        (
            "model@drafter=cache_length",
            "drafter",
            {"name": "cache_length", "vocab_size": 4, "peak": 0.7, "eos_id": None},
        ),
        ("diagnostics=none", "diagnostics", {name: {"enabled": False} for name in registry.names("diagnostic")}),
        ("experiment=smoke", "max_tokens", 32),
        ("drafting=none", "drafting", {"name": "none"}),
    ],
)
def test_further_overrides_apply_to_a_replay(record, line, key, value):
    folder = record("seed=5", "sampler.temperature.value=0.5")
    config = specfw.compose([f"replay={quoted(folder)}", line])
    if key == "diagnostics":
        config[key] = {name: {"enabled": node["enabled"]} for name, node in config[key].items()}
    assert config[key] == value
    assert config["sampler"]["temperature"]["value"] == 0.5
    assert config["draft_sampler"]["temperature"]["value"] == "${sampler.temperature.value}"


def test_a_replay_without_drafter(record):
    folder = record("pair=plain", "seed=3")
    assert specfw.compose([f"replay={quoted(folder)}"])["drafter"] is None
    assert specfw.compose([f"replay={quoted(folder)}", "pair=toy_a"])["drafter"]["name"] == "iid"


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"seed": "x"}, "seed must be an integer, got 'x'"),
        ({"nonsense": 1}, "nonsense is not a key"),
        ({"acceptance": {"name": "nope"}}, "acceptance must be one of: "),
        ({"acceptance": {"name": "stochastic", "strict": False, "more": 1}}, "acceptance.more is not a key"),
        ({"controller": {"name": "constant", "num_draft_tokens": -1}}, "controller.num_draft_tokens must be in"),
        ({"plugins": ["os"]}, "plugins must be given on the command line alone, got ['os']"),
        ({"replay": "x"}, "replay must be given on the command line alone, got 'x'"),
    ],
)
def test_a_bad_record_is_refused(record, changes, sentence):
    folder = record(**changes)
    assert refusal(f"replay={quoted(folder)}").startswith(f"replay={folder}: {sentence}")


@pytest.mark.parametrize("text", ["a: [", "- 1", "", "just words"])
def test_what_is_no_record_is_refused(record, text):
    folder = record()
    (folder / "config.yaml").write_text(text)
    said = refusal(f"replay={quoted(folder)}")
    assert said.startswith(f"replay={folder}: ")
    assert "\n" not in said


def test_nothing_of_a_replay_is_left_behind(record):
    specfw.compose([f"replay={quoted(record())}"])
    assert "acceptance must be one of" in refusal(TOY, "acceptance=recorded_acceptance")


def quoted(folder: Path) -> str:
    return f"'{folder}'"
