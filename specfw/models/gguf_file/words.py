"""The vocabulary of a GGUF file: what every id stands for, and which ids are special."""

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
from gguf.constants import TokenType
from tokenizers import AddedToken

_ROLES = ("bos", "eos", "unk", "pad")
_KEYS = {"unk": "unknown", "pad": "padding"}
_SPECIAL = (TokenType.CONTROL, TokenType.UNKNOWN)


class Words(NamedTuple):
    """A vocabulary.

    Attributes:
        ids: of every token but fillers, by token.
        kinds: of every id, as TokenType numbers them.
        roles: the tokens that begin and end a sequence, stand for the unknown, and pad, as far as there are any.
        metadata: of the file.
    """

    ids: Mapping[str, int]
    kinds: np.ndarray[Any, np.dtype[np.int32]]
    roles: Mapping[str, str]
    metadata: Mapping[str, Any]

    def value(self, key: str, default: Any) -> Any:
        """Metadata of the tokenizer."""
        return self.metadata.get(f"tokenizer.ggml.{key}", default)

    def added(self) -> list[AddedToken]:
        """Tokens that are found in a text before anything else is done with it."""
        special = self.of(*_SPECIAL)
        found = special | self.of(TokenType.USER_DEFINED)
        return [
            AddedToken(token, special=place in special, normalized=False)
            for token, place in self.ids.items()
            if place in found
        ]

    def of(self, *kinds: int) -> set[int]:
        """The ids of some kinds."""
        return set(np.flatnonzero(np.isin(self.kinds, kinds)).tolist())

    def role_id(self, role: str) -> int | None:
        """The id of a role, None when there is none."""
        place = self.value(f"{_KEYS.get(role, role)}_token_id", None)
        return None if place is None else int(place)


def words(metadata: Mapping[str, Any]) -> Words:
    """The vocabulary of a file.

    Ids that only fill up the embedding, as converters write them ([PAD<id>]), stand for no token.

    Raises:
        ValueError: there is none, one token has two ids, or a role has an id beyond it.
    """
    tokens = metadata.get("tokenizer.ggml.tokens", [])
    if not tokens:
        raise ValueError("tokenizer.ggml.tokens is missing")
    kinds = np.asarray(metadata.get("tokenizer.ggml.token_type", [TokenType.NORMAL] * len(tokens)))
    if kinds.shape != (len(tokens),):
        raise ValueError(f"tokenizer.ggml.token_type must be one number a token, {len(tokens)}, got {kinds.size}")
    unused = np.flatnonzero(kinds == TokenType.UNUSED).tolist()
    fillers = {place for place in unused if tokens[place] == f"[PAD{place}]"}
    ids = {token: place for place, token in enumerate(tokens) if place not in fillers}
    if len(ids) < len(tokens) - len(fillers):
        twice = next(token for place, token in enumerate(tokens) if ids.get(token, place) != place)
        raise ValueError(f"tokenizer.ggml.tokens must differ, got {twice!r} twice")
    known = Words(ids, kinds, {}, metadata)
    roles = {role: place for role in _ROLES if (place := known.role_id(role)) is not None}
    for role, place in roles.items():
        if place >= len(tokens):
            raise ValueError(f"tokenizer.ggml's {role} id must be below {len(tokens)}, got {place}")
    return known._replace(roles={role: tokens[place] for role, place in roles.items()})
