"""Texts that mlx-lm writes by itself on the shipped pair, as files for task=audit, each line with a claim.

    python docs/foreign_texts.py plain 300
    python docs/foreign_texts.py xtc 900

`plain` draws one text by mlx-lm's plain decoding and writes it three times: with the chain it was drawn by
(right.jsonl), with another temperature (wrong_temperature.jsonl), and with the filters in another order
(wrong_order.jsonl). `xtc` draws texts of 300 tokens with XTC on, by plain decoding (xtc_plain.jsonl) and by
speculative decoding (xtc_speculative.jsonl, drafted by the model named last, `target` or `drafter`), both with the
right chain.
"""
# ruff: noqa: INP001, E402 # a script beside the pages it serves; the BLAS must be bound before MLX is loaded

import json
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from specfw.backend import bind

bind()

from specfw.zoo import folder

import mlx.core as mx
from mlx_lm import load
from mlx_lm.generate import generate_step, speculative_generate_step
from mlx_lm.sample_utils import make_sampler

MLX_LM = ["bias", "repetition", "presence", "frequency", "top_p", "min_p", "xtc", "top_k", "temperature"]
OURS = ["bias", "repetition", "frequency", "presence", "dry", "temperature", "top_k", "top_p", "min_p", "xtc"]
FILTERS = {"top_p": {"p": 0.9, "ties": "keep"}, "min_p": {"p": 0.02}}
XTC = {"xtc": {"probability": 0.5, "threshold": 0.05}}
PROMPTS = ("def fibonacci(n):\n", "class Node:\n    def __init__(self", "import os\n", "    for i in range(")
LENGTH, DRAFT_TOKENS = 300, 2


def opened(role: str) -> tuple[Any, Any]:
    """A shipped model and its tokenizer, opened by mlx-lm, in float32 as specfw computes on a CPU."""
    model, tokenizer, *_ = load(str(folder(role)))
    model.set_dtype(mx.float32)
    return model, tokenizer


def line(prompt: Sequence[int], emitted: Sequence[int], order: Sequence[str], **steps: Any) -> str:
    """One line of a file for task=audit."""
    return json.dumps({"prompt": list(prompt), "emitted": list(emitted), "sampler": {"order": order, **steps}}) + "\n"


def plain(tokens: int) -> None:
    """Three claims about one text."""
    model, tokenizer = opened("target")
    prompt = tokenizer.encode(PROMPTS[0])
    mx.random.seed(1)
    sampler = make_sampler(temp=0.8, top_p=0.9, min_p=0.02)
    steps = generate_step(mx.array(prompt), model, max_tokens=tokens, sampler=sampler)
    text = [int(token) for token, _ in steps]
    claims = {"right": (MLX_LM, 0.8), "wrong_temperature": (MLX_LM, 1.0), "wrong_order": (OURS, 0.8)}
    for name, (order, value) in claims.items():
        Path(f"{name}.jsonl").write_text(line(prompt, text, order, temperature={"value": value}, **FILTERS))


def xtc(tokens: int, drafter: str) -> None:
    """Texts with XTC, a coin for every token and a coin for every verified block."""
    model, tokenizer = opened("target")
    settings = {"temp": 0.2, "xtc_probability": 0.5, "xtc_threshold": 0.05}
    draft_model = opened(drafter)[0]
    for name in ("xtc_plain", "xtc_speculative"):
        lines = []
        for seed, prompt in enumerate(prompts(tokenizer, tokens)):
            mx.random.seed(seed)
            sampler, ids = make_sampler(**settings), mx.array(prompt)
            if name == "xtc_plain":
                steps = generate_step(ids, model, max_tokens=LENGTH, sampler=sampler)
            else:
                steps = speculative_generate_step(
                    ids, model, draft_model, num_draft_tokens=DRAFT_TOKENS, max_tokens=LENGTH, sampler=sampler
                )
            text = [int(token) for token, *_ in steps]
            lines.append(line(prompt, text, MLX_LM, temperature={"value": 0.2}, **XTC))
        Path(f"{name}.jsonl").write_text("".join(lines))


def prompts(tokenizer: Any, tokens: int) -> Iterator[list[int]]:
    """As many prompts as texts of LENGTH make `tokens`."""
    for place in range(-(-tokens // LENGTH)):
        yield tokenizer.encode(PROMPTS[place % len(PROMPTS)])


if __name__ == "__main__":
    what, count, *more = sys.argv[1:]
    if what == "plain":
        plain(int(count))
    else:
        xtc(int(count), *(more or ["target"]))
