"""Where prompts come from, and the ids they become.

A prompt keeps its place in the whole list when only some are selected: its draws depend on that place, so it is
continued alike alone and among others.
"""

import json
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, TypeAlias, final

from specfw.registry import register, require

Content: TypeAlias = str | tuple[int, ...]
Listed: TypeAlias = list[tuple[str, Content]]


class Words(Protocol):
    """What is asked of a tokenizer here; see models/tokenizer."""

    @property
    def bos_id(self) -> int | None: ...
    @property
    def eos_id(self) -> int | None: ...
    def encode(self, text: str) -> list[int]: ...


class Reader(Protocol):
    """What is asked of a model here; see models/base."""

    @property
    def name(self) -> str: ...
    @property
    def vocab_size(self) -> int: ...
    @property
    def tokenizer(self) -> Words: ...


@dataclass(frozen=True)
class Prompt:
    """One prompt as given: its place in the whole list, text or ids, and its name in messages."""

    index: int
    content: Content
    origin: str


@dataclass(frozen=True)
class Encoded:
    """One prompt as a model reads it.

    Attributes:
        index: its place in the whole list, from 0.
        ids: at least one.
        notes: sentences for the log about what was put in its place.
    """

    index: int
    ids: tuple[int, ...]
    notes: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class Prompts(ABC):
    """A list of prompts.

    Attributes:
        select: places in the whole list, from 0, of the prompts to run; null runs all.
    """

    select: tuple[int, ...] | None = None

    def __post_init__(self) -> None:
        chosen = self.select
        distinct = chosen is None or (0 < len(chosen) == len(set(chosen)) and min(chosen) >= 0)
        require("select", distinct, "null or different places from 0", chosen)

    @abstractmethod
    def all(self) -> Listed:
        """Every prompt with its origin.

        Raises:
            ValueError: they cannot be read; the sentence names `prompts.<field>`.
        """

    def chosen(self) -> list[Prompt]:
        """The prompts to run.

        Raises:
            ValueError: there is none, they cannot be read, or a selected one is beyond the end.
        """
        prompts = [Prompt(index, content, origin) for index, (origin, content) in enumerate(self.all())]
        require("prompts", len(prompts) > 0, "at least one prompt", prompts)
        for index in self.select or ():
            require("prompts.select", index < len(prompts), f"places in [0, {len(prompts)})", index)
        return prompts if self.select is None else [prompts[index] for index in self.select]

    def encode(self, model: Reader) -> list[Encoded]:
        """The chosen prompts as ids of `model`.

        Raises:
            ValueError: see `chosen`; a prompt has no ids of this model, or is empty where nothing can begin.
        """
        return [_encoded(prompt, model) for prompt in self.chosen()]


def _encoded(prompt: Prompt, model: Reader) -> Encoded:
    ids = _ids(prompt, model)
    for token in ids:
        allowed = f"ids in [0, {model.vocab_size}) of {model.name}"
        require(prompt.origin, 0 <= token < model.vocab_size, allowed, token)
    if ids:
        return Encoded(prompt.index, ids, ())
    words = model.tokenizer
    begin = words.eos_id if words.bos_id is None else words.bos_id
    if begin is None:
        raise ValueError(f"{prompt.origin} must hold a token: {model.name} has none that begins a sequence, got none")
    kind = "end" if words.bos_id is None else "beginning"
    return Encoded(prompt.index, (begin,), (f"an empty prompt became the {kind}-of-sequence token {begin}",))


def _ids(prompt: Prompt, model: Reader) -> tuple[int, ...]:
    if not isinstance(prompt.content, str):
        return prompt.content
    if not prompt.content:
        return ()
    try:
        prompt.content.encode("utf-8")
        return tuple(model.tokenizer.encode(prompt.content))
    except UnicodeEncodeError as error:
        raise ValueError(f"{prompt.origin} must be Unicode text, got half a surrogate pair ({error})") from error
    except ValueError as error:
        raise ValueError(f"{prompt.origin} {error}") from error


@final
@register("prompts", "text")
@dataclass(frozen=True, kw_only=True)
class Text(Prompts):
    """One prompt.

    Attributes:
        text: it; ids separated by spaces for a toy model.
    """

    text: str

    def all(self) -> Listed:
        return [("prompts.text", self.text)]


@final
@register("prompts", "texts")
@dataclass(frozen=True, kw_only=True)
class Texts(Prompts):
    """Several prompts.

    Attributes:
        texts: they.
    """

    texts: tuple[str, ...]

    def all(self) -> Listed:
        return [(f"prompts.texts[{place}]", text) for place, text in enumerate(self.texts)]


@final
@register("prompts", "file")
@dataclass(frozen=True, kw_only=True)
class File(Prompts):
    """One prompt, the whole of a UTF-8 file, line ends as they are.

    Attributes:
        path: of the file.
    """

    path: str

    def all(self) -> Listed:
        return [("prompts.path", _read(self.path))]


@final
@register("prompts", "json_lines")
@dataclass(frozen=True, kw_only=True)
class JsonLines(Prompts):
    """One prompt a line, {"prompt": "..."}; other keys are not read, blank lines are no prompts.

    Attributes:
        path: of the UTF-8 file.
    """

    path: str

    def all(self) -> Listed:
        lines = enumerate(_read(self.path).split("\n"), start=1)
        return [(f"prompts.path line {number}", _line(number, line)) for number, line in lines if line.strip()]


@final
@register("prompts", "ids")
@dataclass(frozen=True, kw_only=True)
class Ids(Prompts):
    """Prompts of token ids.

    Attributes:
        ids: one prompt, or a list of prompts.
    """

    ids: tuple[Any, ...]

    def __post_init__(self) -> None:
        super().__post_init__()
        for token in (token for one in self._lists() for token in one):
            whole = isinstance(token, int) and not isinstance(token, bool)
            require("ids", whole, "a list of ids, or a list of lists of ids", self.ids)

    def all(self) -> Listed:
        return [(f"prompts.ids[{place}]", tuple(ids)) for place, ids in enumerate(self._lists())]

    def _lists(self) -> Sequence[Sequence[Any]]:
        nested = [isinstance(one, tuple | list) for one in self.ids]
        return self.ids if nested and all(nested) else [self.ids]


def _read(path: str) -> str:
    try:
        return Path(path).expanduser().read_bytes().decode("utf-8-sig")
    except OSError as error:
        raise ValueError(f"prompts.path must be a readable file, got {path!r} ({error.strerror})") from error
    except UnicodeDecodeError as error:
        raise ValueError(f"prompts.path must be a UTF-8 file, got {path!r} ({error})") from error


def _line(number: int, line: str) -> str:
    where = f"prompts.path line {number}"
    try:
        entry = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise ValueError(f'{where} must be a JSON object {{"prompt": "..."}}, got {line[:80]!r} ({error})') from error
    keys = entry if isinstance(entry, dict) else {}
    chat = 'with a "prompt" (chat "messages" are not offered yet)'
    require(where, "messages" not in keys, chat, sorted(keys))
    text = keys.get("prompt")
    require(where, isinstance(text, str), 'a JSON object {"prompt": "..."}', line[:80])
    return str(text)
