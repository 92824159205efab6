"""Records of audits, proofs and benchmarks: the verdict and the few numbers that a table of them shows."""

from collections.abc import Callable, Mapping
from typing import Any

from specfw.study.finding import OTHERS, Found
from specfw.study.gathered import Leaf, Other
from specfw.study.loading import mapping
from specfw.study.reading import VERDICTS
from specfw.study.values import at, count, evidence, given, number, require, share, text

Numbers = Mapping[str, Any]


def read_other(found: Found, kind: str) -> Other:
    """The record of that kind in a folder.

    Raises:
        ValueError: in one sentence what is not as a task of ours leaves it.
    """
    numbers = mapping(found.folder / OTHERS[kind])
    given(text(numbers, "line"), "line")
    verdict = text(numbers, "verdict")
    judged = kind in ("audit", "proof")
    require("verdict", verdict in VERDICTS if judged else verdict is None, f"that of {OTHERS[kind]}", verdict)
    return Other(found.folder, found.name, kind, verdict, _FACTS[kind](numbers), numbers)


def _audit(numbers: Numbers) -> dict[str, Leaf]:
    return {
        "source": text(numbers, "source"),
        "tokens": count(numbers, "tokens"),
        "log10_e_value": evidence(numbers, "log10_e_value"),
        "named": text(numbers, "named"),
    }


def _proof(numbers: Numbers) -> dict[str, Leaf]:
    tests = _listed(numbers, "tests")
    p_values = [found for one in tests if (found := share(one, "p_value")) is not None]
    rejected = _listed(numbers, "rejected_by")
    return {
        "rule": text(numbers, "rule"),
        "fault": text(numbers, "fault"),
        "tokens": count(numbers, "tokens"),
        "exact_total_variation": share(numbers, "exact.total_variation"),
        "smallest_p": min(p_values, default=None),
        "tests": len(tests),
        "rejected_by": ", ".join(map(str, rejected)) or None,
    }


def _benchmark(numbers: Numbers) -> dict[str, Leaf]:
    return {
        "arms": len(_listed(numbers, "arms")),
        "repeats": count(numbers, "repeats"),
        "best": text(numbers, "recommendation.best"),
        "ratio": number(numbers, "recommendation.ratio.estimate"),
        "low": number(numbers, "recommendation.ratio.low"),
        "high": number(numbers, "recommendation.ratio.high"),
        "choice": text(numbers, "recommendation.choice"),
    }


def _benchmark_rules(numbers: Numbers) -> dict[str, Leaf]:
    return {
        "sizes": len(_listed(numbers, "sizes")),
        "repeats": count(numbers, "repeats"),
        "line": text(numbers, "line"),
    }


def _listed(numbers: Numbers, path: str) -> list[Any]:
    found = at(numbers, path)
    require(path, found is None or isinstance(found, list), "a list", found)
    return found or []


_FACTS: dict[str, Callable[[Numbers], dict[str, Leaf]]] = {
    "audit": _audit,
    "proof": _proof,
    "benchmark": _benchmark,
    "benchmark_rules": _benchmark_rules,
}
