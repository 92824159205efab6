"""The tokenizer of a checkpoint."""

from collections.abc import Mapping, Sequence
from typing import Any, final

from specfw.models.tokenizer import Tokenizer


@final
class PretrainedTokenizer(Tokenizer):
    """A transformers tokenizer, used as mlx-lm's own text generation uses it.

    Args:
        tokenizer: the tokenizer that mlx-lm loads.
    """

    def __init__(self, tokenizer: Any) -> None:
        self._tokenizer = tokenizer
        self.bos_id = tokenizer.bos_token_id
        self.eos_id = tokenizer.eos_token_id

    def encode(self, text: str) -> list[int]:
        begins = self._tokenizer.bos_token
        has_begin = begins is not None and text.startswith(begins)
        return list(self._tokenizer.encode(text, add_special_tokens=not has_begin))

    def decode(self, ids: Sequence[int]) -> str:
        return str(self._tokenizer.decode(list(ids), clean_up_tokenization_spaces=False))

    def vocabulary(self) -> Mapping[str, int]:
        return dict(self._tokenizer.get_vocab())
