"""Lists among the values of a key: beside each other they are told by the part in which they differ."""

import json
from collections.abc import Iterable, Mapping, Sequence
from itertools import takewhile

from specfw.study.columns import shown
from specfw.study.escaping import word
from specfw.study.gathered import Leaf

Parts = Mapping[Leaf, str]
"""What stands for a value, where that is not the value itself."""

_SHORT = 24
"""Characters of lists that are shown whole."""


def parts(values: Iterable[Leaf]) -> Parts:
    """Of long lists what is left without the elements that all begin with, and without those that all end with.

    Args:
        values: of one key; a list is its JSON text.
    """
    read = {value: words for value in dict.fromkeys(values) if (words := _words(value)) is not None}
    if max((len(str(value)) for value in read), default=0) <= _SHORT:
        return {}
    begin = _common(list(read.values()))
    end = _common([words[begin:][::-1] for words in read.values()])
    return {
        value: _between(bool(begin), words[begin : len(words) - end], bool(end)) or shown(value)
        for value, words in read.items()
    }


def beside(value: Leaf, others: Parts) -> str:
    """A value as the configuration writes it, of lists the part in which they differ."""
    return others.get(value) or shown(value)


def _words(value: Leaf) -> list[str] | None:
    """The elements of a list, words without quotes."""
    if not (isinstance(value, str) and value.startswith("[")):
        return None
    try:
        found = json.loads(value)
        return [word(one) if isinstance(one, str) else json.dumps(one) for one in found]
    except (ValueError, RecursionError):
        return None


def _common(lists: Sequence[Sequence[str]]) -> int:
    """How many elements several lists begin with alike."""
    alike = takewhile(lambda here: len(set(here)) == 1, zip(*lists, strict=False))
    return sum(1 for _ in alike) if len(lists) > 1 else 0


def _between(begin: bool, words: list[str], end: bool) -> str:
    if not words:
        return "…" if begin or end else ""
    return f"{'… ' * begin}{', '.join(words)}{' …' * end}"
