"""Texts of other engines: a file of JSON lines with a prompt's ids, the emitted ids and the sampler they claim."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from specfw.models.base import LanguageModel
from specfw.registry import require
from specfw.verification.audit.claim import Claim, claim
from specfw.verification.audit.text import Text

_FORM = '{"prompt": [ids], "emitted": [ids], "sampler": {"order": [steps], ...}}'
_SHOWN = 80


class Line(NamedTuple):
    """One line whose form is right.

    Attributes:
        where: how messages call it.
        prompt: ids, at least one.
        emitted: ids.
        claim: the chains its `sampler` claims; the drafter's is the same.
    """

    where: str
    prompt: tuple[int, ...]
    emitted: tuple[int, ...]
    claim: Claim


def lines(path: Path) -> list[Line]:
    """Every line that is not blank; other keys than the three are not read.

    Raises:
        ValueError: a line of another form, a sampler that is none, or no line at all.
    """
    try:
        rows = path.read_text(encoding="utf-8-sig").split("\n")
    except UnicodeDecodeError as error:
        raise ValueError(f"task.source must be a UTF-8 file, got {str(path)!r} ({error})") from error
    found = [_line(f"task.source line {number}", row) for number, row in enumerate(rows, start=1) if row.strip()]
    require("task.source", bool(found), f"a file with at least one line {_FORM}", str(path))
    return found


def text(line: Line, place: int, target: LanguageModel, known: dict[str, Claim]) -> Text:
    """The text of `line`, whose ids are the target's.

    Args:
        line: from `lines`.
        place: its number, from 0; it stands for the prompt.
        target: the model.
        known: claims so far by digest, so that equal ones are one.

    Raises:
        ValueError: an id that the target does not have.
    """
    for name, ids in (("prompt", line.prompt), ("emitted", line.emitted)):
        for token in ids:
            allowed = f"ids in [0, {target.vocab_size}) of {target.name}"
            require(f"{line.where} {name}", token < target.vocab_size, allowed, token)
    line.claim.chain.check(target.vocab_size)
    return Text(place, 0, line.prompt, line.emitted, known.setdefault(line.claim.digest(), line.claim))


def _line(where: str, row: str) -> Line:
    try:
        entry = json.loads(row)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{where} must be a JSON object {_FORM}, got {row[:_SHOWN]!r} ({error})") from error
    require(where, isinstance(entry, dict), f"a JSON object {_FORM}", row[:_SHOWN])
    prompt, emitted = (_ids(f"{where} {name}", entry.get(name)) for name in ("prompt", "emitted"))
    require(f"{where} prompt", bool(prompt), "a list of at least one id", list(prompt))
    sampler = entry.get("sampler")
    require(f"{where} sampler", isinstance(sampler, Mapping), 'a mapping of steps with their "order"', sampler)
    key = f"{where} sampler"
    return Line(where, prompt, emitted, claim(sampler, sampler, key, key))


def _ids(where: str, ids: Any) -> tuple[int, ...]:
    require(where, isinstance(ids, list), "a list of ids", ids)
    for token in ids:
        whole = isinstance(token, int) and not isinstance(token, bool) and 0 <= token < 2**31
        require(where, whole, "a list of ids, integers from 0", token)
    return tuple(ids)
