"""One record of a run: its files read, its numbers checked, its row filled."""

import hashlib
import json
from collections.abc import Iterator, Mapping
from itertools import islice
from typing import Any

from specfw.files import EVENTS, SUMMARY
from specfw.study.finding import Found
from specfw.study.gathered import PROMPTS, Interval, Leaf, Row, Run
from specfw.study.intervals import of_record, wilson
from specfw.study.loading import lines, mapping
from specfw.study.values import amount, at, count, counts, evidence, flag, given, number, require, share, text

VERDICTS = ("passed", "failed", "unchecked")
SEEDS = 2**64
KEYS = 2000
"""Of a configuration; ours have about a hundred."""

LONGEST = 500
"""Characters of a dotted key and of a rule's id; ours have at most 50."""

_BEFORE = 1000
"""Events that may stand before run_started; warnings do."""

_FORMS = "diagnostics.closed_forms"
_CHECK = "diagnostics.calibration.closed_form"


def read(found: Found) -> Run:
    """The run in a folder that has a summary.

    Raises:
        ValueError: in one sentence what is not as a run of ours leaves it.
    """
    numbers = mapping(found.folder / SUMMARY)
    started = _started(found)
    config = at(started, "config")
    require("run_started.config", isinstance(config, Mapping) and bool(config), "a mapping", config)
    require("run_started.config", _has_names(config), "of keys that are names", list(config))
    settings = dict(islice(leaves(config), KEYS + 1))
    require("run_started.config", len(settings) <= KEYS, f"of at most {KEYS} keys", "more")
    longest = max(settings, key=len)
    require("run_started.config", len(longest) <= LONGEST, f"of keys of at most {LONGEST} characters", longest)
    row = _row(numbers, started)
    same = text(started, "digest") == row.digest
    require(f"the digest in {EVENTS}", same, f"that of {SUMMARY}", at(started, "digest"))
    return Run(found.folder, found.name, row, settings, _inputs(started), config, numbers, started)


def leaves(config: Mapping[str, Any]) -> Iterator[tuple[str, Leaf]]:
    """Dotted keys and values; a list is its JSON text, and so is a mapping of token ids or of nothing."""
    left: list[tuple[str, Any]] = [("", config)]
    while left:
        key, node = left.pop()
        if isinstance(node, Mapping) and not all(name.isdecimal() for name in node):
            left += [(f"{key}.{name}" if key else name, inner) for name, inner in reversed(list(node.items()))]
        else:
            yield key, json.dumps(node) if isinstance(node, list | Mapping) else node


def _has_names(config: Mapping[str, Any]) -> bool:
    """Without a name a key is no heading of a column."""
    return "" not in config and not all(name.isdecimal() for name in config)


def _inputs(started: Mapping[str, Any]) -> dict[str, str]:
    models = started.get("models")
    told = models if isinstance(models, Mapping) else {"models": models}
    known = {**told, PROMPTS: started.get("prompts_digest")}
    return {role: hashlib.sha256(json.dumps(one, sort_keys=True).encode()).hexdigest() for role, one in known.items()}


def _started(found: Found) -> dict[str, Any]:
    events = islice(lines(found.folder / EVENTS), _BEFORE)
    event = next((event for event in events if event.get("event") == "run_started"), None)
    if event is None:
        raise ValueError(f"{EVENTS} has no run_started")
    return event


def _row(numbers: Mapping[str, Any], started: Mapping[str, Any]) -> Row:
    verdict = given(text(numbers, "verdict"), "verdict")
    require("verdict", verdict in VERDICTS, f"one of: {', '.join(VERDICTS)}", verdict)
    rule = given(text(numbers, "rule"), "rule")
    require("rule", len(rule) <= LONGEST, f"of at most {LONGEST} characters", rule)
    return Row(
        digest=given(text(numbers, "digest"), "digest"),
        rule=rule,
        preserves_target=given(flag(numbers, "preserves_target"), "preserves_target"),
        decided_by=given(text(numbers, "decided_by"), "decided_by"),
        verdict=verdict,
        log10_e_value=evidence(numbers, "log10_e_value"),
        seed=given(count(numbers, "seed", SEEDS), "seed"),
        **_acceptance(numbers),
        **_check(numbers),
        rounds=given(count(numbers, "rounds"), "rounds"),
        proposed=given(count(numbers, "proposed"), "proposed"),
        emitted=given(count(numbers, "emitted"), "emitted"),
        acceptance_rate=share(numbers, "acceptance_rate"),
        mean_accepted_len=amount(numbers, "mean_accepted_len"),
        mean_accepted_len_interval=of_record(numbers, "mean_accepted_len"),
        accepted_lengths=counts(numbers, "diagnostics.acceptance.accepted_length_counts"),
        mean_tokens_per_round=amount(numbers, "mean_tokens_per_round"),
        first_measured=share(numbers, f"{_FORMS}.first_position.acceptance"),
        first_sum_min=share(numbers, f"{_FORMS}.first_position.sum_min"),
        distortion=share(numbers, f"{_FORMS}.first_position.distortion"),
        distortion_lower_bound=share(numbers, f"{_FORMS}.distortion_lower_bound"),
        tokens_per_s=amount(numbers, "diagnostics.throughput.tokens_per_s"),
        decode_s=amount(numbers, "diagnostics.throughput.decode_s"),
        prefill_s=amount(numbers, "prefill_s"),
        interrupted=flag(numbers, "interrupted") or False,
        error=text(numbers, "error"),
        started=text(started, "timestamp"),
        processor=text(started, "processor"),
        device=text(started, "device"),
        origins=None,
    )


def _acceptance(numbers: Mapping[str, Any]) -> dict[str, Any]:
    """Acceptance beside its closed forms, at all tested places, or at the first where a rule looks past a rejection."""
    stops = given(flag(numbers, "stops_at_rejection"), "stops_at_rejection")
    forms = _FORMS if stops else f"{_FORMS}.first_position"
    means = {name: share(numbers, f"{forms}.{name}") for name in ("sum_min", "sum_prod", "gumbel")}
    tested, accepted = _counted(numbers, stops=stops)
    require("accepted", accepted <= tested, f"at most the {tested} tested", accepted)
    own: Interval | None = of_record(numbers, "per_position_acceptance") if stops else None
    sum_min, sum_prod = means["sum_min"], means["sum_prod"]
    return {
        "places": "tested" if stops else "first",
        "tested": tested,
        "accepted": accepted,
        "measured": accepted / tested if tested else None,
        "interval": own or wilson(accepted, tested),
        "expected": share(numbers, f"{forms}.expected_acceptance"),
        **means,
        "ratio": sum_min / sum_prod if sum_min is not None and sum_prod else None,
    }


def _counted(numbers: Mapping[str, Any], *, stops: bool) -> tuple[int, int]:
    """Tested and accepted draft tokens; every round that proposed has one first place."""
    if stops:
        return (
            given(count(numbers, "positions_tested"), "positions_tested"),
            given(count(numbers, "accepted"), "accepted"),
        )
    first, rounds = share(numbers, f"{_FORMS}.first_position.acceptance"), given(count(numbers, "rounds"), "rounds")
    return (0, 0) if first is None else (rounds, round(first * rounds))


def _check(numbers: Mapping[str, Any]) -> dict[str, Any]:
    observed, expected = number(numbers, f"{_CHECK}.observed"), number(numbers, f"{_CHECK}.expected")
    return {
        "z": number(numbers, f"{_CHECK}.z"),
        "excess": None if observed is None or expected is None else observed - expected,
        "variance": amount(numbers, f"{_CHECK}.variance"),
    }
