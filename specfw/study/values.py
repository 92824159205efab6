"""Values in a record that may be of anyone's making: of the type they should have, or one sentence that names them.

Every function takes a tree of JSON and a dotted path, gives None where nothing or null lies there, and raises
ValueError where something else does.
"""

import math
import reprlib
from collections.abc import Mapping
from typing import Any, TypeVar

T = TypeVar("T")
COUNTS = 2**48
"""More than any run can count, and few enough that sums over runs stay integers of 64 bits."""

LARGE = 1e15
_SLACK = 1e-4
"""By how much a probability summed in float32 may leave [0, 1]."""

_INFINITIES = {"inf": math.inf, "-inf": -math.inf}


def at(tree: Any, path: str) -> Any:
    """What lies at the path, of whatever type."""
    node = tree
    for part in path.split("."):
        if node is None:
            return None
        require(path, isinstance(node, Mapping), "in a mapping", node)
        node = node.get(part)
    return node


def number(tree: Any, path: str) -> float | None:
    """A number of ordinary size."""
    value = at(tree, path)
    return None if value is None else _ordinary(path, value)


def amount(tree: Any, path: str) -> float | None:
    """A number that is not negative."""
    found = number(tree, path)
    require(path, found is None or found >= 0, "at least 0", found)
    return found


def evidence(tree: Any, path: str) -> float | None:
    """A number, or one of the words `inf` and `-inf`."""
    value = at(tree, path)
    known = isinstance(value, str) and value in _INFINITIES
    return _INFINITIES[value] if known else number(tree, path)


def share(tree: Any, path: str) -> float | None:
    """A probability or a rate."""
    value = at(tree, path)
    if value is None:
        return None
    found = _ordinary(path, value)
    require(path, -_SLACK <= found <= 1 + _SLACK, "in [0, 1]", value)
    return found


def count(tree: Any, path: str, limit: int = COUNTS) -> int | None:
    """An integer in [0, limit)."""
    value = at(tree, path)
    if value is None:
        return None
    require(path, _is_count(value, limit), f"an integer in [0, {limit})", value)
    return int(value)


def counts(tree: Any, path: str) -> tuple[int, ...] | None:
    """A list of such integers."""
    value = at(tree, path)
    if value is None:
        return None
    whole = isinstance(value, list) and all(_is_count(one, COUNTS) for one in value)
    require(path, whole, "a list of counts", value)
    return tuple(value)


def text(tree: Any, path: str) -> str | None:
    """A string."""
    value = at(tree, path)
    require(path, value is None or isinstance(value, str), "a string", value)
    return None if value is None else str(value)


def flag(tree: Any, path: str) -> bool | None:
    """A truth value."""
    value = at(tree, path)
    require(path, value is None or isinstance(value, bool), "true or false", value)
    return None if value is None else bool(value)


def given(value: T | None, path: str) -> T:
    """`value`, without which a record is none."""
    if value is None:
        raise ValueError(f"{path} must be given")
    return value


def require(name: str, holds: bool, allowed: str, value: Any) -> None:
    """As the registry's, with the value cut short."""
    if not holds:
        raise ValueError(f"{name} must be {allowed}, got {reprlib.repr(value)}")


def _ordinary(path: str, value: Any) -> float:
    """Python reads 1e999 as an infinity, and integers of any length."""
    whole = isinstance(value, int | float) and not isinstance(value, bool)
    require(path, whole and -LARGE <= value <= LARGE, f"a number in [-{LARGE:g}, {LARGE:g}]", value)
    return float(value)


def _is_count(value: Any, limit: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < limit
