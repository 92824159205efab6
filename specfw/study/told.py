"""What was run, and where: the configuration that all runs share, what varies, and the provenance."""

import shlex
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from specfw.study.columns import differing, shown
from specfw.study.escaping import one_line, shortened, word
from specfw.study.gathered import Run, Study
from specfw.study.values import at, number, text

import yaml

SEED = "seed"
_MOST_VALUES = 12
_LONGEST = 300
_LONGEST_TEXT = 100_000
_FOLLOWS = "the target's chain, value by value"
_DEEP = "nested too deeply to be shown"


class Lines(str):
    """A text whose line breaks are shown as such, and in which nothing else is left that does not print."""

    __slots__ = ()


def lines(text: str) -> Lines:
    """`text` with its line breaks, everything else that does not print escaped."""
    return Lines("\n".join(one_line(line) for line in text.split("\n")))


class Fact(NamedTuple):
    """A line of what is told.

    Attributes:
        name: what it is about.
        values: what was found, each once.
    """

    name: str
    values: tuple[str, ...]


class Told(NamedTuple):
    """What a reader needs to run it again.

    Attributes:
        commands: to replay a run, and to make this page.
        varying: keys that differ between runs, with their values and how many runs have each.
        shared: the configuration that all runs have in common, YAML.
        provenance: versions, machine, BLAS, models, digests.
    """

    commands: tuple[str, ...]
    varying: tuple[Fact, ...]
    shared: Lines
    provenance: tuple[Fact, ...]


def told(study: Study) -> Told:
    """Everything of a study that is no result."""
    varying = [
        *(key for key in study.varying if _differs(key, study.runs)),
        *([SEED] if len({run.row.seed for run in study.runs}) > 1 else []),
    ]
    values = tuple(_values(key, study.runs) for key in varying)
    return Told(_commands(study), values, _shared(study.runs, set(differing(study.runs))), _provenance(study))


def _commands(study: Study) -> tuple[str, ...]:
    page = _command("task=report", f"task.source=[{','.join(map(word, study.sources))}]")
    again = [_command(f"replay={word(_named(run, study.sources))}") for run in study.runs[:1]]
    return tuple(map(one_line, (*again, page)))


def _command(*words: str) -> str:
    return shlex.join(["python", "-m", "specfw", *words])


def _named(run: Run, sources: Sequence[str]) -> Path:
    """Its folder as the sources spell it, so that a page names no place that its maker did not."""
    for source in sources:
        top = Path(source).expanduser().resolve()
        if run.folder.is_relative_to(top):
            return Path(source) / run.folder.relative_to(top)
    return run.folder


def _differs(key: str, runs: Sequence[Run]) -> bool:
    """Whether runs that have the key differ in it; others have another component, which is told already."""
    return len({shown(run.settings[key]) for run in runs if key in run.settings}) > 1


def _values(key: str, runs: Sequence[Run]) -> Fact:
    counted = Counter(one_line(shown(run.row.seed if key == SEED else run.settings.get(key))) for run in runs)
    most = [f"{shortened(value, _LONGEST)} ({count})" for value, count in list(counted.items())[:_MOST_VALUES]]
    return Fact(one_line(key), (*most, *_more(len(counted) - len(most))))


def _more(left: int) -> tuple[str, ...]:
    return (f"and {left} more",) if left > 0 else ()


def _shared(runs: Sequence[Run], differing: set[str]) -> Lines:
    """The first run's configuration without what varies; the draft chain in words where it is the target's."""
    if not runs:
        return Lines()
    try:
        return lines(shortened(_written(runs[0].config, differing).rstrip(), _LONGEST_TEXT))
    except RecursionError:
        return Lines(_DEEP)


def _written(config: Mapping[str, Any], differing: set[str]) -> str:
    kept = _without(config, differing, "")
    if isinstance(kept, dict) and "sampler" in kept and kept.get("draft_sampler") == kept["sampler"]:
        kept["draft_sampler"] = _FOLLOWS
    return str(yaml.safe_dump(kept, sort_keys=False, allow_unicode=True, default_flow_style=None, width=100))


def _without(tree: Any, keys: set[str], path: str) -> Any:
    """A tree of mappings without the leaves at the dotted keys, and without what that empties."""
    if not isinstance(tree, Mapping) or not tree:
        return tree
    inner = {
        name: _without(value, keys, f"{path}{name}.") for name, value in tree.items() if f"{path}{name}" not in keys
    }
    return {name: value for name, value in inner.items() if value != {} or tree[name] == {}}


def _provenance(study: Study) -> tuple[Fact, ...]:
    facts = [Fact(name, _distinct(read, study.runs)) for name, read in _READ.items()]
    return tuple(fact for fact in facts if fact.values)


def _distinct(read: Callable[[Run], str | None], runs: Iterable[Run]) -> tuple[str, ...]:
    """What the runs say, each answer once and the most frequent first."""
    counted: Counter[str] = Counter()
    for run in runs:
        try:
            found = read(run)
        except (ValueError, RecursionError):
            found = "not as a run of ours leaves it"
        if found:
            counted[shortened(one_line(found), _LONGEST)] += 1
    values = [value for value, _ in counted.most_common(_MOST_VALUES)]
    return (*values, *_more(len(counted) - len(values)))


def _joined(path: str) -> Callable[[Run], str | None]:
    """A list of texts, or a mapping to them."""

    def read(run: Run) -> str | None:
        found = at(run.started, path)
        if isinstance(found, Mapping):
            return ", ".join(f"{name} {value}" for name, value in found.items())
        return " → ".join(map(str, found)) if isinstance(found, list) else None

    return read


def _said(path: str) -> Callable[[Run], str | None]:
    return lambda run: text(run.started, path)


def _blas(run: Run) -> str | None:
    threads = number(run.started, "threads")
    words = [text(run.started, "blas"), text(run.started, "backend.version")]
    words.append(f"threads {threads:g}" if threads is not None else None)
    return ", ".join(word for word in words if word) or None


def _model(role: str) -> Callable[[Run], str | None]:
    """Its name in the configuration, and the digests that the record has of it."""

    def read(run: Run) -> str | None:
        named = text(run.config, f"{role}.path") or text(run.config, f"{role}.name")
        found = at(run.started, f"models.{role}")
        digests = "; ".join(f"{name} {value}" for name, value in _leaves(found)) if isinstance(found, Mapping) else ""
        return None if named is None else f"{named}: {digests}" if digests else named

    return read


def _leaves(tree: Mapping[str, Any]) -> list[tuple[str, str]]:
    found = []
    for name, value in tree.items():
        if isinstance(value, Mapping):
            found += _leaves(value)
        elif isinstance(value, str):
            found.append((name, shortened(value, 17)))
    return found


_READ: dict[str, Callable[[Run], str | None]] = {
    "versions": _joined("versions"),
    "processor": _said("processor"),
    "device": _said("device"),
    "float32 products": _blas,
    "target": _model("target"),
    "drafter": _model("drafter"),
    "target's chain": _joined("chain"),
    "drafter's chain": _joined("draft_chain"),
    "digest of the prompts": _said("prompts_digest"),
    "digest of the configuration": lambda run: run.row.digest,
    "started": lambda run: run.row.started,
    "rule decided by": lambda run: run.row.decided_by,
}
