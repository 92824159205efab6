"""The corpus as the trainer reads it: tokenizer and token streams, kept in the user's cache."""

import json
import platform
from pathlib import Path
from typing import Any, NamedTuple

from specfw.backend.cache import cache_folder
from specfw.files import write_whole
from specfw.zoo import corpus, vocabulary

import numpy as np
import numpy.typing as npt

FACTS = "corpus.json"


class Prepared(NamedTuple):
    """A folder with a tokenizer and the two streams.

    Attributes:
        folder: where the tokenizer's files lie.
        facts: digest, Python version, files, bytes and tokens of both parts.
        training: [N] int32.
        held_out: [M] int32.
    """

    folder: Path
    facts: dict[str, Any]
    training: npt.NDArray[np.int32]
    held_out: npt.NDArray[np.int32]


def home() -> Path:
    """`specfw/zoo` in the user's cache: outside the work tree, so that a clean checkout loses no hour of training."""
    return cache_folder() / "zoo"


def prepare(root: Path, folder: Path, vocab_size: int = vocabulary.VOCAB_SIZE) -> dict[str, Any]:
    """Read the corpus, fit the tokenizer to its training part, write both streams, and return the facts."""
    text = corpus.read(root)
    tokenizer = vocabulary.fit(text.training, vocab_size)
    vocabulary.save(tokenizer, folder)
    facts: dict[str, Any] = {"digest": text.digest, "python": platform.python_version(), "vocab_size": vocab_size}
    for name, sources in text._asdict().items():
        stream = vocabulary.encode(tokenizer, sources)
        np.save(folder / f"{name}.npy", stream)
        facts[name] = {"files": len(sources), "bytes": corpus.size_bytes(sources), "tokens": len(stream)}
    write_whole(folder / FACTS, json.dumps(facts, indent=1) + "\n")
    return facts


def load(folder: Path) -> Prepared:
    """What `prepare` wrote.

    Raises:
        ValueError: it wrote nothing there.
    """
    if not (folder / FACTS).exists():
        raise ValueError(f"the corpus must be prepared first (python -m specfw.zoo corpus), got {folder}")
    facts = json.loads((folder / FACTS).read_text(encoding="utf-8"))
    return Prepared(folder, facts, np.load(folder / "training.npy"), np.load(folder / "held_out.npy"))
