"""The files of conf/: what each option of a group is, in its own words, and what it sets."""

import re
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from specfw.config.composing import conf_dir

import yaml

COMMAND = re.compile(r"[:.]? (python -m specfw .*)$")


class Option(NamedTuple):
    """One file of a group.

    Attributes:
        name: what stands behind the `=`.
        words: its comment.
        command: the command that its comment ends with, empty if none.
        mounts: options that it chooses in turn, `drafting=model`.
        values: the leaves that it sets, by key.
    """

    name: str
    words: str
    command: str
    mounts: tuple[str, ...]
    values: Mapping[str, Any]


class Primary(NamedTuple):
    """conf/config.yaml: values of the root with what their comments say, and the option that each group begins with."""

    values: Mapping[str, Any]
    words: Mapping[str, str]
    chosen: Mapping[str, str]


@cache
def options(group: str) -> tuple[Option, ...]:
    """The files of `conf/<group>`, by name."""
    return tuple(_option(path) for path in sorted((conf_dir() / group).glob("*.yaml")))


@cache
def primary() -> Primary:
    """conf/config.yaml."""
    text = (conf_dir() / "config.yaml").read_text()
    tree = yaml.safe_load(text)
    chosen = {group: name for entry in tree.pop("defaults") if isinstance(entry, dict) for group, name in entry.items()}
    words = dict(re.findall(r"^(\w+):[^#\n]*# (.*)$", text, flags=re.MULTILINE))
    return Primary(tree, words, chosen)


def _option(path: Path) -> Option:
    text = path.read_text()
    comment = re.match(r"(?:# @package.*\n)?((?:#.*\n)*)", text)
    said = " ".join(line.lstrip("# ") for line in (comment[1] if comment else "").splitlines())
    command = COMMAND.search(said)
    tree = yaml.safe_load(text) or {}
    mounts = tuple(_mounts(tree.pop("defaults", ())))
    words = f"{said[: command.start()].rstrip('.:')}." if command else said
    return Option(path.stem, words, command[1] if command else "", mounts, dict(flat(tree)))


def _mounts(entries: Any) -> Iterator[str]:
    for entry in entries:
        for group, name in entry.items() if isinstance(entry, dict) else ():
            yield f"{group.removeprefix('override ').removeprefix('/')}={name}"


def flat(tree: Mapping[str, Any], before: str = "") -> Iterator[tuple[str, Any]]:
    """The leaves of a tree by their full keys; an empty mapping is a leaf."""
    for name, value in tree.items():
        if isinstance(value, Mapping) and value:
            yield from flat(value, f"{before}{name}.")
        else:
            yield f"{before}{name}", value
