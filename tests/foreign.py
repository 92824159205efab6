"""Texts that mlx-lm writes by itself, and what they claim: the lines of a file for task=audit."""

import functools
import json

from specfw.sampling.chain import SamplerChain
from specfw.zoo import folder

import mlx.core as mx

MLX_LM = ["bias", "repetition", "presence", "frequency", "top_p", "min_p", "xtc", "top_k", "temperature"]


@functools.cache
def module(role):
    """mlx-lm's own model of the shipped pair, in float32 as specfw computes on a CPU."""
    from mlx_lm import load

    model, _ = load(str(folder(role)))
    model.set_dtype(mx.float32)
    return model


def sampler(**settings):
    from mlx_lm.sample_utils import make_sampler

    return make_sampler(**settings)


def plain(prompt, length, seed, **settings):
    """Ids that mlx-lm's generate_step draws with its own sampler and its own global random state."""
    from mlx_lm.generate import generate_step

    mx.random.seed(seed)
    steps = generate_step(mx.array(list(prompt)), module("target"), max_tokens=length, sampler=sampler(**settings))
    return [int(token) for token, _ in steps]


def speculative(prompt, length, seed, draft_tokens, drafter="drafter", **settings):
    """Ids of its speculative_generate_step, whose XTC has one coin for a verified block."""
    from mlx_lm.generate import speculative_generate_step

    mx.random.seed(seed)
    steps = speculative_generate_step(
        mx.array(list(prompt)),
        module("target"),
        module(drafter),
        num_draft_tokens=draft_tokens,
        max_tokens=length,
        sampler=sampler(**settings),
    )
    return [int(token) for token, *_ in steps]


def line(prompt, emitted, order=MLX_LM, **steps):
    """One line of the file: what was emitted, and the chain it claims."""
    claimed = {"order": list(order), **steps}
    SamplerChain.from_config(claimed)
    return json.dumps({"prompt": list(prompt), "emitted": list(emitted), "sampler": claimed})
