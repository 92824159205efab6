"""Messages between a user and an assistant, checked before any model is loaded."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from specfw.registry import require

ROLES = ("system", "developer", "user", "assistant", "tool")

_RESERVED = frozenset(
    {
        "add_generation_prompt",
        "chat_template",
        "continue_final_message",
        "conversation",
        "max_length",
        "padding",
        "return_assistant_tokens_mask",
        "return_dict",
        "return_tensors",
        "tokenize",
        "tokenizer_kwargs",
        "truncation",
    }
)
_SHOWN = 80


@dataclass(frozen=True)
class Conversation:
    """What a chat template is applied to.

    Attributes:
        messages: each with a `role` and a `content`, and whatever else the template reads.
        options: further variables of the template.
    """

    messages: tuple[Mapping[str, Any], ...]
    options: Mapping[str, Any]

    def as_json(self) -> str:
        """The messages as one line."""
        return json.dumps(self.messages, ensure_ascii=False)


def conversation(where: str, messages: Any, options: Mapping[str, Any]) -> Conversation:
    """`messages` if they are a conversation.

    Raises:
        ValueError: they are none; the sentence names the place in `where`.
    """
    listed = isinstance(messages, list | tuple) and len(messages) > 0
    require(where, listed, "a list of at least one message", _shown(messages))
    for place, message in enumerate(messages):
        _check(f"{where}[{place}]", message)
    return Conversation(tuple(messages), options)


def check_options(options: Mapping[str, Any]) -> None:
    """Refuse options that would change what comes back instead of what the template reads.

    Raises:
        ValueError: names them.
    """
    taken = sorted(_RESERVED & options.keys())
    require("chat_template_kwargs", not taken, "variables of the chat template", taken)


def _check(where: str, message: Any) -> None:
    require(where, isinstance(message, Mapping), 'a message {"role": "...", "content": "..."}', _shown(message))
    role, content = message.get("role"), message.get("content")
    require(f"{where}.role", role in ROLES, f"one of: {', '.join(ROLES)}", _shown(role))
    calls = role == "assistant" and content is None and bool(message.get("tool_calls"))
    require(f"{where}.content", calls or isinstance(content, str), "a string", _shown(content))


def _shown(value: Any) -> Any:
    return value if value is None or isinstance(value, int | float) else str(value)[:_SHOWN]
