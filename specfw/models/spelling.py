"""What a token stands for: the bytes of its text, whichever way its tokenizer writes them.

Byte-level BPE (GPT-2 and what followed it) writes each byte as one printable character, a space as `Ġ`;
SentencePiece writes a space as `▁` and a lone byte as `<0x0A>`; other tokenizers write the text itself.
"""

import re
from collections.abc import Callable, Collection, Mapping
from typing import NamedTuple

_PRINTABLE = [*range(ord("!"), ord("~") + 1), *range(ord("¡"), ord("¬") + 1), *range(ord("®"), ord("ÿ") + 1)]
_OTHERS = [byte for byte in range(256) if byte not in set(_PRINTABLE)]
_BYTES = {chr(byte): byte for byte in _PRINTABLE} | {chr(256 + place): byte for place, byte in enumerate(_OTHERS)}
_LONE = re.compile(r"<0x([0-9A-Fa-f]{2})>")
_LEVEL, _PIECE = "Ġ", "▁"


class Word(NamedTuple):
    """What a token is to any tokenizer: equal words of two vocabularies mean the same.

    Attributes:
        control: it is no text but a sign: beginning, end, a change of turn.
        text: its bytes; of a control token its name.
    """

    control: bool
    text: bytes


def words(tokens: Mapping[int, str], control: Collection[int]) -> dict[int, Word]:
    """The word of every id.

    Ids come in the order in which one of several with equal words is to be chosen: the lowest first, lone bytes of
    SentencePiece after all others, because its models write a character that has a token of its own by that token.

    Args:
        tokens: by id, as the tokenizer writes them.
        control: ids of control tokens.
    """
    read = _reader([token for id_, token in tokens.items() if id_ not in control])
    order = sorted(tokens, key=lambda id_: (read is _piece and _LONE.fullmatch(tokens[id_]) is not None, id_))
    return {
        id_: Word(True, tokens[id_].encode()) if id_ in control else Word(False, read(tokens[id_])) for id_ in order
    }


def _reader(tokens: Collection[str]) -> Callable[[str], bytes]:
    """How the text of such tokens is read, told by how they write the space before a word."""
    level, piece = (sum(token.startswith(mark) for token in tokens) for mark in (_LEVEL, _PIECE))
    return str.encode if level == piece == 0 else _level if level > piece else _piece


def _level(token: str) -> bytes:
    known = all(character in _BYTES for character in token)  # added tokens are written as they are
    return bytes(_BYTES[character] for character in token) if known else token.encode()


def _piece(token: str) -> bytes:
    lone = _LONE.fullmatch(token)
    return bytes.fromhex(lone[1]) if lone else token.replace(_PIECE, " ").encode()
