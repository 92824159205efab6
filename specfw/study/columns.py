"""Which keys of the configuration tell runs apart, and what they are called in a narrow table."""

import json
from collections import Counter
from collections.abc import Sequence
from itertools import combinations
from typing import Any

from specfw.study.gathered import Leaf, Run

RULE = "acceptance."
_ASKED_FOR = f"{RULE}name"
_DRAFT = "draft_sampler."
_NO_NAMES = ("value", "name", "path")
_TRIED = 12
"""Keys of which every choice is tried; of more those of most values."""


def varying(runs: Sequence[Run]) -> tuple[str, ...]:
    """The dotted keys whose value is not the same in all runs, in the order of the configuration.

    A key that some runs lack is null there. Left out are what says nothing of what was run, and keys of the draft
    chain that have the value of the target's chain in every run.
    """
    return tuple(key for key in differing(runs) if _is_compared(key) and not _follows(key, runs))


def differing(runs: Sequence[Run]) -> list[str]:
    """Every key whose value is not the same in all runs, whatever it says of them."""
    keys = dict.fromkeys(key for run in runs for key in run.settings)
    return [key for key in keys if len({same(run.settings.get(key)) for run in runs}) > 1]


def compared(run: Run) -> dict[str, Leaf]:
    """The configuration in the keys that say what was run."""
    return {key: value for key, value in run.settings.items() if _is_compared(key)}


def _is_compared(key: str) -> bool:
    """Whether the key says what was run: the seed, a permission and the task's own keys do not."""
    return key not in ("seed", "allow_lossy") and not key.startswith("task.")


def same(value: Leaf) -> Any:
    """Equal for values that a configuration does not tell apart: 1 is 1.0, and true is neither."""
    return (type(value) is bool, value)


def telling(runs: Sequence[Run], keys: Sequence[str]) -> tuple[str, ...]:
    """Those of `keys` that divide the runs in a way that no key before them does."""
    found: dict[tuple[int, ...], str] = {}
    for key in keys:
        divided = _divided(runs, key)
        if any(divided):
            found.setdefault(divided, key)
    return tuple(found.values())


def most_telling(runs: Sequence[Run], keys: Sequence[str], most: int) -> tuple[str, ...]:
    """At most `most` of `keys`: the first choice of them that, with the rule that ran, leaves fewest runs alike."""
    if len(keys) <= most:
        return tuple(keys)
    rules = [run.row.rule for run in runs]
    groups = {key: _divided(runs, key) for key in keys}
    widest = sorted(keys, key=lambda key: -max(groups[key]))[:_TRIED]
    choices = combinations([key for key in keys if key in widest], most)
    return max(choices, key=lambda chosen: len(set(zip(rules, *(groups[key] for key in chosen), strict=True))))


def _divided(runs: Sequence[Run], key: str) -> tuple[int, ...]:
    """A number for each run, equal where the value is."""
    groups: dict[Any, int] = {}
    return tuple(groups.setdefault(same(run.settings.get(key)), len(groups)) for run in runs)


def beside_rule(runs: Sequence[Run], keys: Sequence[str]) -> tuple[str, ...]:
    """As `telling`, where the rule that ran is named anyway: of the rule's keys those that tell runs of one apart."""
    groups: dict[str, list[Run]] = {}
    for run in runs:
        groups.setdefault(run.row.rule, []).append(run)
    rules = [key for key in keys if key.startswith(RULE)]
    own = {key for group in groups.values() for key in telling(group, rules)}
    kept = [key for key in keys if key not in rules or key in own or key == _ASKED_FOR]
    return tuple(key for key in telling(runs, kept) if key != _ASKED_FOR or key in own)


def short(keys: Sequence[str]) -> dict[str, str]:
    """The last telling word of each key, and the whole key where two have the same."""
    last = {key: _word(key) for key in keys}
    often = Counter(last.values())
    return {key: word if often[word] == 1 else key for key, word in last.items()}


def shown(value: Leaf) -> str:
    """A value as a configuration writes it."""
    return value if isinstance(value, str) else json.dumps(value)


def _word(key: str) -> str:
    *before, last = key.split(".")
    return before[-1] if before and (len(last) == 1 or last in _NO_NAMES) else last


def _follows(key: str, runs: Sequence[Run]) -> bool:
    if not key.startswith(_DRAFT):
        return False
    leading = "sampler." + key.removeprefix(_DRAFT)
    return all(same(run.settings.get(key)) == same(run.settings.get(leading)) for run in runs)
