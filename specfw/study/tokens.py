"""The emitted tokens of one run, as its tokens.jsonl has them."""

from collections.abc import Iterator
from typing import NamedTuple

from specfw.files import TOKENS
from specfw.study.gathered import Run
from specfw.study.loading import is_regular, lines
from specfw.study.rows import ORIGINS
from specfw.study.values import count, given, require, share, text


class Token(NamedTuple):
    """An emitted token.

    Attributes:
        id: of the token.
        text: its text alone, of anyone's making.
        prompt: place of its prompt in the whole list.
        sample: sample number.
        position: index in prompt + output.
        round: the sequence's round.
        origin: `accepted`, `recovered`, `bonus` or `plain`.
        p: its probability in the target's row.
        q: its probability in the drafter's row, None where nothing was drafted or no row is known.
    """

    id: int
    text: str
    prompt: int
    sample: int
    position: int
    round: int
    origin: str
    p: float
    q: float | None


def tokens(run: Run) -> Iterator[Token]:
    """In the order they were written; none of a run that kept none.

    Raises:
        ValueError: a line that is no token, after those before it.
    """
    path = run.folder / TOKENS
    if not is_regular(path):
        return
    for number, line in enumerate(lines(path), start=1):
        try:
            origin = given(text(line, "origin"), "origin")
            require("origin", origin in ORIGINS, f"one of: {', '.join(ORIGINS)}", origin)
            places = {name: given(count(line, name), name) for name in ("id", "prompt", "sample", "position", "round")}
            p = given(share(line, "p"), "p")
            yield Token(text=given(text(line, "text"), "text"), origin=origin, p=p, q=share(line, "q"), **places)
        except ValueError as error:
            raise ValueError(f"{TOKENS} line {number}: {error}") from error
