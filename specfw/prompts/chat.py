"""A conversation on the command line."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, final

from specfw.prompts._conversation import check_options, conversation
from specfw.prompts.base import Listed, Prompts
from specfw.registry import register


@final
@register("prompts")
@dataclass(frozen=True, kw_only=True)
class Chat(Prompts):
    """One prompt: messages, put into the target's chat template up to where the answer begins.

    Attributes:
        messages: each {"role": "...", "content": "..."}.
        chat_template_kwargs: further variables of the template.
    """

    messages: tuple[Any, ...]
    chat_template_kwargs: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        super().__post_init__()
        check_options(self.chat_template_kwargs)
        conversation("messages", self.messages, self.chat_template_kwargs)

    def all(self) -> Listed:
        return [("prompts.messages", conversation("prompts.messages", self.messages, self.chat_template_kwargs))]
