"""The table of docs/acceptance-rules.md: which drafter, rule and temperature is lossless, biased or refused.

Run `python docs/rule_table.py`; it asks the registry what exists and `specfw.resolution` what would run.
"""
# ruff: noqa: INP001 # a script beside the pages it serves

import dataclasses
import itertools
import sys
from collections.abc import Iterator, Mapping
from typing import Any, Literal, get_args, get_origin, get_type_hints

import specfw.acceptance
import specfw.drafting  # noqa: F401 # importing a component package registers what lies in it
from specfw.drafting.base import Drafting
from specfw.registry import component, names
from specfw.resolution import AUTO, VARIABLE, Choice, Circumstances, choose, resolve

ON = {VARIABLE: "1"}


def main() -> None:
    """Print the table."""
    sys.stdout.write(table())


def table() -> str:
    """Markdown: one table for a target that samples and one for a greedy target."""
    asked, drafters = list(_asked()), list(_drafters())
    parts = []
    for greedy, title in ((False, "Temperature above 0"), (True, "Temperature 0")):
        by_drafter = [[_cell(choice, drafting, greedy) for _, choice in asked] for _, drafting in drafters]
        columns, by_drafter = _merged([label for label, _ in drafters], by_drafter)
        rows, cells = _merged([label for label, _ in asked], _turned(by_drafter))
        parts.append(_markdown([title, *columns], rows, cells))
    return "\n".join(parts)


def _turned(cells: list[list[str]]) -> list[list[str]]:
    return [list(line) for line in zip(*cells, strict=True)]


def _merged(labels: list[str], lines: list[list[str]]) -> tuple[list[str], list[list[str]]]:
    """Lines that are alike as one, with the labels of all."""
    alike: dict[tuple[str, ...], list[str]] = {}
    for label, line in zip(labels, lines, strict=True):
        alike.setdefault(tuple(line), []).append(label)
    return ["<br>".join(group) for group in alike.values()], [list(line) for line in alike]


def _asked() -> Iterator[tuple[str, Choice]]:
    """Everything `acceptance` can be, with the options that change what runs."""
    yield f"`{AUTO}`", choose({"name": AUTO}, {})
    yield f"`{AUTO}`, {VARIABLE}=1", choose({"name": AUTO}, ON)
    for name in names("acceptance"):
        yield f"`{name}`", choose({"name": name}, {})
        if any(field.name == "strict" for field in dataclasses.fields(component("acceptance", name))):
            yield f"`{name}` `strict=true`", choose({"name": name, "strict": True}, {})


def _drafters() -> Iterator[tuple[str, Drafting]]:
    """Every drafter, with every value of its switches."""
    for name in names("drafting"):
        cls = component("drafting", name)
        switches = _switches(cls)
        for values in itertools.product(*switches.values()):
            given = dict(zip(switches, values, strict=True))
            drafting: Drafting = cls(**given)
            changed = [f"`{key}={_word(value)}`" for key, value in given.items() if value != getattr(cls, key)]
            yield " ".join([f"`{name}`", *changed]), drafting


def _switches(cls: type) -> Mapping[str, tuple[Any, ...]]:
    hints = get_type_hints(cls)
    kinds = {field.name: hints[field.name] for field in dataclasses.fields(cls)}
    words = {name: get_args(kind) for name, kind in kinds.items() if get_origin(kind) is Literal}
    return words | {name: (True, False) for name, kind in kinds.items() if kind is bool}


def _cell(asked: Choice, drafting: Drafting, greedy: bool) -> str:
    given = Circumstances(
        greedy_target=greedy,
        proposes=drafting.proposes,
        reports_distribution=drafting.reports_distribution(),
        shares_noise=drafting.shares_noise,
        allow_lossy=False,
    )
    try:
        return _outcome(asked, resolve(asked, given))
    except ValueError:
        pass
    try:
        return f"refused; {_outcome(asked, resolve(asked, given._replace(allow_lossy=True)))} with `allow_lossy=true`"
    except ValueError:
        return "refused"


def _outcome(asked: Choice, active: Choice) -> str:
    word = "lossless" if active.rule.preserves_target else "biased"
    return word if active.rule.id == asked.rule.id else f"{word}: `{active.rule.id}`"


def _markdown(head: list[str], rows: list[str], cells: list[list[str]]) -> str:
    body = [[row, *line] for row, line in zip(rows, cells, strict=True)]
    lines = [head, ["---"] * len(head), *body]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def _word(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


if __name__ == "__main__":
    main()
