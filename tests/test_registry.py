import dataclasses
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib.metadata import EntryPoint
from typing import Any, Literal

from specfw import registry
from specfw.registry import build, component, discover, load_plugins, names, register, require, schema

import pytest

GROUP = "test_registry"


@pytest.fixture(autouse=True)
def forgotten(monkeypatch):
    monkeypatch.setattr(registry, "_components", {group: dict(known) for group, known in registry._components.items()})


@dataclass(frozen=True, kw_only=True)
class Parts:
    count: int
    share: float = 0.5
    kind: Literal["soft", "hard"] = "soft"
    ids: tuple[int, ...] = (1, 2)
    rows: tuple[tuple[float, ...], ...] = ()
    weights: Mapping[int, float] = field(default_factory=dict)
    limit: int | None = None
    anything: tuple[Any, ...] = ()
    texts: tuple[str, ...] = ()

    def __post_init__(self):
        require("count", self.count >= 0, "in [0, inf)", self.count)


def test_a_component_is_named_by_its_module_unless_said_otherwise():
    register(GROUP)(Parts)
    register(GROUP, "other")(Parts)
    assert names(GROUP) == ("other", "test_registry")
    assert component(GROUP, "other") is Parts
    assert registry.name_of(Parts, GROUP) == "test_registry"
    assert GROUP in registry.groups()


def test_a_name_stands_for_one_class_only():
    register(GROUP, "same")(Parts)
    register(GROUP, "same")(Parts)  # a module imported again is no second class
    with pytest.raises(ValueError, match="'same' is registered twice"):
        register(GROUP, "same")(type("Another", (), {}))


def test_an_unknown_name_lists_the_known_ones():
    register(GROUP, "one")(Parts)
    with pytest.raises(ValueError, match=r"^key must be one of: one; got 'two'$"):
        component(GROUP, "two", "key")
    with pytest.raises(ValueError, match="must be one of: nothing"):
        component("no such group", "two")


def test_build_makes_the_plain_values_what_the_fields_say():
    register(GROUP, "parts")(Parts)
    made = build(
        GROUP,
        {"name": "parts", "count": 3.0, "share": 1, "ids": [4, 5], "rows": [[1, 2.5]], "weights": {1: 2}, "limit": 7},
    )
    assert made == Parts(count=3, share=1.0, ids=(4, 5), rows=((1.0, 2.5),), weights={1: 2}, limit=7)
    assert (type(made.count), type(made.share), type(made.rows[0][0])) == (int, float, float)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"count": -1}, r"node\.count must be in \[0, inf\), got -1"),
        ({"count": 1.5}, r"node\.count must be of type int, got 1\.5"),
        ({"ids": [[1]]}, r"node\.ids must be of type int, got \[1\]"),
        ({"texts": [["a"]]}, r"node\.texts must be of type str, got \['a'\]"),
        ({"texts": [1]}, r"node\.texts must be of type str, got 1"),
        ({"count": True}, r"node\.count must be of type int, got True"),
        ({"count": "1"}, r"node\.count must be of type int, got '1'"),
        ({"kind": "firm"}, r"node\.kind must be one of: soft, hard, got 'firm'"),
        ({"counts": 1}, r"node\.counts is not a key; allowed: anything, count, ids"),
        ({"rows": [["a"]]}, r"node\.rows must be of type float, got 'a'"),
    ],
)
def test_an_error_names_the_full_key_what_is_allowed_and_the_value(changes, message):
    register(GROUP, "parts")(Parts)
    with pytest.raises(ValueError, match=message):
        build(GROUP, {"name": "parts", "count": 1} | changes, "node")


def test_a_field_without_default_must_be_given():
    register(GROUP, "parts")(Parts)
    with pytest.raises(ValueError, match=r"^node: .*'count'"):
        build(GROUP, {"name": "parts"}, "node")


def test_the_schema_is_a_mutable_mirror():
    mirror = schema(Parts, "parts")
    types = {one.name: one.type for one in dataclasses.fields(mirror)}
    assert types["name"] is str
    assert types["kind"] is str
    assert types["ids"] == list[int]
    assert types["rows"] == list[Any]
    assert types["weights"] == dict[int, float]
    assert types["limit"] == int | None
    made = mirror(count=1)
    made.count = 2
    assert (made.name, made.share, made.ids, made.rows, made.weights) == ("parts", 0.5, [1, 2], [], {})
    assert mirror(count=1).ids is not made.ids
    assert mirror().count == "???"


def test_every_module_of_a_package_is_discovered(tmp_path, monkeypatch):
    package = tmp_path / "discovered"
    package.mkdir()
    (package / "__init__.py").write_text("from specfw.registry import discover\ndiscover(__name__, __path__)\n")
    (package / "fresh.py").write_text(
        f"from specfw.registry import register\n@register({GROUP!r})\nclass Fresh: pass\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    discover("discovered", [str(package)])
    assert names(GROUP) == ("fresh",)
    for name in ("discovered", "discovered.fresh"):
        del sys.modules[name]


def test_plugins_are_imported_and_a_missing_one_is_named(tmp_path, monkeypatch):
    (tmp_path / "my_plugin.py").write_text(
        f"from specfw.registry import register\n@register({GROUP!r})\nclass Mine: pass\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    load_plugins(["my_plugin"])
    assert names(GROUP) == ("my_plugin",)
    del sys.modules["my_plugin"]
    with pytest.raises(ValueError, match=r"^plugins must name importable modules; 'no_such_plugin'"):
        load_plugins(["no_such_plugin"])


def test_entry_points_are_loaded(tmp_path, monkeypatch):
    (tmp_path / "installed_plugin.py").write_text(
        f"from specfw.registry import register\n@register({GROUP!r})\nclass Mine: pass\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    point = EntryPoint("mine", "installed_plugin", registry.ENTRY_POINTS)
    monkeypatch.setattr(registry, "entry_points", lambda group: [point] if group == registry.ENTRY_POINTS else [])
    load_plugins()
    assert names(GROUP) == ("installed_plugin",)
    del sys.modules["installed_plugin"]
    (tmp_path / "installed_plugin.py").unlink()
    with pytest.raises(ValueError, match=r"^specfw\.components 'mine' cannot be loaded from 'installed_plugin'"):
        load_plugins()
