"""Benchmark of the rules alone: one round decided from logits, at vocabularies of real size."""

import itertools
import json
import sys
import time
from dataclasses import dataclass
from typing import Any, final

from specfw.acceptance.base import AcceptanceRule
from specfw.backend.machine import cores
from specfw.benchmark.bench import stderr
from specfw.benchmark.deciding import shown
from specfw.benchmark.deciding.measuring import Deciding, Plan, measure
from specfw.benchmark.machine import machine
from specfw.benchmark.page import page
from specfw.benchmark.shown import say
from specfw.drafting.controllers.constant import MOST
from specfw.files import write_whole
from specfw.registry import build, register, require
from specfw.resolution import Choice, Circumstances, resolve
from specfw.sampling.chain import SamplerChain
from specfw.tasks.base import Job, Task

RECORD, PAGE = "benchmark_rules.json", "benchmark_rules.md"
_ALL = Circumstances(
    greedy_target=False, proposes=True, reports_distribution=True, shares_noise=True, allow_lossy=False
)


@final
@register("task")
@dataclass(frozen=True, kw_only=True)
class BenchmarkRules(Task):
    """One line on stdout, a table on stderr, every repeat in benchmark_rules.json, and a page.

    Attributes:
        vocab_sizes: V of every size, each at least 8 times `top_k`.
        num_draft_tokens: K of every size.
        rules: lossless rules that sample, by name.
        repeats: that count, after one that does not.
        top_k: of the truncation that everything is timed with as well.
    """

    vocab_sizes: tuple[int, ...] = (32_000, 151_936, 262_144)
    num_draft_tokens: tuple[int, ...] = (1, 4, 8)
    rules: tuple[str, ...] = ("stochastic", "block", "sampler_match", "gumbel")
    repeats: int = 15
    top_k: int = 64

    def __post_init__(self) -> None:
        require("top_k", self.top_k >= 64, "at least 64, among which draft tokens lie", self.top_k)  # noqa: PLR2004
        least = 8 * self.top_k
        wide = bool(self.vocab_sizes) and min(self.vocab_sizes) >= least
        require("vocab_sizes", wide, f"a list of numbers of at least {least}", list(self.vocab_sizes))
        within = bool(self.num_draft_tokens) and all(1 <= count <= MOST for count in self.num_draft_tokens)
        require("num_draft_tokens", within, f"a list of numbers in [1, {MOST}]", list(self.num_draft_tokens))
        require("rules", bool(self.rules), "a list of at least one rule", list(self.rules))
        for key in ("vocab_sizes", "num_draft_tokens", "rules"):
            given = getattr(self, key)
            require(key, len(set(given)) == len(given), "a list that names nothing twice", list(given))
        require("repeats", self.repeats >= 1, "at least 1", self.repeats)
        self._built()

    def run(self, job: Job) -> Deciding:
        steps = SamplerChain.from_config(job.config["sampler"]).describe()
        require("sampler", not steps, "neutral for benchmark_rules, which has chains of its own", steps)
        facts = machine(job.folder)
        sizes = tuple(itertools.product(self.vocab_sizes, self.num_draft_tokens))
        threads = facts["threads"] or cores()
        plan = Plan(sizes, self._built(), self.top_k, self.repeats, job.config["seed"], threads)
        found = measure(plan, time.perf_counter, stderr)
        write_whole(job.folder / RECORD, json.dumps(shown.record(found, facts), indent=1, allow_nan=False) + "\n")
        write_whole(job.folder / PAGE, _page(found, facts))
        say([shown.floors(found), shown.table(found)], shown.sentences(found), job.folder)
        sys.stdout.write(f"{shown.line(found)}\n")
        return found

    def _built(self) -> dict[str, AcceptanceRule]:
        """The rules by name; one that changes the distribution or stands in for another is refused."""
        asked = {name: build("acceptance", {"name": name}, "task.rules") for name in self.rules}
        return {name: resolve(Choice(rule, "configuration"), _ALL).rule for name, rule in asked.items()}


def _page(found: Deciding, facts: dict[str, Any]) -> str:
    ran = (f"{found.repeats} repeats after one that does not count, contenders taking turns",)
    ends = "## Notes\n\n" + "\n".join(f"- {words}" for words in shown.sentences(found))
    return page("Benchmark of the rules", facts, ran, [shown.floors(found), shown.table(found)], ends)
