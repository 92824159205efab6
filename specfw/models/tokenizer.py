"""Text to token ids and back, and text that appears while ids arrive.

Toy models have no words: their text is ids separated by spaces, read and written the same way.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from itertools import takewhile
from typing import Any, final

_INCOMPLETE = "\N{REPLACEMENT CHARACTER}"
_CONTEXT = 16


class Tokenizer(ABC):
    """Text to ids and back.

    Attributes:
        bos_id: beginning-of-sequence id, None when there is none.
        eos_id: end-of-sequence id, None when there is none.
    """

    bos_id: int | None
    eos_id: int | None

    @abstractmethod
    def encode(self, text: str) -> list[int]:
        """The ids of `text`, after a beginning-of-sequence id where the tokenizer puts one.

        Raises:
            ValueError: no ids can be made of it; the sentence goes on after the name of a field.
        """

    @abstractmethod
    def decode(self, ids: Sequence[int]) -> str:
        """The text of `ids`, special tokens included."""

    @abstractmethod
    def vocabulary(self) -> Mapping[int, str] | None:
        """The token of every id that has one; None when ids stand for nothing but themselves."""

    def chat(self, messages: Sequence[Mapping[str, Any]], options: Mapping[str, Any]) -> list[int] | None:
        """The ids of a conversation up to where the assistant's answer begins; None when there is no chat template.

        Args:
            messages: each with a `role` and a `content`.
            options: further variables of the template.

        Raises:
            ValueError: the template refuses them, in its own words.
        """
        return None

    def special_ids(self) -> frozenset[int]:
        """Ids of control tokens: beginning, end, padding and their kind."""
        return frozenset()

    def stream(self, prompt: Sequence[int] = ()) -> "TextStream":
        """The text of what follows `prompt`, as it comes."""
        return TextStream(self, prompt[-_CONTEXT:])


@final
class TextStream:
    """Text of ids as they arrive, never half a character.

    A tokenizer may decode an id differently at the start of a text, so each piece is what decoding a little
    context with the new ids adds to decoding the context alone.
    """

    def __init__(self, tokenizer: Tokenizer, context: Sequence[int]) -> None:
        self._tokenizer = tokenizer
        self._ids = list(context)
        self._shown = tokenizer.decode(self._ids) if self._ids else ""
        self._fresh = 0

    def add(self, ids: Iterable[int]) -> str:
        """The text that `ids` complete; the bytes of an unfinished character are held back."""
        new = list(ids)
        self._ids += new
        self._fresh += len(new)
        text = self._tokenizer.decode(self._ids)
        return self._show(text.rstrip(_INCOMPLETE), whole=not text.endswith(_INCOMPLETE))

    def finish(self) -> str:
        """What was held back, with replacement characters for bytes that became no character."""
        return self._show(self._tokenizer.decode(self._ids), whole=True)

    def _show(self, text: str, whole: bool) -> str:
        same = takewhile(lambda pair: pair[0] == pair[1], zip(self._shown, text, strict=False))
        piece = text[sum(1 for _ in same) :]
        self._shown = text
        if whole and self._fresh:
            self._ids = self._ids[-self._fresh :]
            self._shown = self._tokenizer.decode(self._ids)
            self._fresh = 0
        return piece


@final
class IdTokenizer(Tokenizer):
    """The text of a toy model: ids separated by spaces."""

    bos_id = None

    def __init__(self, eos_id: int | None = None) -> None:
        """A toy ends a sequence with `eos_id`, if it ends any."""
        self.eos_id = eos_id

    def encode(self, text: str) -> list[int]:
        words = text.split()
        if not all(word.isdecimal() for word in words):
            raise ValueError(f"must be token ids separated by spaces for a model without words, got {text!r}")
        return [int(word) for word in words]

    def decode(self, ids: Sequence[int]) -> str:
        return " ".join(map(str, ids))

    def vocabulary(self) -> None:
        return None

    def stream(self, prompt: Sequence[int] = ()) -> TextStream:
        return TextStream(self, ())
