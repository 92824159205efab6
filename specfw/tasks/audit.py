"""Audit: emitted tokens, of a run or of another engine, held against the law they claim to follow."""

import dataclasses
import json
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import final

from specfw.files import write_whole
from specfw.recording import plain
from specfw.registry import register, require
from specfw.sampling.chain import SamplerChain
from specfw.tasks.base import Job, Task
from specfw.verification.audit import source
from specfw.verification.audit.audited import Audited
from specfw.verification.audit.auditing import Auditor
from specfw.verification.audit.table import show

AUDIT = "audit.json"


@final
@register("task")
@dataclass(frozen=True, kw_only=True)
class Audit(Task):
    """Teacher-forced replay: one line on stdout, a table on stderr, audit.json in the folder.

    Attributes:
        source: a run's folder, or a file of JSON lines {"prompt": [ids], "emitted": [ids], "sampler": {...}}.
        alpha: in (0, 1), the chance at most that a right text is rejected; 1e-6 as for a run.
        orders: named lists of steps, the alternatives to the claimed order.
    """

    source: str
    alpha: float = 1e-6
    orders: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        require("source", bool(self.source.strip()), "the folder of a run or a file of JSON lines", self.source)
        require("alpha", 0 < self.alpha < 1, "in (0, 1)", self.alpha)
        for name, order in self.orders.items():
            SamplerChain.from_config({"order": order}, f"orders.{name}")

    def run(self, job: Job) -> Audited:
        case = source.opened(self.source, job.config, job.shelf)
        auditor = Auditor(seed=job.config["seed"], alpha=self.alpha, orders=self.orders)
        audited = dataclasses.replace(auditor.audit(case), folder=job.folder)
        numbers = {"source": self.source, "seed": auditor.seed, **audited.numbers}
        write_whole(job.folder / AUDIT, json.dumps(plain(numbers), indent=2, allow_nan=False) + "\n")
        show(audited)
        sys.stdout.write(f"{audited.line}\n")
        return audited
