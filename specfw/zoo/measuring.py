"""What stands in the model card and in the comparison of two ways to train: exported folders, measured alike."""

from pathlib import Path
from typing import Any

from specfw.zoo import corpus, heldout, vocabulary
from specfw.zoo.agreement import PROMPT, agreement, samples

import mlx.core as mx
import numpy as np
import numpy.typing as npt
from mlx_lm.utils import load_model
from tokenizers import Tokenizer

TEMPERATURES = (0.7, 1.0, 1.5)
WINDOWS = 64
SEED = 0


def load(folder: Path) -> Any:
    """The model in a folder of mlx-lm's layout, in float32."""
    model, _ = load_model(folder, trust_remote_code=False)
    model.set_dtype(mx.float32)
    return model


def held_out_loss(folder: Path, root: Path) -> heldout.Loss:
    """The loss of an exported model on the held-out part of the corpus at `root`, under its own tokenizer."""
    stream, size_bytes = _held_out(folder, root)
    return heldout.loss(load(folder), stream, size_bytes)


def pair(target: Path, drafter: Path, root: Path) -> dict[str, Any]:
    """Overlaps of a pair on held-out text and on the target's own samples, at each temperature."""
    stream, _ = _held_out(target, root)
    models = load(target), load(drafter)
    spread = np.linspace(0, len(stream) - heldout.WINDOW - 1, WINDOWS).astype(np.int64)
    windows = mx.array(stream[spread[:, None] + np.arange(heldout.WINDOW + 1)])
    measured = {}
    for temperature in TEMPERATURES:
        written = samples(models[0], windows[:, :PROMPT], temperature, SEED)
        measured[str(temperature)] = {
            "text": agreement(*models, mx.split(windows, 4), temperature)._asdict(),
            "samples": agreement(*models, mx.split(written, 4), temperature)._asdict(),
        }
    return measured


def _held_out(folder: Path, root: Path) -> tuple[npt.NDArray[np.int32], int]:
    sources = corpus.read(root).held_out
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    return vocabulary.encode(tokenizer, sources), corpus.size_bytes(sources)
