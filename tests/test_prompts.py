"""Prompts keep their places, become ids, or are refused in one sentence that names the field."""

import json

from specfw.models.checkpoint import Checkpoint
from specfw.models.iid import Iid
from specfw.prompts.base import Encoded
from specfw.registry import build, names

import pytest

TOY = Iid(probs=(0.25,) * 4).load("target")


@pytest.fixture(scope="module")
def trained():
    return Checkpoint(path="zoo:drafter").load("drafter")


class Mute:
    """A model without a token that begins or ends anything, unless told."""

    name, vocab_size = "mute", 10

    def __init__(self, bos_id=None, eos_id=None):
        self.bos_id, self.eos_id, self.tokenizer = bos_id, eos_id, self

    def encode(self, text):
        return [len(text)]


def prompts(name, **fields):
    return build("prompts", {"name": name, **fields}, "prompts")


def encoded(name, model=TOY, **fields):
    return [(one.index, one.ids) for one in prompts(name, **fields).encode(model)]


def lines(tmp_path, *content):
    path = tmp_path / "prompts.jsonl"
    path.write_bytes("\n".join(content).encode())
    return str(path)


def test_every_source_is_registered():
    assert names("prompts") == ("chat", "file", "ids", "json_lines", "text", "texts")


def test_text_becomes_the_ids_of_the_model(trained):
    [(index, ids)] = encoded("text", trained, text="def f(x):\n    ")
    assert index == 0
    assert trained.tokenizer.decode(ids) == "def f(x):\n    "


def test_ids_of_a_toy_may_be_written_as_text():
    assert encoded("text", text="0 3 1") == [(0, (0, 3, 1))]
    assert encoded("texts", texts=["1", "2 2"]) == [(0, (1,)), (1, (2, 2))]


def test_a_file_is_one_prompt_with_its_line_ends(tmp_path, trained):
    path = tmp_path / "prompt.txt"
    path.write_bytes("\ufeffé = 1\r\n".encode())
    [(_, ids)] = encoded("file", trained, path=str(path))
    assert trained.tokenizer.decode(ids) == "é = 1\r\n"


def test_a_file_may_lie_in_the_home_directory(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "prompt.txt").write_text("1 2")
    assert encoded("file", path="~/prompt.txt") == [(0, (1, 2))]


def test_json_lines_are_counted_without_the_blank_ones(tmp_path):
    path = lines(tmp_path, '{"prompt": "1"}', "", '{"prompt": "2 3", "task_id": 7}', "")
    assert encoded("json_lines", path=path) == [(0, (1,)), (1, (2, 3))]


def test_a_line_separator_inside_a_json_string_ends_no_line(tmp_path, trained):
    path = lines(tmp_path, json.dumps({"prompt": "a\u2028b"}, ensure_ascii=False))
    [(_, ids)] = encoded("json_lines", trained, path=path)
    assert trained.tokenizer.decode(ids) == "a\u2028b"


def test_ids_are_one_prompt_or_several():
    assert encoded("ids", ids=[0, 1]) == [(0, (0, 1))]
    assert encoded("ids", ids=[[0, 1], [2]]) == [(0, (0, 1)), (1, (2,))]


@pytest.mark.parametrize("select", [[3], [3, 1]])
def test_selected_prompts_keep_their_places_in_the_whole_list(select):
    whole = dict(encoded("texts", texts=["0", "1", "2", "3"]))
    chosen = encoded("texts", texts=["0", "1", "2", "3"], select=select)
    assert chosen == [(place, whole[place]) for place in select]


@pytest.mark.parametrize(("source", "fields"), [("text", {"text": ""}), ("ids", {"ids": []}), ("ids", {"ids": [[]]})])
def test_an_empty_prompt_becomes_what_begins_a_sequence(source, fields):
    def note(kind, token):
        return f"an empty prompt became the {kind}-of-sequence token {token}"

    both, end = Mute(bos_id=3, eos_id=4), Mute(eos_id=4)
    assert prompts(source, **fields).encode(both) == [Encoded(0, (3,), (note("beginning", 3),))]
    assert prompts(source, **fields).encode(end) == [Encoded(0, (4,), (note("end", 4),))]
    with pytest.raises(ValueError, match=rf"^prompts.{source}\S* must hold a token: mute has none that begins"):
        prompts(source, **fields).encode(Mute())


def test_an_empty_prompt_of_the_shipped_pair_begins_with_its_end_of_text(trained):
    assert encoded("text", trained, text="") == [(0, (0,))]


def test_an_empty_prompt_of_a_toy_is_refused():
    with pytest.raises(ValueError, match=r"^prompts.text must hold a token: target \(iid\) has none"):
        prompts("text", text=" \n").encode(TOY)


@pytest.mark.parametrize(
    ("source", "fields", "sentence"),
    [
        ("text", {"text": "one"}, r"^prompts.text must be token ids separated by spaces"),
        ("text", {"text": "4"}, r"^prompts.text must be ids in \[0, 4\) of target \(iid\), got 4"),
        ("texts", {"texts": ["1", "1 9"]}, r"^prompts.texts\[1\] must be ids in \[0, 4\)"),
        ("texts", {"texts": []}, r"^prompts must be at least one prompt"),
        ("texts", {"texts": ["1"], "select": [1]}, r"^prompts.select must be places in \[0, 1\), got 1"),
        ("ids", {"ids": [[0], [-1]]}, r"^prompts.ids\[1\] must be ids in \[0, 4\) .* got -1"),
        ("text", {"text": "a\udcff"}, r"^prompts.text must be Unicode text, got half a surrogate pair"),
        ("file", {"path": "no/such/file"}, r"^prompts.path must be a readable file, got 'no/such/file' \(No such"),
        ("file", {"path": "."}, r"^prompts.path must be a readable file, got '.' \(Is a directory\)"),
    ],
)
def test_what_is_no_prompt_of_this_model_is_refused(source, fields, sentence):
    with pytest.raises(ValueError, match=sentence):
        prompts(source, **fields).encode(TOY)


@pytest.mark.parametrize(
    ("source", "fields", "sentence"),
    [
        ("ids", {"ids": [0, 1.5]}, r"^prompts.ids must be a list of ids, or a list of lists of ids"),
        ("ids", {"ids": [0, [1]]}, r"^prompts.ids must be a list of ids, or a list of lists of ids"),
        ("ids", {"ids": [True]}, r"^prompts.ids must be a list of ids, or a list of lists of ids"),
        ("text", {"text": "1", "select": []}, r"^prompts.select must be null or different places from 0"),
        ("text", {"text": "1", "select": [0, 0]}, r"^prompts.select must be null or different places from 0"),
        ("text", {"text": "1", "select": [-1]}, r"^prompts.select must be null or different places from 0"),
    ],
)
def test_what_can_be_no_prompt_at_all_is_refused_when_built(source, fields, sentence):
    with pytest.raises(ValueError, match=sentence):
        prompts(source, **fields)


@pytest.mark.parametrize(
    "line",
    [
        '{"text": "1"}',
        '{"prompt": "1", "messages": [{"role": "user", "content": "2"}]}',
        '{"prompt": null}',
        '{"prompt": [1]}',
        '"1"',
        '{"prompt": "1"',
    ],
)
def test_a_line_that_holds_no_prompt_is_refused_by_its_number(tmp_path, line):
    path = lines(tmp_path, '{"prompt": "1"}', "", line)
    form = r'a JSON object {"prompt": "..."} or {"messages": \[...\]}'
    with pytest.raises(ValueError, match=rf"^prompts.path line 3 must be {form}, got"):
        prompts("json_lines", path=path).encode(TOY)


def test_what_is_null_in_a_line_is_not_there(tmp_path):
    path = lines(tmp_path, '{"prompt": "1", "messages": null}')
    assert encoded("json_lines", path=path) == [(0, (1,))]


@pytest.mark.parametrize("source", ["file", "json_lines"])
def test_a_file_that_is_not_utf_8_is_refused(tmp_path, source):
    path = tmp_path / "latin"
    path.write_bytes(b'{"prompt": "\xe9"}')
    with pytest.raises(ValueError, match=r"^prompts.path must be a UTF-8 file, got"):
        prompts(source, path=str(path)).chosen()
