"""What a source of prompts is, and the ids they become.

A prompt keeps its place in the whole list when only some are selected: its draws depend on that place, so it is
continued alike alone and among others.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias

from specfw.prompts._conversation import Conversation
from specfw.registry import require

Content: TypeAlias = str | tuple[int, ...] | Conversation
Listed: TypeAlias = list[tuple[str, Content]]


class Words(Protocol):
    """What is asked of a tokenizer here; see models/tokenizer."""

    @property
    def bos_id(self) -> int | None: ...
    @property
    def eos_id(self) -> int | None: ...
    def encode(self, text: str) -> list[int]: ...
    def chat(self, messages: Sequence[Mapping[str, Any]], options: Mapping[str, Any]) -> list[int] | None: ...


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
    """One prompt as given: its place in the whole list; text, ids or messages; and its name in error messages."""

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
            ValueError: see `chosen`; a prompt has no ids of this model, or is empty where nothing can begin; there
                is no chat template for messages, or it refuses them.
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
    try:
        match prompt.content:
            case "":
                return ()
            case str(text):
                text.encode("utf-8")
                return tuple(model.tokenizer.encode(text))
            case Conversation() as conversation:
                return _templated(conversation, model)
            case ids:
                return ids
    except UnicodeEncodeError as error:
        raise ValueError(f"{prompt.origin} must be Unicode text, got half a surrogate pair ({error})") from error
    except ValueError as error:
        raise ValueError(f"{prompt.origin} {error}") from error


def _templated(conversation: Conversation, model: Reader) -> tuple[int, ...]:
    conversation.as_json().encode("utf-8")
    try:
        ids = model.tokenizer.chat(conversation.messages, conversation.options)
    except ValueError as error:
        raise ValueError(f"must be messages for the chat template of {model.name}, which says: {error}") from error
    if ids is None:
        raise ValueError(f"must be text or token ids, as {model.name} has no chat template, got messages")
    return tuple(ids)
