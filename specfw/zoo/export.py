"""A finished run as a checkpoint people can load: float16 weights in mlx-lm's layout, and its model card."""

import json
import shutil
from pathlib import Path
from typing import Any

from specfw.files import write_whole
from specfw.zoo import checkpoints, heldout, measuring, runs
from specfw.zoo.corpus import EXCLUDED, HELD_OUT_ONE_IN
from specfw.zoo.heldout import Loss
from specfw.zoo.prepared import Prepared
from specfw.zoo.sizes import SIZES

import mlx.core as mx

TOKENIZER = ("tokenizer.json", "tokenizer_config.json")

_CARD = """\
# {name}

A causal transformer in mlx-lm's `llama` layout, float16, with byte-level BPE of {vocab_size} entries. It writes text
that looks like Python modules; it knows nothing and follows no instruction. It exists to measure speculative decoding.

| | |
|---|---|
| parameters | {parameters:,} |
| layers, hidden size, heads, feed-forward | {layers}, {hidden}, {heads}, {feed_forward} |
| corpus | standard library of CPython {python}, without {excluded} |
| corpus digest | `{digest}` |
| trained on | {train_files} files, {train_bytes:,} bytes, {train_tokens:,} tokens |
| held out | {held_files} files, {held_bytes:,} bytes: SHA-256 of the path divides by {one_in} |
| tokens seen | {tokens:,}: {steps:,} of {scheduled:,} steps of {rows} x {length} |
| learned from | {learned_from} |
| held-out loss | {nats_per_token:.4f} nats a token, {nats_per_byte:.4f} nats a byte |
| seed | {seed} |

    {command}

The same seed gives the same bits only on the same processor, BLAS and MLX; elsewhere a reproduction
means the same corpus digest and tokenizer, and a held-out loss within 0.02.

**Licence.** Trained on sources Copyright (c) 2001 Python Software Foundation; All Rights Reserved, under the Python
Software Foundation License Version 2 (PSF-2.0).
"""


def export(run: Path, prepared: Prepared, folder: Path) -> Loss:
    """Write weights, config.json, tokenizer and README.md.

    Args:
        run: the folder of a run.
        prepared: the corpus it was trained on.
        folder: receives the files.

    Returns:
        The held-out loss of the exported weights.

    Raises:
        ValueError: the run has no checkpoint, or was trained on another corpus.
    """
    facts = runs.facts(run)
    if facts["corpus"] != prepared.facts:
        raise ValueError(f"the run must be exported with the corpus it was trained on, got {prepared.facts}")
    weights, steps = checkpoints.weights(run)
    folder.mkdir(parents=True, exist_ok=True)
    halved = {name: array.astype(mx.float16) for name, array in weights.items()}
    mx.save_safetensors(str(folder / "model.safetensors"), halved, {"format": "mlx"})
    write_whole(folder / "config.json", json.dumps(facts["config"], indent=1) + "\n")
    for name in TOKENIZER:
        shutil.copyfile(prepared.folder / name, folder / name)
    loss = heldout.loss(measuring.load(folder), prepared.held_out, prepared.facts["held_out"]["bytes"])
    parameters = sum(array.size for array in weights.values())
    write_whole(folder / "README.md", _card(run.name, facts, steps, parameters, loss))
    return loss


def command(name: str, facts: dict[str, Any]) -> str:
    """The command that trains this run."""
    config, recipe = facts["config"], facts["recipe"]
    size = next(size for size, known in SIZES.items() if known.config(config["vocab_size"]) == config)
    what = f"distill {name} --target {facts['target']} --text-share {facts['text_share']}"
    return (
        f"python -m specfw.zoo {what if facts['target'] else f'train {name}'} --size {size} --steps {recipe['steps']} "
        f"--rate {recipe['rate']} --rows {facts['rows']} --length {facts['length']} --seed {facts['seed']}"
    )


def _card(name: str, facts: dict[str, Any], steps: int, parameters: int, loss: Loss) -> str:
    config, corpus = facts["config"], facts["corpus"]
    rows = f"the rows of `{facts['target']}`, weight of the text {facts['text_share']}"
    return _CARD.format(
        name=name,
        parameters=parameters,
        vocab_size=config["vocab_size"],
        layers=config["num_hidden_layers"],
        hidden=config["hidden_size"],
        heads=config["num_attention_heads"],
        feed_forward=config["intermediate_size"],
        python=corpus["python"],
        excluded=", ".join(sorted(EXCLUDED)),
        digest=corpus["digest"],
        train_files=corpus["training"]["files"],
        train_bytes=corpus["training"]["bytes"],
        train_tokens=corpus["training"]["tokens"],
        held_files=corpus["held_out"]["files"],
        held_bytes=corpus["held_out"]["bytes"],
        one_in=HELD_OUT_ONE_IN,
        tokens=steps * facts["rows"] * facts["length"],
        steps=steps,
        scheduled=facts["recipe"]["steps"],
        rows=facts["rows"],
        length=facts["length"],
        learned_from=rows if facts["target"] else "the text",
        nats_per_token=loss.nats_per_token,
        nats_per_byte=loss.nats_per_byte,
        seed=facts["seed"],
        command=command(name, facts),
    )
