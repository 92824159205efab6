"""Verify: put a configuration to the proof, and show that the checks would see it if it were wrong."""

import json
from dataclasses import dataclass
from typing import final

from specfw.experiment import costed, read
from specfw.files import write_whole
from specfw.models.memory import wired
from specfw.parts import Models, Plan, decoder, load, plan
from specfw.registry import register, require
from specfw.tasks.base import Job, Task
from specfw.verification.faults import FAULTS, Fault, named
from specfw.verification.proof import Bench, Proof, bench
from specfw.verification.shown import line, record, show

PROOF, COSTS = "proof.json", "forward_cost.json"
LENGTH = 64
TOKENS_BATCHED, TOKENS_ALONE, MOST_TOKENS = 200_000, 2_000, 20_000_000


@final
@register("task")
@dataclass(frozen=True, kw_only=True)
class Verify(Task):
    """A table of everything that was tried on stderr, one line on stdout, all numbers in proof.json.

    Attributes:
        tokens: of each sample; null for 200,000 where sequences are decoded together, else 2,000.
        length: tokens of each sequence, at least 8.
        alpha: chance that the statistical checks of a right run reject it, all together.
        power: try the fitting faults one by one.
        fault: run with this fault instead, which must then be rejected; null for none.
    """

    tokens: int | None = None
    length: int = LENGTH
    alpha: float = 1e-4
    power: bool = True
    fault: str | None = None

    def __post_init__(self) -> None:
        require("length", self.length >= 8, "8 or more", self.length)  # noqa: PLR2004
        some = self.tokens is None or self.length <= self.tokens <= MOST_TOKENS
        require("tokens", some, f"in [length = {self.length}, {MOST_TOKENS}]", self.tokens)
        require("alpha", 0 < self.alpha < 1, "in (0, 1)", self.alpha)
        known = self.fault is None or self.fault in FAULTS
        require("fault", known, f"one of: {', '.join(FAULTS)}", self.fault)

    def run(self, job: Job) -> Proof:
        planned = plan(job.config, job.acceptance)
        fault = self._fault(planned)
        models = load(planned, job.shelf)
        encoded = planned.prompts.encode(models.target)
        read(models, encoded, {**job.config, "max_tokens": self.length})
        planned = costed(
            planned, models, encoded, lambda curve: write_whole(job.folder / COSTS, json.dumps(curve) + "\n")
        )
        with wired():
            proof = self._bench(job, planned, models).prove(fault, power=self.power)
        write_whole(job.folder / PROOF, json.dumps(record(proof), indent=1, allow_nan=False) + "\n")
        show(proof, job.folder)
        print(line(proof), flush=True)  # noqa: T201
        return proof

    def _fault(self, planned: Plan) -> Fault | None:
        if self.fault is None:
            return None
        fault, rule = named(self.fault), planned.active.rule
        require("task.fault", fault.fits(rule), f"one that {rule.id} can have", self.fault)
        require("task.fault", fault.fits_drafting(planned.drafting), "one that this drafting can have", self.fault)
        changes = fault.fits_chain(planned.draft_chain)
        require("task.fault", changes, "one that changes something under this draft_sampler", self.fault)
        return fault

    def _bench(self, job: Job, planned: Plan, models: Models) -> Bench:
        together = all(model.batched for model in models.present().values())
        tokens = self.tokens or (TOKENS_BATCHED if together else TOKENS_ALONE)
        config = {**job.config, "max_tokens": self.length}
        made = decoder(config, planned, models)
        return bench(config, planned, models, made, samples=max(tokens // self.length, 1), alpha=self.alpha)
