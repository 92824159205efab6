"""Every key that the schemas know, from the components' own fields, docstrings and refusals and the files of conf/."""

import dataclasses
import inspect
import re
import types
from collections.abc import Iterator, Mapping
from typing import Any, Literal, NamedTuple, Union, get_args, get_origin, get_type_hints

from site_tools.options import Option, options, primary
from site_tools.ranges import allowed, gathered, refusals
from specfw import registry
from specfw.config import checks, schemas

import yaml

MEMBERS = {"sampler": "filter", "diagnostics": "diagnostic"}
"""Groups whose options hold a component of another group under each component's name."""

_ONE = {int: "integer", float: "number", str: "text", bool: "true or false", Any: "any value"}
_MANY = {int: "integers", float: "numbers", str: "texts", Any: "values"}


class Key(NamedTuple):
    """One row: a key under every node that has it.

    Attributes:
        paths: full keys.
        kind: its type in words.
        default: as it is written in YAML, None where a value must be given.
        allowed: the refusal's words, empty where every value of the type is allowed.
        words: what it does.
    """

    paths: tuple[str, ...]
    kind: str
    default: str | None
    allowed: str
    words: str


class Section(NamedTuple):
    """The keys of one component, or of what an option of a gathering group has for all.

    Attributes:
        title: as it is chosen, `controller=cost`.
        words: what the component is.
        keys: its own.
    """

    title: str
    words: str
    keys: tuple[Key, ...]


class Group(NamedTuple):
    """A configuration group: its options and the keys that they hold."""

    name: str
    nodes: tuple[str, ...]
    options: tuple[Option, ...]
    sections: tuple[Section, ...]


def root() -> tuple[Key, ...]:
    """The keys of the root that are no nodes; conf/config.yaml has their values and says what they are."""
    hints, said = get_type_hints(schemas.Root), primary()
    ranges = gathered(refusals(checks._ranges, {}))  # noqa: SLF001 # where the root's ranges stand
    names = [field.name for field in dataclasses.fields(schemas.Root) if field.name not in schemas.NODES]
    return tuple(
        Key((name,), kind(hints[name]), written(said.values[name]), ranges.get(name, ""), said.words[name])
        for name in names
    )


def groups() -> Iterator[Group]:
    """Every group that has nodes, in the order of the nodes."""
    for group in dict.fromkeys(schemas.NODES.values()):
        nodes = tuple(node for node, of in schemas.NODES.items() if of == group)
        yield Group(group, nodes, options(group), tuple(_sections(group, nodes)))


def _sections(group: str, nodes: tuple[str, ...]) -> Iterator[Section]:
    if group in schemas.NAMED:
        yield Section(f"{group}=...", "Every option has", (_name(group, nodes),))
        for name in schemas.names(group):
            cls = schemas.Auto if name == schemas.AUTO else registry.component(group, name)
            own = next((one.values for one in options(group) if one.name == name), {})
            yield Section(f"{group}={name}", summary(cls), _keys(cls, nodes, own))
        return
    chosen = next(one.values for one in options(group) if one.name == primary().chosen[group])
    if group not in MEMBERS:
        yield Section(f"{group}=...", summary(schemas.Backend), _keys(schemas.Backend, nodes, chosen))
        return
    if group == "sampler":
        yield Section("sampler.order", "The steps that act, and their order", (_order(nodes, chosen),))
    for name in registry.names(MEMBERS[group]):
        cls, inner = registry.component(MEMBERS[group], name), tuple(f"{node}.{name}" for node in nodes)
        own = {key.removeprefix(f"{name}."): value for key, value in chosen.items() if key.startswith(f"{name}.")}
        yield Section(f"{group}.{name}", summary(cls), _keys(cls, inner, own))


def _name(group: str, nodes: tuple[str, ...]) -> Key:
    names = ", ".join(schemas.names(group))
    words = "the component; choosing an option writes it"
    return Key(tuple(f"{node}.name" for node in nodes), "text", "the option's", f"one of: {names}", words)


def _order(nodes: tuple[str, ...], chosen: Mapping[str, Any]) -> Key:
    paths, steps = tuple(f"{node}.order" for node in nodes), ", ".join(registry.names("filter"))
    words = "steps from logits to the row that is drawn from; a step that is configured must be among them"
    return Key(paths, "list of texts", written(chosen["order"]), f"each at most once of: {steps}", words)


def _keys(cls: type, nodes: tuple[str, ...], own: Mapping[str, Any]) -> tuple[Key, ...]:
    hints, ranges, said = get_type_hints(cls), allowed(cls), attributes(cls)
    return tuple(
        Key(
            tuple(f"{node}.{field.name}" for node in nodes),
            kind(hints[field.name]),
            _default(field, own),
            ranges.get(field.name, "") or words_of(hints[field.name]),
            said.get(field.name, "").rstrip("."),
        )
        for field in dataclasses.fields(cls)
        if field.init and field.name != "name"
    )


def _default(field: "dataclasses.Field[Any]", own: Mapping[str, Any]) -> str | None:
    if field.name in own:
        return None if own[field.name] == "???" else written(own[field.name])
    inner = {key.partition(".")[2]: value for key, value in own.items() if key.startswith(f"{field.name}.")}
    if inner:
        return written(inner)
    if field.default_factory is not dataclasses.MISSING:
        return written(field.default_factory())
    return None if field.default is dataclasses.MISSING else written(field.default)


def written(value: Any) -> str:
    """`value` as a command line would take it."""
    if isinstance(value, tuple):
        value = list(value)
    text = yaml.safe_dump(value, default_flow_style=True, width=10**6, sort_keys=False)
    return text.removesuffix("...\n").strip()


def kind(hint: Any) -> str:
    """A type in words."""
    origin, args = get_origin(hint), get_args(hint)
    if origin in (Union, types.UnionType):
        inner = [kind(arg) for arg in args if arg is not type(None)]
        return " or ".join([*inner, *(["null"] if type(None) in args else [])])
    if origin in (tuple, list):
        return f"list of {_MANY.get(args[0], 'lists')}"
    if isinstance(origin, type) and issubclass(origin, Mapping):
        return f"mapping from {_ONE[args[0]]} to {kind(args[1])}"
    return "word" if origin is Literal else _ONE[hint]


def words_of(hint: Any) -> str:
    """The words of a Literal."""
    return f"one of: {', '.join(map(str, get_args(hint)))}" if get_origin(hint) is Literal else ""


def summary(cls: type) -> str:
    """The first sentence of the docstring."""
    return " ".join(inspect.cleandoc(cls.__doc__ or "").partition("\n\n")[0].split())


def attributes(cls: type) -> dict[str, str]:
    """What the `Attributes:` of the docstrings say of each field; a class's own words before its base's."""
    found: dict[str, str] = {}
    for base in reversed(cls.__mro__):
        _, _, listed = inspect.cleandoc(vars(base).get("__doc__") or "").partition("\nAttributes:\n")
        entries = re.split(r"^    (?=\w+: )", listed.partition("\n\n")[0], flags=re.MULTILINE)[1:]
        found |= {name: " ".join(text.split()) for name, _, text in (entry.partition(": ") for entry in entries)}
    return found
