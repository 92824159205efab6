"""What a study is made of: runs with one row each, other records, and what could not be read.

Texts of a record are kept as they are found and may hold anything: whoever writes them escapes them (`escaping`).
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

Leaf = str | int | float | bool | None
"""A value of a configuration; lists and empty mappings are their JSON text."""


class Interval(NamedTuple):
    """A 95 % interval.

    Attributes:
        low: its lower end.
        high: its upper end.
        kind: what was compared (Student's t): `prompts`, the `samples` of one prompt, `seeds`; or `wilson`, where only
            counts are known and draft tokens are taken as independent.
    """

    low: float
    high: float
    kind: str


class Row(NamedTuple):
    """One run in numbers, each None where the record does not have it.

    Attributes:
        digest: of the configuration, hexadecimal.
        rule: id of the rule that ran.
        preserves_target: whether the rule is lossless.
        decided_by: what chose the rule.
        verdict: `passed`, `failed` or `unchecked`.
        log10_e_value: what the verdict reads; inf after something impossible.
        seed: in [0, 2^64).
        places: `tested`, or `first` for rules that look past a rejection; where acceptance and closed forms are of.
        tested: draft tokens at these places.
        accepted: those that stand.
        measured: accepted / tested.
        interval: of `measured`.
        expected: the rule's own closed form, a mean over these places.
        sum_min: the closed form of `stochastic`, over these places.
        sum_prod: the closed form of `sampler_match`, over these places.
        gumbel: the closed form of shared noise, over these places.
        ratio: sum_min / sum_prod.
        z: (accepted - expected) / sqrt(variance) of the check `closed_form`; decides nothing.
        excess: accepted - expected of that check, a sum.
        variance: of that check, a sum.
        rounds: that proposed something.
        proposed: draft tokens.
        emitted: tokens.
        acceptance_rate: accepted / proposed, of the summary line.
        mean_accepted_len: draft tokens accepted a round.
        mean_accepted_len_interval: over prompts, or over the samples of one.
        accepted_lengths: rounds that accepted 0, 1, 2, .. draft tokens.
        mean_tokens_per_round: with the extra token.
        first_measured: acceptance of the first draft token of each round.
        first_sum_min: `sum_min` there.
        distortion: of a lossy rule that declares what it follows, there: total variation of that from the target.
        distortion_lower_bound: of a lossy rule, `first_measured` less `first_sum_min`, or 0.
        tokens_per_s: of the rounds, without prefill.
        decode_s: seconds of all rounds.
        prefill_s: seconds to take in the prompts.
        interrupted: whether Ctrl-C or SIGTERM ended the run.
        error: the sentence that ended it.
        started: when, UTC.
        processor: that ran it.
        device: of MLX.
        origins: emitted tokens in tokens.jsonl by their origin (accepted, recovered, bonus, plain); None until they
            are counted, and where there are none.
    """

    digest: str
    rule: str
    preserves_target: bool
    decided_by: str
    verdict: str
    log10_e_value: float | None
    seed: int
    places: str
    tested: int
    accepted: int
    measured: float | None
    interval: Interval | None
    expected: float | None
    sum_min: float | None
    sum_prod: float | None
    gumbel: float | None
    ratio: float | None
    z: float | None
    excess: float | None
    variance: float | None
    rounds: int
    proposed: int
    emitted: int
    acceptance_rate: float | None
    mean_accepted_len: float | None
    mean_accepted_len_interval: Interval | None
    accepted_lengths: tuple[int, ...] | None
    mean_tokens_per_round: float | None
    first_measured: float | None
    first_sum_min: float | None
    distortion: float | None
    distortion_lower_bound: float | None
    tokens_per_s: float | None
    decode_s: float | None
    prefill_s: float | None
    interrupted: bool
    error: str | None
    started: str | None
    processor: str | None
    device: str | None
    origins: Mapping[str, int] | None

    @property
    def uncounted(self) -> bool:
        """Whether tokens were drafted and the record does not say how many of them stood at these places."""
        return self.measured is None and self.proposed > 0

    @property
    def standing(self) -> str:
        """The verdict, or `interrupted` where the run ended early and nothing had failed."""
        return "interrupted" if self.interrupted and self.verdict != "failed" else self.verdict


PROMPTS = "prompts"
"""Beside the roles of the models, what a run's inputs are named by."""


class Run(NamedTuple):
    """A finished run.

    Attributes:
        folder: where its record is.
        name: the folder as tables show it, beneath what all sources have in common.
        row: its numbers, checked.
        settings: the configuration by dotted key, in its order.
        inputs: digests of what the configuration only points at: each model's fingerprint, and the encoded `prompts`.
        config: the configuration, resolved.
        numbers: summary.json as it is; beyond `row` nothing of it is checked.
        started: the event run_started as it is; beyond `row` and `config` nothing of it is checked.
    """

    folder: Path
    name: str
    row: Row
    settings: Mapping[str, Leaf]
    inputs: Mapping[str, str]
    config: Mapping[str, Any]
    numbers: Mapping[str, Any]
    started: Mapping[str, Any]


class Other(NamedTuple):
    """An audit, a proof or a benchmark.

    Attributes:
        folder: where its record is.
        name: as of a run.
        kind: `audit`, `proof`, `benchmark` or `benchmark_rules`.
        verdict: `passed`, `failed`, `unchecked`; None for benchmarks.
        facts: what a table shows of it, by column.
        numbers: its file as it is.
    """

    folder: Path
    name: str
    kind: str
    verdict: str | None
    facts: Mapping[str, Leaf]
    numbers: Mapping[str, Any]


class Problem(NamedTuple):
    """Something that was found and is not in the tables, or not as it should be.

    Attributes:
        name: the folder, as of a run.
        sentence: what is wrong with it.
    """

    name: str
    sentence: str


class Study(NamedTuple):
    """Everything that lay under the sources.

    Attributes:
        sources: as they were given.
        runs: by place, `2` before `10`.
        others: the same.
        problems: the same.
        varying: dotted keys of the configuration whose value is not the same in all runs, in the order of the
            configuration; without the seed, a permission, the task's keys, and a draft chain that follows the target's.
    """

    sources: tuple[str, ...]
    runs: tuple[Run, ...]
    others: tuple[Other, ...]
    problems: tuple[Problem, ...]
    varying: tuple[str, ...]
