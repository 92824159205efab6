"""What an audit finds, growing from text to text."""

import math
from collections.abc import Callable
from typing import Any

from specfw.verification.audit.audited import NONE, Audited
from specfw.verification.audit.e_process import Evidence, combine, paths
from specfw.verification.audit.greedy import Difference
from specfw.verification.audit.rows import Scores
from specfw.verification.audit.text import Text
from specfw.verification.audit.transform import uniformity
from specfw.verification.exact import Doubles

import numpy as np

IMPOSSIBLE, NOT_GREEDY = "impossible_token", "not_the_argmax"


class Findings:
    """Products and transforms of every sampled text, differences of every greedy one."""

    def __init__(self) -> None:
        self._impossible: dict[str, Any] | None = None
        self._texts = self._edge_tokens = self._greedy_tokens = self._impossible_tokens = 0
        self._differences: list[Difference] = []
        self._paths: list[dict[str, Doubles]] = []
        self._lengths: list[int] = []
        self._transforms: dict[str, list[Doubles]] = {}

    def add_sampled(self, text: Text, found: Scores, xtc: float, words: Callable[[int], str]) -> None:
        """Take in a sampled text.

        Args:
            text: the text.
            found: the scores of its tokens.
            xtc: probability of XTC's coin.
            words: what a token says.
        """
        self._texts += 1
        impossible = np.flatnonzero(found.edge == 0)
        if len(impossible) and self._impossible is None:
            place = int(impossible[0])
            self._impossible = {
                "prompt": text.prompt,
                "sample": text.sample,
                "position": len(text.ids) + place,
                "id": text.emitted[place],
                "text": words(text.emitted[place]),
                "after_tokens": sum(self._lengths) + place + 1,
                "possible_under": [name for name, row in found.others.items() if row[place] > 0],
            }
        self._impossible_tokens += len(impossible)
        self._edge_tokens += int(np.sum(found.p == 0)) - len(impossible)
        self._paths.append(paths(found, xtc))
        self._lengths.append(len(found.p))
        for name, transform in found.transforms.items():
            self._transforms.setdefault(name, []).append(transform)

    def add_greedy(self, text: Text, differences: list[Difference]) -> None:
        """Take in a greedy text."""
        self._texts += 1
        self._greedy_tokens += len(text.emitted)
        self._differences += differences

    def audited(self, alpha: float) -> Audited:
        """Everything as numbers, and what they come to."""
        evidence = combine(self._paths, self._lengths, alpha)
        near_ties = sum(one.near_tie for one in self._differences)
        sampled = {name: uniformity(texts) for name, texts in self._transforms.items() if sum(map(len, texts))}
        return Audited.from_numbers(
            {
                "named": self._named(evidence),
                "texts": self._texts,
                "tokens": self._greedy_tokens + sum(self._lengths),
                "alpha": alpha,
                "log10_e_value": self._log10_e_value(evidence),
                "first_rejected_after": self._rejected_after(evidence),
                "edge_tokens": self._edge_tokens + near_ties,
                "alternatives": {name: log / math.log(10) for name, log in evidence.logs.items()},
                "uniformity": {name: one._asdict() for name, one in sampled.items()},
                "impossible_tokens": self._impossible_tokens,
                "first_impossible": self._impossible,
                "greedy": self._greedy(near_ties),
            }
        )

    def _named(self, evidence: Evidence) -> str:
        if self._impossible is not None:
            explained = evidence.strongest in self._impossible["possible_under"]
            return evidence.strongest if evidence.strongest and explained else IMPOSSIBLE
        if any(not one.near_tie for one in self._differences):
            return NOT_GREEDY
        return evidence.strongest or NONE if evidence.crossed is not None else NONE

    def _rejected_after(self, evidence: Evidence) -> int | None:
        """Sampled tokens up to the first rejection, whichever check saw it."""
        crossed = [] if evidence.crossed is None else [evidence.crossed + 1]
        impossible = [] if self._impossible is None else [self._impossible["after_tokens"]]
        return min(crossed + impossible, default=None)

    def _log10_e_value(self, evidence: Evidence) -> float:
        if self._impossible is not None:
            return math.inf
        return evidence.log_e_value / math.log(10) if self._lengths else math.nan

    def _greedy(self, near_ties: int) -> dict[str, Any] | None:
        if not self._greedy_tokens:
            return None
        first = min(self._differences, key=lambda one: one.near_tie, default=None)
        return {
            "tokens": self._greedy_tokens,
            "differences": len(self._differences) - near_ties,
            "near_ties": near_ties,
            "first_difference": first and first._asdict(),
        }
