"""Small runs of the real loop, without configuration or record."""

import functools
import itertools
import os
from collections.abc import Sequence
from dataclasses import dataclass

from specfw.acceptance.base import AcceptanceRule
from specfw.decoder import Decoder
from specfw.drafting.controllers.base import Controller, DraftLength
from specfw.drafting.controllers.constant import Constant
from specfw.drafting.model import ModelDrafting
from specfw.drafting.none import NoDrafting
from specfw.generation import Generation
from specfw.models.base import LanguageModel
from specfw.models.checkpoint import Checkpoint
from specfw.models.cycle import Cycle
from specfw.models.iid import Iid
from specfw.models.markov import Markov
from specfw.registry import component
from specfw.sampling.chain import SamplerChain
from specfw.types import Batch

import numpy as np

ORDER = ["bias", "repetition", "frequency", "presence", "dry", "temperature", "top_k", "top_p", "min_p", "xtc"]

SAMPLES = int(os.environ.get("SPECFW_TEST_SAMPLES", "12000"))
ALPHA = 1e-4


def chain(key="sampler", order=ORDER, **steps):
    return SamplerChain.from_config({"order": order, **steps}, key)


def rule(name, **fields) -> AcceptanceRule:
    return component("acceptance", name)(**fields)


def iid(probs, **fields):
    return Iid(probs=tuple(probs), **fields).load("toy")


def markov(rows, **fields):
    return Markov(rows=tuple(tuple(row) for row in rows), **fields).load("toy")


def cycle(*successors, **fields):
    return Cycle(successors=successors, **fields).load("toy")


@functools.cache
def shipped(role) -> LanguageModel:
    """A model of the shipped pair, `target` or `drafter`, read once."""
    return Checkpoint(path=f"zoo:{role}").load(role)


@dataclass(frozen=True, kw_only=True)
class Scripted(Controller):
    """Draft lengths as written down, over and over."""

    script: Sequence[int]

    @property
    def longest(self):
        return max(self.script)

    def open(self, rows):
        return _Scripted(self.script, rows)


class _Scripted(DraftLength):
    def __init__(self, script, rows):
        self._next, self._rows = itertools.cycle(script), rows

    def next(self):
        return np.full(self._rows, next(self._next))

    def observe(self, outcome):
        pass


def decoder(target, drafter, acceptance="stochastic", k=4, **changes) -> Decoder:
    sampler = changes.pop("sampler", None) or chain()
    parts = {
        "target": target,
        "drafter": drafter,
        "chain": sampler,
        "draft_chain": changes.pop("draft_sampler", None) or sampler,
        "drafting": ModelDrafting() if drafter is not None else NoDrafting(),
        "rule": rule(acceptance) if isinstance(acceptance, str) else acceptance,
        "controller": Constant(num_draft_tokens=k),
        "seed": 0,
        "max_tokens": 64,
        "eos_ids": frozenset(),
    }
    return Decoder(**{**parts, **changes})


def start(parts: Decoder, prompts=((0, 0),), samples=1, keep=None, **changes) -> Generation:
    """A batch of every prompt's samples, or of the rows `keep` among them."""
    rows = [(list(ids), prompt, sample) for prompt, ids in enumerate(prompts) for sample in range(samples)]
    rows = rows if keep is None else [rows[place] for place in keep]
    ids, prompt, sample = (np.array(column, dtype=np.int64) for column in zip(*rows, strict=True))
    return Generation(decoder=parts, batch=Batch(ids, prompt, sample), **changes)


def emitted(generation: Generation) -> list[list[int]]:
    """Run to the end; the emitted tokens of every row."""
    for _ in generation:
        pass
    length = generation.batch.prompts.shape[1]
    return [row[length:end].tolist() for row, end in zip(generation.tokens, generation.lengths, strict=True)]


def config(target, drafter, **changes):
    """A whole plain configuration, as `specfw.experiment.run` takes it; `sampler` also says the draft chain's steps."""
    steps = changes.pop("sampler", {})
    whole = {
        "seed": 0,
        "num_samples": 1,
        "max_tokens": 32,
        "batch_size": None,
        "ignore_eos": False,
        "stop": [],
        "prefill_chunk": 512,
        "allow_lossy": False,
        "log_level": "info",
        "target": target,
        "drafter": drafter,
        "drafting": {"name": "model"},
        "sampler": {"order": ORDER, **steps},
        "draft_sampler": {"order": ORDER, **changes.pop("draft_sampler", steps)},
        "acceptance": {"name": "stochastic"},
        "controller": {"name": "constant", "num_draft_tokens": changes.pop("k", 4)},
        "diagnostics": {name: {} for name in ("acceptance", "closed_forms", "calibration", "throughput", "tokens")},
        "prompts": {"name": "ids", "ids": [[0, 0]]},
        "task": {"name": "generate"},
        "backend": {"blas": "auto", "threads": None},
    }
    return whole | changes
