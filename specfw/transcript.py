"""What a run says: text as it is generated, and the place where a stop string ends it."""

from collections.abc import Callable, Sequence

from specfw.models.tokenizer import Tokenizer
from specfw.types import Ints

Writer = Callable[[str], None]


def silent(text: str) -> None:
    """Writer that writes nothing."""


class Transcript:
    """The text of one sequence, growing.

    Attributes:
        text: so far.
        stopped: the stop string that ended it, if one did.
    """

    def __init__(
        self, tokenizer: Tokenizer, prompt: Sequence[int], eos_ids: frozenset[int], stop: Sequence[str], write: Writer
    ) -> None:
        """Start after `prompt`; ids in `eos_ids` have no text; any of `stop` ends the sequence."""
        self.text = self._pending = ""
        self.stopped: str | None = None
        self._stream = tokenizer.stream(prompt)
        self._eos_ids, self._stop, self._write = eos_ids, tuple(stop), write
        self._longest = max((len(word) for word in self._stop), default=0)

    def hear(self, tokens: Ints) -> tuple[int, bool]:
        """Take in emitted tokens in order; returns how many to keep, and whether a stop string ends them.

        With stop strings the tokens are read one by one, and the one that completes a stop string is the last.
        """
        if not self._stop:
            self._pending += self._stream.add(self._words(tokens.tolist()))
            return len(tokens), False
        for place, token in enumerate(tokens.tolist()):
            piece = self._stream.add(self._words([token]))
            said = self.text + self._pending
            seen = said[max(0, len(said) - self._longest + 1) :] + piece
            self._pending += piece
            self.stopped = next((word for word in self._stop if word in seen), None)
            if self.stopped is not None:
                return place + 1, True
        return len(tokens), False

    def flush(self) -> None:
        """Say what was heard; called once the round it came from is in the record."""
        if self._pending:
            piece, self._pending = self._pending, ""
            self.text += piece
            self._write(piece)

    def finish(self) -> None:
        """Say what was held back."""
        self._pending += self._stream.finish()
        self.flush()

    def _words(self, tokens: list[int]) -> list[int]:
        return [token for token in tokens if token not in self._eos_ids]
