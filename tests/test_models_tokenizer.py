"""Text that appears while ids arrive: whole characters, and nothing that decoding at once would not say."""

from specfw.models.pretrained.folder import ZOO
from specfw.models.pretrained.tokens import PretrainedTokenizer
from specfw.models.tokenizer import IdTokenizer

import numpy as np
import pytest

TEXT = "def café(x):\n    # naïve: π ≈ 3, 日本 🙂\n"


@pytest.fixture(scope="module")
def words():
    from mlx_lm.utils import load_tokenizer

    return PretrainedTokenizer(load_tokenizer(ZOO["zoo:drafter"]))


def test_encoding_and_decoding_undo_each_other(words):
    assert words.decode(words.encode(TEXT)) == TEXT
    assert (words.bos_id, words.eos_id) == (0, 0)
    assert words.encode("<|endoftext|>import os")[0] == 0
    assert words.decode([0]) == "<|endoftext|>"


def test_streamed_pieces_are_whole_characters_and_join_to_the_text(words):
    prompt, stream = words.encode("import os\n"), words.stream(words.encode("import os\n"))
    pieces = [stream.add([token]) for token in words.encode(TEXT)]
    assert "".join(pieces) + stream.finish() == TEXT
    assert not any("\N{REPLACEMENT CHARACTER}" in piece for piece in pieces)
    assert "" in pieces, "no character spans two ids: the text does not try what it should"
    whole = words.stream(prompt)
    assert whole.add(words.encode(TEXT)) == TEXT


def test_text_does_not_depend_on_how_ids_arrive_even_when_they_are_no_text(words):
    rng = np.random.default_rng(0)
    for _ in range(50):
        ids = rng.integers(1, 260, 40).tolist()  # mostly single bytes: broken characters of every kind
        stream, said = words.stream(words.encode("x = ")), ""
        place = 0
        while place < len(ids):
            count = int(rng.integers(1, 6))
            said += stream.add(ids[place : place + count])
            place += count
        said += stream.finish()
        assert "x = " + said == words.decode(words.encode("x = ") + ids)


def test_a_leading_space_after_the_prompt_is_kept(words):
    prompt = words.encode("import")
    assert words.stream(prompt).add(words.encode(" os")) == " os"


def test_half_a_character_is_said_only_at_the_end(words):
    first = words.encode("🙂")[0]
    stream = words.stream()
    assert stream.add([first]) == ""
    assert stream.finish() == "\N{REPLACEMENT CHARACTER}"
    assert stream.finish() == ""


def test_a_character_that_the_prompt_began_is_completed(words):
    ids = words.encode("a🙂")
    assert words.stream(ids[:-1]).add(ids[-1:]) == "🙂"


def test_a_long_text_costs_no_more_a_token_than_a_short_one(words, monkeypatch):
    decoded, decode = [], words.decode
    monkeypatch.setattr(words, "decode", lambda ids: decoded.append(len(ids)) or decode(ids))
    stream = words.stream(words.encode(TEXT * 50))
    for token in words.encode(TEXT * 50):
        stream.add([token])
    assert max(decoded[2:]) <= 17 + 4  # 16 of the prompt, and a character of four bytes


def test_a_beginning_of_sequence_id_is_not_put_twice():
    class Beginning:
        bos_token, bos_token_id, eos_token_id = "<s>", 1, 2

        def encode(self, text, add_special_tokens):
            return [1] * add_special_tokens + ([1] if text.startswith("<s>") else []) + [9]

    words = PretrainedTokenizer(Beginning())
    assert words.encode("x") == [1, 9]
    assert words.encode("<s>x") == [1, 9]


def test_the_text_of_a_toy_is_its_ids():
    words = IdTokenizer()
    assert words.encode(" 3 10\n0 ") == [3, 10, 0]
    assert words.decode([3, 10, 0]) == "3 10 0"
    stream = words.stream([1, 2])
    assert [stream.add([3]), stream.add([10, 0]), stream.finish()] == ["3", " 10 0", ""]
    with pytest.raises(ValueError, match="must be token ids separated by spaces"):
        words.encode("three")
