"""The generated text token by token: where each came from, what both models gave it, and how that is shown."""

from collections import Counter
from collections.abc import Iterator
from itertools import groupby, islice
from typing import NamedTuple

from specfw.study.escaping import one_line, shortened
from specfw.study.gathered import Run, Study
from specfw.study.tokens import Token, tokens
from specfw.study.told import Lines, lines
from specfw.study.values import at

MOST_RUNS = 4
"""Texts stand on the page of at most so many runs."""

MOST_TOKENS = 8_000
"""Tokens on a page."""

MOST_CHARACTERS = 200
"""Of a token's text; real ones have a few."""

CLASSES = {"accepted": "a", "recovered": "c", "bonus": "b", "plain": "n"}
_LONGEST_PROMPT = 4_000


class Piece(NamedTuple):
    """A part of a token's text.

    Attributes:
        text: to show.
        sign: whether it stands for something that does not print.
    """

    text: str
    sign: bool


class Shown(NamedTuple):
    """One token.

    Attributes:
        kind: a class of the style sheet, by origin.
        opens: whether it is the first of its round.
        data: position, round, id, p and q, `-` where there is none.
        pieces: its text.
    """

    kind: str
    opens: bool
    data: str
    pieces: tuple[Piece, ...]


class Passage(NamedTuple):
    """One sequence.

    Attributes:
        title: which it is.
        prompt: its text, None where the configuration does not hold it.
        tokens: in order.
    """

    title: str
    prompt: Lines | None
    tokens: tuple[Shown, ...]


class Text(NamedTuple):
    """The texts of a run.

    Attributes:
        name: of the run.
        rule: that ran.
        passages: its sequences.
        counts: tokens by origin.
        problem: what was wrong with the record, or how much is not shown; empty if nothing.
    """

    name: str
    rule: str
    passages: tuple[Passage, ...]
    counts: dict[str, int]
    problem: str


def texts(study: Study) -> tuple[Text, ...]:
    """The texts of a study of few runs; of more there are none."""
    if len(study.runs) > MOST_RUNS:
        return ()
    found = [_text(run, MOST_TOKENS // len(study.runs)) for run in study.runs]
    return tuple(one for one in found if one.passages or one.problem)


def _text(run: Run, most: int) -> Text:
    read: list[Token] = []
    problem = ""
    rows = tokens(run)
    try:
        for token in islice(rows, most):
            short = shortened(token.text, MOST_CHARACTERS)
            read.append(token._replace(text=short))  # what came before a broken line is kept
        if next(rows, None) is not None:
            problem = f"Only the first {most} tokens are shown; tokens.jsonl has all."
    except ValueError as error:
        problem = f"{error}; what came before it is shown."
    counts = Counter(token.origin for token in read)
    ordered = sorted(read, key=lambda token: (token.prompt, token.sample))
    groups = groupby(ordered, key=lambda token: (token.prompt, token.sample))
    passages = tuple(_passage(run, place, list(group)) for place, group in groups)
    return Text(run.name, run.row.rule, passages, {name: counts[name] for name in CLASSES}, problem)


def _passage(run: Run, place: tuple[int, int], found: list[Token]) -> Passage:
    prompt, sample = place
    title = f"Prompt {prompt}, sample {sample}"
    rounds = [None, *(token.round for token in found)]
    shown = (_shown(token, opens=token.round != before) for token, before in zip(found, rounds, strict=False))
    return Passage(title, _prompt(run, prompt), tuple(shown))


def _prompt(run: Run, place: int) -> Lines | None:
    """A prompt that stands in the configuration as text."""
    try:
        one, several = at(run.config, "prompts.text"), at(run.config, "prompts.texts")
    except ValueError:
        return None
    known = [one] if isinstance(one, str) else several if isinstance(several, list) else []
    found = known[place] if place < len(known) else None
    return lines(found[:_LONGEST_PROMPT]) if isinstance(found, str) else None


def _shown(token: Token, *, opens: bool) -> Shown:
    p, q = ("-" if value is None else f"{value:.4g}" for value in (token.p, token.q))
    data = f"{token.position} {token.round} {token.id} {p} {q}"
    return Shown(CLASSES.get(token.origin, "n"), opens, data, tuple(_pieces(token)))


def _pieces(token: Token) -> Iterator[Piece]:
    """Line breaks and tabs as signs beside what they do; whatever else does not print as its escape."""
    if not token.text:
        yield Piece(f"⟨{token.id}⟩", sign=True)
    for printable, group in groupby(token.text, key=str.isprintable):
        run = "".join(group)
        if printable:
            yield Piece(run, sign=False)
            continue
        for one in run:
            yield Piece(_SIGNS.get(one) or one_line(one), sign=True)
            if one == "\n":
                yield Piece(Lines("\n"), sign=False)


_SIGNS = {"\n": "↵", "\t": "⇥", "\r": "␍"}
