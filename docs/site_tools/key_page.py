"""The body of configuration-keys.md: every option and every key, as Markdown."""

import re
from collections.abc import Iterable, Iterator, Sequence

from site_tools import keys
from site_tools.keys import Group, Key, Section, written
from site_tools.options import Option, options
from specfw.config.schemas import names

MIXED = ("pair", "experiment")
"""Groups without keys of their own: their options choose others and set keys anywhere."""

WORDS = {
    "model": "Chosen as `model@target=...` and `model@drafter=...`; the keys of the chosen one lie under `target` and "
    "`drafter`.",
    "sampler": "`sampler=...` is the target's chain, `sampler@draft_sampler=...` the drafter's. The latter is "
    "`as_target` unless another is chosen: each of its values is the target's as long as it is not set.",
}


def body() -> str:
    """Everything below the page's introduction."""
    parts = ["## The root\n", table(keys.root())]
    for name in MIXED:
        parts += [f"## {name}\n", "Options that choose others and set keys of any group.\n", _options(options(name))]
    for group in keys.groups():
        parts += list(_group(group))
    return "\n".join(parts)


def _group(group: Group) -> Iterator[str]:
    yield f"## {group.name}\n"
    yield f"{WORDS.get(group.name, f'Chosen as `{group.name}=...`.')}\n"
    yield _options(group.options, group.name)
    for section in group.sections:
        yield from _section(section)


def _section(section: Section) -> Iterator[str]:
    if section.keys:
        yield f"### {section.title}\n"
        yield f"{_plain(section.words)}{'' if section.words.endswith('.') else ':'}\n"
        yield table(section.keys)


def table(rows: Iterable[Key]) -> str:
    """One row a key."""
    lines = [
        (_paths(key.paths), key.kind, _code(key.default) or "must be given", _plain(key.allowed), _plain(key.words))
        for key in rows
    ]
    return _markdown(("key", "type", "default", "allowed", "what it is"), lines)


def _options(found: Sequence[Option], group: str | None = None) -> str:
    lines = [(f"`{one.name}`", _words(one), _sets(one, group)) for one in found]
    return _markdown(("option", "what it is", "sets"), lines)


def _words(option: Option) -> str:
    return "<br>".join(filter(None, (_plain(option.words), _code(option.command))))


def _sets(option: Option, group: str | None) -> str:
    if group is not None and option.name in names(group):  # its values stand with its keys
        return ""
    before = "" if group is None else f"{group}."
    given = [f"{before}{key}={written(value)}" for key, value in option.values.items()]
    return "<br>".join(_code(word) for word in (*option.mounts, *given))


def _paths(paths: Sequence[str]) -> str:
    return "<br>".join(f"`{path}`" for path in paths)


def _code(text: str | None) -> str:
    return f"`{_escaped(text)}`" if text else ""


def _plain(text: str) -> str:
    """Words with the signs that Markdown would take for its own made harmless, outside of code."""
    pieces = re.split(r"(`[^`]*`)", text)
    return "".join(_escaped(one) if one.startswith("`") else re.sub(r"([\\<>*\[\]|])", r"\\\1", one) for one in pieces)


def _escaped(code: str) -> str:
    return code.replace("|", r"\|")


def _markdown(head: Sequence[str], lines: Iterable[Sequence[str]]) -> str:
    rows = [head, ["---"] * len(head), *lines]
    return "".join(f"| {' | '.join(cells)} |\n" for cells in rows)
