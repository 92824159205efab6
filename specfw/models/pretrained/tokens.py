"""The tokenizer of a checkpoint."""

import re
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

    def chat(self, messages: Sequence[Mapping[str, Any]], options: Mapping[str, Any]) -> list[int] | None:
        if not self._tokenizer.has_chat_template:
            return None
        self._refuse_unread(options)
        try:
            # the template writes the special tokens, so none are added to what it wrote
            return list(self._tokenizer.apply_chat_template(list(messages), add_generation_prompt=True, **options))
        except Exception as error:
            raise ValueError(" ".join(str(error).split()) or type(error).__name__) from error

    def decode(self, ids: Sequence[int]) -> str:
        return str(self._tokenizer.decode(list(ids), clean_up_tokenization_spaces=False))

    def vocabulary(self) -> Mapping[int, str]:
        # by id, because two ids may have one token
        end = max(self._tokenizer.get_vocab().values(), default=-1) + 1
        tokens = self._tokenizer.convert_ids_to_tokens(list(range(end)))
        return {id_: token for id_, token in enumerate(tokens) if token is not None}

    def _refuse_unread(self, options: Mapping[str, Any]) -> None:
        """A template drops what it does not read without a word; one that is a function of mlx-lm does not."""
        template = self._tokenizer.chat_template
        if template is not None:
            unread = sorted(name for name in options if not re.search(rf"\b{re.escape(name)}\b", str(template)))
            if unread:
                raise ValueError(f"it reads no {' and no '.join(unread)}")

    def special_ids(self) -> frozenset[int]:
        added = self._tokenizer.added_tokens_decoder.items()
        return frozenset(self._tokenizer.all_special_ids).union(id_ for id_, token in added if token.special)
