"""What a run comes to: its numbers, its verdict, its line."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from specfw.counting import Tally
from specfw.diagnostics._evidence import E_VALUE_LIMIT, log_mean_exp
from specfw.diagnostics.base import Observer
from specfw.recording import summary_line
from specfw.resolution import Choice

import numpy as np


class Output(NamedTuple):
    """What one sequence became.

    Attributes:
        prompt: place of its prompt in the whole list.
        sample: sample number.
        tokens: emitted ids, the end-of-sequence id included.
        text: of the tokens.
        finish: `stop`, `length`, or `interrupted`.
    """

    prompt: int
    sample: int
    tokens: tuple[int, ...]
    text: str
    finish: str


@dataclass(frozen=True, kw_only=True)
class Summary:
    """A finished run.

    Attributes:
        rule: id of the rule that ran.
        decided_by: what chose it.
        verdict: `passed`, `failed`, or `unchecked` when calibration is off or nothing was decided.
        line: the summary line.
        numbers: everything measured, as in summary.json.
        outputs: one for each sequence, by prompt and sample.
        folder: of the record, None when none was kept.
    """

    rule: str
    decided_by: str
    verdict: str
    line: str
    numbers: Mapping[str, Any]
    outputs: tuple[Output, ...] = field(repr=False)
    folder: Path | None

    @property
    def passed(self) -> bool:
        """Whether no check failed."""
        return self.verdict != "failed"


def summarise(
    active: Choice,
    tally: Tally,
    observers: Mapping[str, Observer],
    outputs: tuple[Output, ...],
    facts: Mapping[str, Any],
    folder: Path | None,
    *,
    broken: bool = False,
) -> Summary:
    """Counters, diagnostics and the verdict: the mean of the checks' e-values against 10^6.

    Args:
        active: the rule that ran.
        tally: its counters.
        observers: the diagnostics, by name.
        outputs: one for each sequence.
        facts: further entries of summary.json.
        folder: of the record.
        broken: a check failed on the way, whatever the e-values say.
    """
    rule, counted = active.rule, tally.numbers()
    line = summary_line(rule, active.decided_by, counted)
    log_e = log_e_value(observers)
    proven = log_e is not None and log_e > math.log(E_VALUE_LIMIT)
    verdict = "failed" if broken or proven else "unchecked" if log_e is None else "passed"
    numbers = {
        "rule": rule.id,
        "preserves_target": rule.preserves_target,
        "stops_at_rejection": rule.stops_at_rejection,
        "decided_by": active.decided_by,
        "verdict": verdict,
        "log10_e_value": None if log_e is None else log_e / math.log(10),
        **facts,
        **counted,
        "diagnostics": {name: one.numbers() for name, one in observers.items()},
        "finish": [{"prompt": one.prompt, "sample": one.sample, "finish": one.finish} for one in outputs],
        "line": line,
    }
    return Summary(
        rule=rule.id,
        decided_by=active.decided_by,
        verdict=verdict,
        line=line,
        numbers=numbers,
        outputs=outputs,
        folder=folder,
    )


def log_e_value(observers: Mapping[str, Observer]) -> float | None:
    """Logarithm of the mean of all checks' e-values, itself the log of an e-value; None without checks."""
    logs = [check.log_e_value for one in observers.values() for check in one.checks().values()]
    return log_mean_exp(np.array(logs)) if logs else None


def warnings(summary: Summary) -> dict[str, str]:
    """What a reader of the numbers should be told."""
    counted = summary.numbers
    told = {}
    if counted["accepted"] == counted["positions_tested"] > 0 and counted["proposed"] < 2 * counted["rounds"]:
        told["few_proposals"] = "everything was accepted, of less than two draft tokens a round"
    if not summary.passed and "error" not in counted:
        told["check_failed"] = "what happened does not follow the rule's law"
    return told
