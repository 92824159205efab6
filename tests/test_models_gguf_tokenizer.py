"""Tokenizers of GGUF files: the ids of the published tokenizer, of SentencePiece; and what ends a text."""

import json
import math
import unicodedata

from specfw.models.gguf import Gguf
from specfw.models.gguf_file import tokenizer
from specfw.models.pretrained.tokens import PretrainedTokenizer
from specfw.models.vocabulary import without_padding
from specfw.zoo import folder as shipped

import checkpoints
import gguf_files
import mlx.core as mx
import numpy as np
import pytest
from gguf.constants import TokenType
from tokenizers import Tokenizer

TEXTS = [
    "Hello, world!  It's 3.14159 in 2024; we'll see I'D SAY\r\n\r\n  def f(x):\n\treturn x ** 12345\n",
    "na\u00efve cafe\u0301 \u65e5\u672c\u8a9e \U0001f642 \u00bd\u0664\u0665 a\u00a0b ... ----- \n \n\n  7",
    "",
    "   ",
    "x<|endoftext|>  y<|endoftext|>",
]
WORDS = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}%s| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
BYTES = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}


def words(digits):
    split = {"type": "Split", "pattern": {"Regex": WORDS % digits}, "behavior": "Isolated", "invert": False}
    return {"type": "Sequence", "pretokenizers": [split, {**BYTES, "use_regex": False}]}


PUBLISHED = {
    "gpt-2": (BYTES, None, False),
    "smollm": (
        {"type": "Sequence", "pretokenizers": [{"type": "Digits", "individual_digits": True}, BYTES]},
        None,
        False,
    ),
    "qwen2": (words(""), {"type": "NFC"}, False),
    "llama-bpe": (words("{1,3}"), None, True),
}
"""The part of tokenizer.json that the published models have: splits, normaliser, whether whole words come first."""


def opened(told):
    return PretrainedTokenizer(tokenizer.tokenizer(told))


def random_texts(alphabet, count=200, seed=3):
    generator = np.random.default_rng(seed)
    return ["".join(generator.choice(list(alphabet), generator.integers(1, 30))) for _ in range(count)]


@pytest.mark.parametrize("pre", PUBLISHED)
def test_byte_level_ids_are_those_of_the_published_tokenizer(pre):
    content = json.loads((shipped("drafter") / "tokenizer.json").read_text())
    content["pre_tokenizer"], content["normalizer"], content["model"]["ignore_merges"] = PUBLISHED[pre]
    reference = Tokenizer.from_str(json.dumps(content))
    ours = opened(gguf_files.byte_level(pre) | {"tokenizer.ggml.add_bos_token": False})
    for text in [*TEXTS, *random_texts("ab cZ'sTl09\n\t.-_\u00e9\u65e5")]:
        assert ours.encode(text) == reference.encode(text).ids, text
        plain = unicodedata.normalize("NFC", text) if pre == "qwen2" else text
        assert ours.decode(ours.encode(text)) == plain
    assert ours.vocabulary() == {place: token for token, place in content["model"]["vocab"].items()}
    assert ours.special_ids() == {0}


def test_no_two_splits_are_one():
    ids = {pre: [opened(gguf_files.byte_level(pre)).encode(text) for text in TEXTS] for pre in PUBLISHED}
    assert len({json.dumps(made) for made in ids.values()}) == len(PUBLISHED)


def test_a_word_that_is_a_token_is_taken_whole_where_the_model_was_trained_so():
    """No pair makes it."""
    whole = {}
    for pre in ("smollm", "llama-bpe"):
        told = gguf_files.byte_level(pre) | {"tokenizer.ggml.merges": [], "tokenizer.ggml.add_bos_token": False}
        told["tokenizer.ggml.tokens"][1999] = "zebra"
        whole[pre] = opened(told).encode("zebra")
    assert whole["llama-bpe"] == [1999]
    assert len(whole["smollm"]) == 5


def test_control_tokens_are_special_and_those_of_the_user_are_not():
    told = gguf_files.byte_level()
    told["tokenizer.ggml.token_type"][7] = TokenType.CONTROL
    told["tokenizer.ggml.token_type"][8] = TokenType.USER_DEFINED
    assert opened(told).special_ids() == {0, 7}


@pytest.mark.parametrize(
    ("pre", "flag", "begins"), [("smollm", None, False), ("llama-bpe", None, True), ("smollm", True, True)]
)
def test_a_text_begins_as_the_file_says_or_its_kind_does(pre, flag, begins):
    told = {**gguf_files.byte_level(pre), "tokenizer.ggml.bos_token_id": 5}
    told |= {} if flag is None else {"tokenizer.ggml.add_bos_token": flag}
    ours = opened(told)
    assert (ours.encode("ab")[0] == 5) is begins
    first = told["tokenizer.ggml.tokens"][5]
    assert ours.bos_id == 5
    assert ours.encode(f"{first}ab").count(5) == 1


def test_a_text_may_end_with_the_end():
    told = {**gguf_files.byte_level(), "tokenizer.ggml.add_eos_token": True, "tokenizer.ggml.bos_token_id": 5}
    assert opened(told).encode("ab")[-1] == 0
    both = opened(told | {"tokenizer.ggml.add_bos_token": True}).encode("ab")
    assert (both[0], both[-1]) == (5, 0)


SCORED = ["a", "b", "c", "\u2581", "ab", "bc", "abc", "\u2581a", "aa", "aaa", "\u2581\u2581", "ba", "\u00e9", "cab"]
BYTE = "<0x{:02X}>"


def sentence_piece(**changes):
    """A small vocabulary with scores, two of them equal."""
    scores = [-9.0, -8.0, -7.0, -6.0, -1.0, -1.5, -0.5, -3.0, -2.0, -2.0, -2.5, -1.2, -5.0, -4.0]
    kinds = TokenType.UNKNOWN, TokenType.CONTROL, TokenType.CONTROL, TokenType.USER_DEFINED
    told = {
        "model": "llama",
        "tokens": ["<unk>", "<s>", "</s>", "<tag>", *(BYTE.format(byte) for byte in range(256)), *SCORED],
        "token_type": [*kinds, *[TokenType.BYTE] * 256, *[TokenType.NORMAL] * len(SCORED)],
        "scores": np.array([*[0.0] * 260, *scores], dtype=np.float32),
        "unknown_token_id": 0,
        "bos_token_id": 1,
        "eos_token_id": 2,
        "add_space_prefix": False,
    }
    return {f"tokenizer.ggml.{key}": value for key, value in {**told, **changes}.items()}


def joined(text, told):
    """SentencePiece's algorithm as it is described: join the neighbours that make the best piece, leftmost first."""
    tokens, scores = told["tokenizer.ggml.tokens"], told["tokenizer.ggml.scores"]
    known = {tokens[place]: (scores[place], -place) for place in range(260, len(tokens))}
    parts = list(text.replace(" ", "\u2581"))
    while True:
        pairs = [known.get(parts[place] + parts[place + 1], (-math.inf, 0)) for place in range(len(parts) - 1)]
        if not pairs or max(pairs)[0] == -math.inf:
            break
        place = pairs.index(max(pairs))
        parts[place : place + 2] = [parts[place] + parts[place + 1]]
    return [token for part in parts for token in ([part] if part in known else map(BYTE.format, part.encode()))]


def test_pieces_are_joined_as_sentence_piece_joins_them():
    told = sentence_piece()
    ours, tokens = opened(told), told["tokenizer.ggml.tokens"]
    for text in random_texts("aaabbc \u00e9\u65e5", count=600):
        assert [tokens[place] for place in ours.encode(text)] == ["<s>", *joined(text, told)], text
        assert ours.decode(ours.encode(text)) == f"<s>{text}"


def test_a_space_may_stand_before_a_text():
    told = sentence_piece(add_space_prefix=True)
    ours = opened(told)
    assert [ours.vocabulary()[place] for place in ours.encode("ab")] == ["<s>", "\u2581", "ab"]
    assert ours.decode(ours.encode("ab")[1:]) == "ab"


def test_tokens_of_the_user_and_control_tokens_are_found_in_a_text():
    ours = opened(sentence_piece())
    assert ours.encode("a<tag>b</s>") == [1, 260, 3, 261, 2]
    assert ours.special_ids() == {0, 1, 2}
    assert (ours.bos_id, ours.eos_id) == (1, 2)


@pytest.mark.parametrize(
    ("changes", "template", "expected"),
    [
        ({}, None, {0}),
        ({"eot_token_id": 3}, None, {0, 3}),
        ({"eot_token_id": 3, "eom_token_id": 4}, None, {0, 3, 4}),
        ({}, "{{ '<|im_end|>' }}", {0, 7}),
        ({}, "{{ '<|im_start|>' }}", {0}),
        ({"eos_token_id": None}, None, set()),
    ],
)
def test_what_ends_a_sequence(changes, template, expected):
    told = gguf_files.byte_level()
    told["tokenizer.ggml.tokens"][7] = "<|im_end|>"
    told["tokenizer.ggml.token_type"][7] = TokenType.CONTROL
    told["tokenizer.ggml.merges"] = []
    told |= {f"tokenizer.ggml.{key}": value for key, value in changes.items()}
    told |= {"tokenizer.chat_template": template} if template else {}
    assert (
        tokenizer.tokenizer({key: value for key, value in told.items() if value is not None}).eos_token_ids == expected
    )


def test_the_chat_template_is_read(tmp_path):
    template = "{% for message in messages %}<|endoftext|>{{ message.role }}: {{ message.content }}\n{% endfor %}"
    ours = opened(gguf_files.byte_level() | {"tokenizer.chat_template": template})
    made = ours.chat([{"role": "user", "content": "hi"}], {})
    assert made == ours.encode("<|endoftext|>user: hi\n")
    with pytest.raises(ValueError, match="it reads no typed"):
        ours.chat([], {"typed": True})
    assert opened(gguf_files.byte_level()).chat([], {}) is None


def test_fillers_stand_for_no_token_and_are_never_drawn(tmp_path):
    config = {**checkpoints.SPEAKING["llama"], "vocab_size": 2112}
    told = gguf_files.byte_level()
    tokens = [*told["tokenizer.ggml.tokens"], *(f"[PAD{place}]" for place in range(2048, 2111)), "<extra>"]
    kinds = [*told["tokenizer.ggml.token_type"], *[TokenType.UNUSED] * 64]
    told |= {"tokenizer.ggml.tokens": tokens, "tokenizer.ggml.token_type": kinds}
    module = checkpoints.module(config)
    path = gguf_files.write(tmp_path / "model.gguf", "llama", module=module, config=config, **told)
    model = without_padding(Gguf(path=path).load("target"))
    assert model.vocab_size == 2112
    assert set(model.tokenizer.vocabulary()) == {*range(2048), 2111}
    row = np.array(model.forward(mx.array([[5]]), model.new_cache(1)))[0, 0]
    assert np.isneginf(row[2048:2111]).all()
    assert np.isfinite(row[:2048]).all()
    assert np.isfinite(row[2111])


def test_one_token_with_two_ids_is_refused():
    told = gguf_files.byte_level()
    told["tokenizer.ggml.tokens"][9] = told["tokenizer.ggml.tokens"][4]
    with pytest.raises(ValueError, match=r"tokenizer.ggml.tokens must differ, got '\$' twice"):
        opened(told)
