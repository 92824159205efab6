"""What the site adds to the pages: a table of contents, every key, every module, links that still lead somewhere."""

import importlib
import re
import runpy
import sys
from dataclasses import dataclass
from pathlib import Path

import specfw
from specfw import registry
from specfw.config import schemas
from specfw.config.composing import conf_dir
from specfw.registry import require

import pytest
from omegaconf import DictConfig, OmegaConf

ROOT = Path(specfw.__file__).parents[1]
DOCS = ROOT / "docs"
INDEX = DOCS / "index.md"


@pytest.fixture(scope="module")
def site():
    """The modules of docs/site_tools, without Sphinx."""
    sys.path.insert(0, str(DOCS))
    names = ("api", "contents", "docstrings", "key_page", "keys", "links", "options", "ranges")
    yield type("Site", (), {name: importlib.import_module(f"site_tools.{name}") for name in names})
    sys.path.remove(str(DOCS))


# --- the table of contents --------------------------------------------------------------------------------------


def test_every_page_is_in_the_table_of_contents_once(site):
    listed = [page for pages in site.contents.sections(INDEX.read_text()).values() for page in pages]
    pages = {str(path.relative_to(DOCS).with_suffix("")) for path in DOCS.rglob("*.md")} - {"index"}
    assert sorted(listed) == sorted(pages)


def test_a_section_becomes_a_toctree(site):
    made = site.contents.with_toctrees(
        "# a\n\n## One\n\n- [first](b.md): words\n- [second](c/d.md)\n\n## Two\n\nwords\n"
    )
    assert made.count("{toctree}") == 1
    assert ":caption: One\n:hidden:\n\nfirst <b>\nsecond <c/d>\n" in made


# --- every key --------------------------------------------------------------------------------------------------


def leaves(node, before):
    """Keys of a schema that hold values; a mapping without a schema of its own is one."""
    for name in node:
        child = None if OmegaConf.is_missing(node, name) else node[name]
        if isinstance(child, DictConfig) and OmegaConf.get_type(child) is not dict:
            yield from leaves(child, f"{before}{name}.")
        else:
            yield f"{before}{name}"


def known():
    """Every key that the schemas know."""
    found = set(schemas.Root.__dataclass_fields__) - set(schemas.NODES)
    for node, group in schemas.NODES.items():
        for name in schemas.names(group):
            found |= set(leaves(schemas.schema(group, name), f"{node}."))
    return found


def rows(page):
    """The cells of the tables of keys."""
    for table in re.findall(r"^\| key \|.*\n\|.*\n((?:\|.*\n)+)", page, flags=re.MULTILINE):
        yield from (re.split(r"(?<!\\)\|", line)[1:-1] for line in table.splitlines())


def test_the_reference_lists_every_key_and_no_other(site):
    listed = {key for keys, *_ in rows(site.key_page.body()) for key in re.findall(r"`([\w.]+)`", keys)}
    assert listed == known()


def test_every_key_has_a_type_a_default_and_words(site):
    entries = [*site.keys.root(), *(k for group in site.keys.groups() for part in group.sections for k in part.keys)]
    for key in entries:
        assert key.kind, key.paths
        assert key.default or key.default is None, key.paths
        assert key.words, key.paths


def test_defaults_are_those_of_a_composed_configuration(site):
    """Of the options that are chosen when nothing is said."""
    composed = specfw.compose()
    defaults = {path: key.default for key in site.keys.root() for path in key.paths}
    for group in site.keys.groups():
        for section in group.sections:
            named = section.title.partition("=")[2]
            if all(node not in composed or named in ("", "...", composed[node].get("name")) for node in group.nodes):
                defaults |= {path: key.default for key in section.keys for path in key.paths}
    compared = 0
    for path, default in defaults.items():
        value = composed
        for part in path.split("."):
            value = value.get(part) if isinstance(value, dict) else None
        if default is not None and not path.endswith(".name") and not path.startswith("draft_sampler."):
            compared += value is not None
            assert value is None or site.keys.written(value) == default, path
    assert compared > 40


def test_every_option_is_listed_with_what_it_sets(site):
    page = site.key_page.body()
    for group in ("pair", "experiment", *schemas.NODES.values()):
        for path in (conf_dir() / group).glob("*.yaml"):
            assert re.search(rf"^\| `{path.stem}` \| \S", page, flags=re.MULTILINE), path
    assert "`sampler.repetition.window=64`" in page
    assert "`target.probs=[0.1, 0.2, 0.3, 0.4]`" in page


def check_inner(name, value):
    require(name, value > 0, "above 0", value)


@dataclass(frozen=True, kw_only=True)
class Base:
    low: int = 1

    def __post_init__(self):
        require("low", self.low >= 1, "at least 1", self.low)


@dataclass(frozen=True, kw_only=True)
class Sample(Base):
    high: int = 2
    names: tuple[str, ...] = ()
    ids: tuple[int, ...] = ()

    def __post_init__(self):
        super().__post_init__()
        require("high", self.low <= self.high, f"in [low = {self.low}, {registry.ENTRY_POINTS}]", self.high)
        for key in ("names", "ids"):
            require(key, len(getattr(self, key)) < 9, "short", getattr(self, key))
        for one in self.ids:
            require(f"ids.{one}", one > 0, "positive", one)
        if self.names:
            why = "a reason"
            require("names", "x" not in self.names, f"without x ({why})", self.names)


def test_what_is_allowed_is_read_from_refusals_that_no_default_meets(site):
    assert site.ranges.allowed(Sample) == {
        "low": "at least 1",
        "high": "in [low, specfw.components]",
        "names": "short; without x (a reason)",
        "ids": "short; positive",
    }


def test_refusals_of_helpers_are_found(site):
    keys = {
        path: key for group in site.keys.groups() for part in group.sections for key in part.keys for path in key.paths
    }
    assert "probabilities that sum to 1" in keys["target.probs"].allowed
    assert keys["controller.probe_every"].allowed == "at least 1"
    assert keys["sampler.bias.values"].allowed == "made of token ids in [0, 2^31); in [-1e30, 1e30] or -inf"
    roots = {key.paths[0]: key.allowed for key in site.keys.root()}
    assert (roots["num_samples"], roots["max_tokens"]) == ("in [1, inf)", "in [0, inf)")


@pytest.mark.parametrize("group", [*schemas.NAMED, "filter", "diagnostic"])
def test_attributes_of_a_component_are_its_fields(site, group):
    """A docstring that describes a field by another name describes nothing."""
    for name in registry.names(group):
        cls = registry.component(group, name)
        fields = set(getattr(cls, "__dataclass_fields__", ()))
        for described in site.keys.attributes(cls):
            assert described in fields or hasattr(cls, described) or described in annotations(cls), (name, described)


def annotations(cls):
    return {name for base in cls.__mro__ for name in vars(base).get("__annotations__", ())}


# --- the reference of modules -----------------------------------------------------------------------------------


def test_every_group_of_components_has_a_page(site):
    assert sorted(group for area in site.api.areas() for group in area.groups) == sorted(registry.groups())


def test_every_module_of_the_reference_can_be_imported(site):
    modules = [module for area in site.api.areas() for module in area.modules]
    assert {"specfw", "specfw.registry", "specfw.acceptance.base"} <= set(modules)
    assert len(modules) == len(set(modules))
    for module in modules:
        importlib.import_module(module)


def test_a_page_of_the_reference_has_every_component(site):
    (rules,) = (area for area in site.api.areas() if "acceptance" in area.groups)
    page = site.api.page(rules)
    for name in registry.names("acceptance"):
        cls = registry.component("acceptance", name)
        assert f".. autoclass:: {cls.__module__}.{cls.__qualname__}\n" in page


def test_what_is_indented_in_a_docstring_is_literal(site):
    lines = ["Words:", "", "    a = b", "    c", "", "Words.", "", "Args:", "    x: y"]
    site.docstrings.literal_blocks(lines)
    assert lines == ["Words:", "", "::", "", "    a = b", "    c", "", "Words.", "", "Args:", "    x: y"]


# --- links ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("link", "on_the_site"),
    [
        ("[a](seeds.md#x)", "[a](seeds.md#x)"),
        ("[a](../README.md)", "[a](index.md)"),
        ("[a](../specfw/zoo/README.md)", "[a](generated/shipped-pair.markdown)"),
        ("[`a`](../specfw/types.py)", "{py:mod}`a <specfw.types>`"),
        ("[a](../specfw/generation.py)", "[a](../specfw/generation.py)"),
        ("![a](images/a.png)", "![a](images/a.png)"),
        ("[a](https://example.org/a.md)", "[a](https://example.org/a.md)"),
        ("```\n[a](../README.md)\n```", "```\n[a](../README.md)\n```"),
    ],
)
def test_links_that_leave_the_pages_lead_to_the_site(site, link, on_the_site):
    documented = {"specfw.types"}
    assert site.links.mapped(link, DOCS / "page.md", DOCS, documented) == on_the_site


def test_a_page_that_is_shown_elsewhere_keeps_its_links(site):
    page = ROOT / "specfw/zoo/README.md"
    text = site.links.mapped("[a](../../docs/zoo.md) [b](target/README.md)", page, DOCS / "generated", ())
    assert text == "[a](../zoo.md) [b](shipped-target.markdown)"


@pytest.mark.parametrize(
    ("body", "wrong"),
    [
        ('<a href="b.html#there">', None),
        ('<a href="b.html#nowhere">', "a.html: b.html#nowhere leads nowhere"),
        ('<a href="c.html">', "a.html: c.html leads nowhere"),
        ('<a href="https://example.org">', None),
        ('<img src="https://example.org/x.png">', "a.html: loads https://example.org/x.png"),
        ('<script src="//example.org/x.js"></script>', "a.html: loads //example.org/x.js"),
        ('<img src="x.png">', "a.html: loads x.png"),
        ('<link rel="stylesheet" href="x.css">', "x.css: loads https://example.org/font.woff"),
    ],
)
def test_the_look_at_the_site_sees_what_is_broken(tmp_path, body, wrong):
    (tmp_path / "a.html").write_text(body)
    (tmp_path / "b.html").write_text('<p id="there">')
    if "x.css" in body:
        (tmp_path / "x.css").write_text("@font-face { src: url('https://example.org/font.woff') }")
    found = runpy.run_path(str(DOCS / "check_site.py"))["problems"](tmp_path)
    assert found == ([wrong] if wrong else [])
