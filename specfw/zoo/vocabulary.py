"""The tokenizer of the shipped pair: byte-level BPE, fitted to the training part of the corpus alone."""

import json
from collections.abc import Sequence
from pathlib import Path

from specfw.zoo.corpus import Source

import numpy as np
import numpy.typing as npt
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

VOCAB_SIZE = 2048
END_OF_TEXT = "<|endoftext|>"
END_OF_TEXT_ID = 0

_CONFIG = {
    "tokenizer_class": "PreTrainedTokenizerFast",
    "eos_token": END_OF_TEXT,
    "bos_token": END_OF_TEXT,
    "clean_up_tokenization_spaces": False,
    "add_bos_token": False,
}


def fit(sources: Sequence[Source], size: int = VOCAB_SIZE) -> Tokenizer:
    """Fit the merges; every byte has an id, so every text can be written.

    Args:
        sources: the training part of a corpus.
        size: entries, END_OF_TEXT and the 256 bytes included.
    """
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=size,
        special_tokens=[END_OF_TEXT],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator((source.text for source in sources), trainer)
    return tokenizer


def save(tokenizer: Tokenizer, folder: Path) -> None:
    """Write tokenizer.json and tokenizer_config.json, as mlx-lm reads them."""
    folder.mkdir(parents=True, exist_ok=True)
    tokenizer.save(str(folder / "tokenizer.json"))
    (folder / "tokenizer_config.json").write_text(json.dumps(_CONFIG, indent=1) + "\n", encoding="utf-8")


def encode(tokenizer: Tokenizer, sources: Sequence[Source]) -> npt.NDArray[np.int32]:
    """One stream of ids, END_OF_TEXT_ID after each file.

    Returns:
        [N] int32.
    """
    encoded = tokenizer.encode_batch_fast([source.text for source in sources], add_special_tokens=False)
    pieces = [np.array([*file.ids, END_OF_TEXT_ID], dtype=np.int32) for file in encoded]
    return np.concatenate(pieces)
