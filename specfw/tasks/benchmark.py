"""Benchmark: decoders side by side on this machine, and what to decode with here."""

import json
import sys
from dataclasses import dataclass
from typing import Any, final

from specfw.benchmark import bench, shown
from specfw.benchmark.line_up import AUTO, KINDS, Wanted
from specfw.benchmark.machine import machine
from specfw.benchmark.page import page
from specfw.benchmark.report import Report
from specfw.benchmark.tables import sentences, tables
from specfw.drafting.controllers.constant import MOST
from specfw.files import write_whole
from specfw.registry import names, register, require
from specfw.tasks.base import Job, Task

BENCHMARK, PAGE = "benchmark.json", "benchmark.md"


@final
@register("task")
@dataclass(frozen=True, kw_only=True)
class Benchmark(Task):
    """One line on stdout, tables on stderr, every repeat in benchmark.json, and a page to keep, benchmark.md.

    Attributes:
        arms: `auto`, those that this pair has, or a list of plain, mlx_lm_plain, mlx_lm_speculative and rules.
        rules: acceptance rules that are timed, by name.
        num_draft_tokens: K of every arm that drafts with a constant one.
        controllers: those that change K, by name; each is an arm of every rule.
        repeats: of every arm, after one that does not count.
        diagnostics_cost: time the configured rule with and without the configured diagnostics.
        speedup: whether ratios to plain decoding are wanted; null: where it is among the arms.
    """

    arms: Any = AUTO
    rules: tuple[str, ...] = ("stochastic", "sampler_match")
    num_draft_tokens: tuple[int, ...] = (1, 2, 4, 8)
    controllers: tuple[str, ...] = ()
    repeats: int = 7
    diagnostics_cost: bool = True
    speedup: bool | None = None

    def __post_init__(self) -> None:
        kinds = self.arms == AUTO or (isinstance(self.arms, tuple) and bool(self.arms) and set(self.arms) <= set(KINDS))
        require("arms", kinds, f"auto, or a list of: {', '.join(KINDS)}", self.arms)
        require("rules", bool(self.rules), "a list of at least one rule", list(self.rules))
        for name in self.rules:
            require("rules", name in names("acceptance"), f"made of: {', '.join(names('acceptance'))}", name)
        within = bool(self.num_draft_tokens) and all(1 <= count <= MOST for count in self.num_draft_tokens)
        require("num_draft_tokens", within, f"a list of numbers in [1, {MOST}]", list(self.num_draft_tokens))
        changing = [name for name in names("controller") if name != "constant"]
        for name in self.controllers:
            require("controllers", name in changing, f"made of: {', '.join(changing)}", name)
        for key in ("rules", "num_draft_tokens", "controllers", "arms"):
            given = getattr(self, key)
            require(key, given == AUTO or len(set(given)) == len(given), "a list that names nothing twice", list(given))
        require("repeats", self.repeats >= 1, "at least 1", self.repeats)

    def run(self, job: Job) -> Report:
        arms = None if self.arms == AUTO else self.arms
        wanted = Wanted(arms, self.rules, self.num_draft_tokens, self.diagnostics_cost, self.speedup, self.controllers)
        report = bench.benchmark(job.config, wanted, repeats=self.repeats, acceptance=job.acceptance, shelf=job.shelf)
        facts = machine(job.folder)
        numbers = shown.record(report, facts)
        write_whole(job.folder / BENCHMARK, json.dumps(numbers, indent=1, allow_nan=False) + "\n")
        write_whole(job.folder / PAGE, _page(report, facts, job.config))
        shown.show(report, job.folder)
        sys.stdout.write(f"{shown.line(report)}\n")
        if report.measured.interrupted:
            raise KeyboardInterrupt
        return report


def _page(report: Report, facts: dict[str, Any], config: dict[str, Any]) -> str:
    prompt = ", ".join(map(str, report.ran.prompt_tokens))
    ran = (
        f"models: {', '.join(report.ran.models.values())}",
        f"prompt: {prompt} tokens; {config['max_tokens']} tokens emitted at most",
        f"sampler chain: {', '.join(report.ran.chain) or 'no step acts'}",
        f"{report.measured.repeats} repeats after one that does not count, seeds from {config['seed'] + 1} on",
    )
    ends = "## Recommendation\n\n" + "\n".join(f"- {words}" for words in sentences(report))
    return page("Benchmark", facts, ran, tables(report), ends)
