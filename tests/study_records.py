"""Records for tests of what is gathered from them: real ones of toy pairs, and changed copies of these."""

import copy
import json

from specfw.__main__ import main

import pytest


def recorded(folder, *words):
    """The record of a run of a toy pair, in `folder`."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SPECFW_OUTPUTS", str(folder))
        assert main(["experiment=smoke", f"hydra.run.dir={folder}", *words]) == 0
    return folder


def changed(record, folder, *, summary=None, started=None, tokens=None):
    """A copy of a record with other entries, by dotted path; its configuration gets a digest of its own.

    `tokens` are changes of single tokens, by place; entries that are mappings replace whole trees.
    """
    folder.mkdir(parents=True)
    numbers = json.loads((record / "summary.json").read_text())
    event = started_of(record)
    digest = f"{abs(hash(str(folder))):064x}"[:64]
    for tree, changes in ((numbers, summary), (event, started)):
        tree["digest"] = digest
        for path, value in (changes or {}).items():
            put(tree, path, copy.deepcopy(value))
    (folder / "summary.json").write_text(json.dumps(numbers))
    (folder / "events.jsonl").write_text(json.dumps(event) + "\n")
    if tokens is not None:
        rows = [json.loads(line) for line in (record / "tokens.jsonl").read_text().splitlines()]
        for place, change in tokens.items():
            rows[place] |= change
        (folder / "tokens.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return folder


def started_of(record):
    events = (json.loads(line) for line in (record / "events.jsonl").read_text().splitlines())
    return next(event for event in events if event["event"] == "run_started")


def put(tree, path, value):
    *before, last = path.split(".")
    for part in before:
        tree = tree.setdefault(part, {})
    tree[last] = value


def many(record, folder, count):
    """`count` made-up runs: two rules, five temperatures, five draft lengths, and seeds."""
    for number in range(count):
        seed, rest = divmod(number, 50)
        length, temperature = divmod(rest // 2, 5)
        rule = ("stochastic", "block")[rest % 2]
        changes = {"rule": rule, "seed": seed, "stops_at_rejection": rule == "stochastic"}
        put_in = {
            "config.sampler.temperature.value": 0.3 + 0.3 * temperature,
            "config.controller.num_draft_tokens": 2**length,
            "config.acceptance.name": rule,
            "config.seed": seed,
            "seed": seed,
        }
        changed(record, folder / str(number), summary=changes, started=put_in)
    return folder


HOSTILE = "</script><script>window.owned=1;alert(1)</script><img src=x onerror=window.owned=2>\u202e\u0007\x1b[31m"
"""Markup, a script, a text-direction override and control characters."""


def hostile(record, folder):
    """A record that says something nasty wherever it can say anything."""
    changes = {
        "rule": HOSTILE,
        "decided_by": HOSTILE,
        "diagnostics.scoreboard": {HOSTILE: {"mean_accepted_len": 1.0, "difference": 0.0, "standard_error": 0.1}},
    }
    config = {
        "config.prompts.text": HOSTILE,
        f"config.sampler.{HOSTILE.replace('.', ' ')}": HOSTILE,
        "config.target.name": HOSTILE,
        "processor": HOSTILE,
        "device": HOSTILE,
        "versions": {HOSTILE: HOSTILE},
        "chain": [HOSTILE],
        "timestamp": HOSTILE,
    }
    return changed(record, folder, summary=changes, started=config, tokens={0: {"text": HOSTILE}, 1: {"text": ""}})
