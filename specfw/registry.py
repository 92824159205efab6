"""Names of components: a configuration names a registered class, it never names code to call.

A component is a frozen keyword-only dataclass of its hyperparameters. Registering it under a group gives
its name (the module's name unless said otherwise), and its own fields give the schema that a configuration
is checked against. Standard library only.
"""

import dataclasses
import difflib
import types
from collections.abc import Callable, Iterable, Mapping, Sequence
from importlib import import_module
from importlib.metadata import entry_points
from pkgutil import iter_modules
from traceback import extract_tb
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

C = TypeVar("C", bound=type)

ENTRY_POINTS = "specfw.components"
_LEAVES = (str, int, float, bool)

_components: dict[str, dict[str, type]] = {}
_plugins: dict[str, None] = {}  # in the order they came


def register(group: str, name: str | None = None) -> Callable[[C], C]:
    """Class decorator: enter a component under `group`, by default under its module's name."""

    def enter(cls: C) -> C:
        key = name or cls.__module__.rpartition(".")[2]
        present = _components.setdefault(group, {}).get(key)
        if present is not None and (present.__module__, present.__qualname__) != (cls.__module__, cls.__qualname__):
            raise ValueError(f"{group} {key!r} is registered twice: {present.__module__}, {cls.__module__}")
        _components[group][key] = cls
        return cls

    return enter


def groups() -> tuple[str, ...]:
    """The groups that have components, in alphabetical order."""
    return tuple(sorted(_components))


def names(group: str) -> tuple[str, ...]:
    """The components of `group`, in alphabetical order."""
    return tuple(sorted(_components.get(group, {})))


def component(group: str, name: str, key: str | None = None) -> type:
    """The class registered as `name`.

    Raises:
        ValueError: nothing of that name; the sentence names the key and the allowed values.
    """
    found = _components.get(group, {}).get(name)
    if found is None:
        allowed = ", ".join(names(group)) or "nothing"
        raise ValueError(f"{key or group} must be one of: {allowed}; got {name!r}{suggestion(name, names(group))}")
    return found


def suggestion(word: str, known: Iterable[str]) -> str:
    """`; did you mean ..?` where `word` is close to a known one, hyphens counting as underscores; else nothing."""
    close = difflib.get_close_matches(word.lower().replace("-", "_"), known, n=1)
    return f"; did you mean {close[0]}?" if close else ""


def name_of(cls: type, group: str) -> str | None:
    """The name under which `cls` is registered, None if it is not."""
    return next((name for name, known in _components.get(group, {}).items() if known is cls), None)


def plugins() -> tuple[str, ...]:
    """The modules that `load_plugins` imported in this process: what a replay must name again."""
    return tuple(_plugins)


def load_plugins(modules: Sequence[str] = ()) -> None:
    """Import a user's modules (from `plugins=[...]`) and every installed entry point; importing registers.

    Raises:
        ValueError: a module that cannot be imported, whatever goes wrong in it.
    """
    for module in modules:
        try:
            import_module(module)
            _plugins[module] = None
        except Exception as error:
            raise ValueError(f"plugins must name importable modules; {module!r}: {_told(error)}") from error
    for point in entry_points(group=ENTRY_POINTS):
        try:
            point.load()
        except Exception as error:
            where = f"{ENTRY_POINTS} {point.name!r} cannot be loaded from {point.value!r}"
            raise ValueError(f"{where}: {_told(error)}") from error


def _told(error: Exception) -> str:
    """What went wrong while a user's module was imported, and in which line of theirs."""
    frames = extract_tb(error.__traceback__)
    theirs = [frame for frame in frames if frame.filename != __file__ and "importlib" not in frame.filename]
    if isinstance(error, SyntaxError) or not theirs:
        return str(error)
    return f"{error} ({theirs[-1].filename}, line {theirs[-1].lineno})"


def discover(package: str, path: Sequence[str]) -> None:
    """Import every module of a component package, so that a new component is one new file.

    Args:
        package: the package's `__name__`.
        path: its `__path__`.
    """
    for module in iter_modules(path):
        import_module(f"{package}.{module.name}")


def build(group: str, node: Mapping[str, Any], key: str | None = None) -> Any:
    """Make the component that `node` names (`name`) from the rest of `node`.

    Args:
        group: registry group.
        node: `name` and the component's fields as plain values.
        key: the full key of `node` in the configuration, for error messages.

    Raises:
        ValueError: unknown component, unknown field or a value out of range, with its full key.
    """
    where = key or group
    cls = component(group, str(node.get("name")), where)
    return construct(cls, {k: v for k, v in node.items() if k != "name"}, where)


def construct(cls: type, values: Mapping[str, Any], key: str) -> Any:
    """Make `cls` from plain values; see `build` for the errors."""
    hints = get_type_hints(cls)
    known = {field.name for field in dataclasses.fields(cls) if field.init}
    unknown = sorted(set(values) - known)
    if unknown:
        raise ValueError(f"{key}.{unknown[0]} is not a key; allowed: {', '.join(sorted(known)) or 'none'}")
    try:
        return cls(**{name: _frozen(name, value, hints[name]) for name, value in values.items()})
    except TypeError as error:
        raise ValueError(f"{key}: {error}") from error
    except ValueError as error:
        raise ValueError(f"{key}.{error}") from error


def schema(cls: type, name: str | None = None) -> type:
    """A mutable dataclass with the fields of `cls`, for a configuration store.

    A frozen dataclass would make its node read-only; Literal becomes str, tuples become lists.

    Args:
        cls: a component.
        name: when given, a leading field `name` with this default.
    """
    hints = get_type_hints(cls)
    leading: list[Any] = [] if name is None else [("name", str, name)]
    mirrored = [(f.name, _plain(hints[f.name]), _default(f)) for f in dataclasses.fields(cls) if f.init]
    return dataclasses.make_dataclass(f"{cls.__name__}Schema", leading + mirrored, kw_only=True)


def require(field: str, holds: bool, allowed: str, value: Any) -> None:
    """Raise the one form of a range error unless `holds`.

    Raises:
        ValueError: names the field, the allowed interval or values, and the value.
    """
    if not holds:
        raise ValueError(f"{field} must be {allowed}, got {value!r}")


def _default(field: dataclasses.Field[Any]) -> Any:
    if field.default_factory is not dataclasses.MISSING:
        made = _thawed(field.default_factory())
    elif field.default is not dataclasses.MISSING:
        made = _thawed(field.default)
    else:
        return dataclasses.field(default="???")
    if isinstance(made, list | dict):
        return dataclasses.field(default_factory=made.copy)
    return dataclasses.field(default=made)


def _plain(hint: Any) -> Any:
    origin, args = get_origin(hint), get_args(hint)
    if origin is Literal:
        return str
    if origin is tuple:
        # a nested typed list would refuse the integer 1 where 1.0 is meant; construct() checks the leaves
        return list[Any] if get_origin(args[0]) is tuple else list[_plain(args[0])]  # type: ignore[misc]
    if origin in (dict, Mapping) or getattr(origin, "__name__", "") == "Mapping":
        return dict[_plain(args[0]), _plain(args[1])]  # type: ignore[misc]
    if origin in (Union, types.UnionType):
        return _plain(next(arg for arg in args if arg is not type(None))) | None
    return hint


def _frozen(field: str, value: Any, hint: Any) -> Any:
    if get_origin(hint) in (Union, types.UnionType):
        hint = next(arg for arg in get_args(hint) if arg is not type(None))
    if isinstance(value, list | tuple):
        require(field, hint not in _LEAVES, f"of type {getattr(hint, '__name__', hint)}", value)
        inner = (*get_args(hint), Any)[0]
        return tuple(_frozen(field, item, inner) for item in value)
    if get_origin(hint) is Literal:
        allowed = get_args(hint)
        require(field, value in allowed, f"one of: {', '.join(map(str, allowed))}", value)
    if hint is str and value is not None:
        require(field, isinstance(value, str), "of type str", value)
    if hint in (int, float) and value is not None:
        number = isinstance(value, int | float) and not isinstance(value, bool)
        fits = number and (hint is float or isinstance(value, int) or value.is_integer())
        require(field, fits, f"of type {hint.__name__}", value)
        return hint(value)
    return value


def _thawed(value: Any) -> Any:
    if isinstance(value, tuple | list):
        return [_thawed(item) for item in value]
    return dict(value) if isinstance(value, Mapping) else value
