"""A file of JSON lines."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, final

from specfw.prompts._conversation import Conversation, check_options, conversation
from specfw.prompts._reading import read
from specfw.prompts.base import Content, Listed, Prompts
from specfw.registry import register, require

_FORMS = '{"prompt": "..."} or {"messages": [...]}'
_SHOWN = 80


@final
@register("prompts")
@dataclass(frozen=True, kw_only=True)
class JsonLines(Prompts):
    """One prompt a line, {"prompt": "..."} or {"messages": [...]}; other keys are not read, blank lines no prompts.

    Attributes:
        path: of the UTF-8 file.
        chat_template_kwargs: further variables of the chat template that messages are put into.
    """

    path: str
    chat_template_kwargs: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        super().__post_init__()
        check_options(self.chat_template_kwargs)

    def all(self) -> Listed:
        lines = enumerate(read(self.path).split("\n"), start=1)
        found = [(f"prompts.path line {number}", line) for number, line in lines if line.strip()]
        listed = [(where, self._content(where, line)) for where, line in found]
        used = not self.chat_template_kwargs or any(isinstance(content, Conversation) for _, content in listed)
        require(
            "prompts.chat_template_kwargs", used, 'left out where no line has "messages"', self.chat_template_kwargs
        )
        return listed

    def _content(self, where: str, line: str) -> Content:
        entry = _object(where, line)
        given = [key for key in ("prompt", "messages") if entry.get(key) is not None]
        require(where, len(given) == 1, f"a JSON object {_FORMS}", line[:_SHOWN])
        if given == ["messages"]:
            return conversation(f"{where} messages", entry["messages"], self.chat_template_kwargs)
        require(where, isinstance(entry["prompt"], str), f"a JSON object {_FORMS}", line[:_SHOWN])
        return str(entry["prompt"])


def _object(where: str, line: str) -> Mapping[str, Any]:
    try:
        entry = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{where} must be a JSON object {_FORMS}, got {line[:_SHOWN]!r} ({error})") from error
    require(where, isinstance(entry, dict), f"a JSON object {_FORMS}", line[:_SHOWN])
    return dict(entry)
