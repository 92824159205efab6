"""Small runs of the real loop, without configuration or record."""

import os

from specfw.acceptance.base import AcceptanceRule
from specfw.drafting.controllers.constant import Constant
from specfw.drafting.model import ModelDrafting
from specfw.drafting.none import NoDrafting
from specfw.generation import Decoder, Generation
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


def start(parts: Decoder, prompts=((0, 0),), samples=1, **changes) -> Generation:
    rows = [(list(ids), prompt, sample) for prompt, ids in enumerate(prompts) for sample in range(samples)]
    ids, prompt, sample = (np.array(column, dtype=np.int64) for column in zip(*rows, strict=True))
    return Generation(decoder=parts, batch=Batch(ids, prompt, sample), **changes)


def emitted(generation: Generation) -> list[list[int]]:
    """Run to the end; the emitted tokens of every row."""
    for _ in generation:
        pass
    length = generation.batch.prompts.shape[1]
    return [row[length:end].tolist() for row, end in zip(generation.tokens, generation.lengths, strict=True)]
