"""Messages become what the checkpoint's own chat template makes of them, or are refused in one sentence."""

import json
from pathlib import Path

from specfw.__main__ import main
from specfw.experiment import run
from specfw.models.checkpoint import Checkpoint
from specfw.models.iid import Iid
from specfw.models.pretrained.tokens import PretrainedTokenizer
from specfw.registry import build

import pytest
from checkpoints import LLAMA, edit, write
from kit import config
from mlx_lm.utils import load_tokenizer

BEGIN = "<|endoftext|>"
TEMPLATE = (
    "{{ bos_token }}"
    "{% for message in messages %}"
    "{% if message.role == 'developer' %}{{ raise_exception('no developers here') }}{% endif %}"
    "# {{ message.role }}: {{ message.content }}\n"
    "{% for call in message.tool_calls %}# calls {{ call }}\n{% endfor %}"
    "{% endfor %}"
    "{% if shout is defined and shout %}# LOUD\n{% endif %}"
    "{% if tools %}# tools {{ tools | length }}\n{% endif %}"
    "{% if add_generation_prompt %}# assistant:{% endif %}"
)
MESSAGES = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "naïve?"}]
WRITTEN = f"{BEGIN}# system: Be brief.\n# user: naïve?\n# assistant:"


def beginning(path):
    """Let the tokenizer put a beginning-of-sequence id before every text, as Llama's does."""
    file = Path(path) / "tokenizer.json"
    content = json.loads(file.read_text())
    first, text = {"SpecialToken": {"id": BEGIN, "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}
    adding = {"type": "TemplateProcessing", "single": [first, text], "pair": [first, text, text]}
    adding["special_tokens"] = {BEGIN: {"id": BEGIN, "ids": [0], "tokens": [BEGIN]}}
    before = content["post_processor"]
    content["post_processor"] = adding if before is None else {"type": "Sequence", "processors": [before, adding]}
    file.write_text(json.dumps(content))


@pytest.fixture(scope="module")
def chats(tmp_path_factory):
    """A checkpoint with a chat template, whose tokenizer begins every text."""
    path = write(tmp_path_factory.mktemp("chats"), LLAMA)
    edit(path, "tokenizer_config.json", chat_template=TEMPLATE)
    beginning(path)
    return path


@pytest.fixture(scope="module")
def speechless(tmp_path_factory):
    return write(tmp_path_factory.mktemp("speechless"), LLAMA)


@pytest.fixture(scope="module")
def model(chats):
    return Checkpoint(path=chats).load("target")


def prompts(name, **fields):
    return build("prompts", {"name": name, **fields}, "prompts")


def ids(model, messages=MESSAGES, **options):
    (one,) = prompts("chat", messages=messages, chat_template_kwargs=options).encode(model)
    return list(one.ids)


def lines(folder, *entries):
    path = folder / "prompts.jsonl"
    path.write_text("\n".join(json.dumps(entry, ensure_ascii=False) for entry in entries))
    return str(path)


def test_messages_become_what_the_template_writes_and_the_answer_begins(model):
    assert model.tokenizer.decode(ids(model)) == WRITTEN


def test_it_is_what_mlx_lm_makes_of_them(model, chats):
    assert ids(model) == load_tokenizer(Path(chats)).apply_chat_template(MESSAGES, add_generation_prompt=True)


def test_a_beginning_is_not_put_before_that_of_the_template(model):
    assert model.tokenizer.encode("x")[0] == 0, "the tokenizer adds none: the test would not see two"
    assert model.tokenizer.encode("x").count(0) == 1
    assert ids(model).count(0) == 1


def test_lines_of_both_kinds_stand_side_by_side(tmp_path, model):
    path = lines(tmp_path, {"prompt": "x ="}, {"messages": MESSAGES, "id": 7}, {"messages": MESSAGES[1:]})
    texts = [model.tokenizer.decode(one.ids) for one in prompts("json_lines", path=path).encode(model)]
    assert texts == [f"{BEGIN}x =", WRITTEN, f"{BEGIN}# user: naïve?\n# assistant:"]


def test_further_variables_reach_the_template(tmp_path, model):
    path = lines(tmp_path, {"messages": MESSAGES})
    loud = prompts("json_lines", path=path, chat_template_kwargs={"shout": True, "tools": [{"name": "f"}]})
    (one,) = loud.encode(model)
    assert model.tokenizer.decode(one.ids) == WRITTEN.replace("# assistant", "# LOUD\n# tools 1\n# assistant")
    assert ids(model, shout=False) == ids(model)


def test_what_else_a_message_holds_reaches_the_template(model):
    called = [*MESSAGES, {"role": "assistant", "content": None, "tool_calls": ["f(1)"]}]
    answered = [*called, {"role": "tool", "content": "2", "tool_call_id": "a"}]
    assert "# calls f(1)\n# tool: 2\n# assistant:" in model.tokenizer.decode(ids(model, answered))


def test_a_template_of_its_own_file(tmp_path):
    path = write(tmp_path / "model", LLAMA)
    (Path(path) / "chat_template.jinja").write_text("<{{ messages[-1].content }}>")
    model = Checkpoint(path=path).load("target")
    assert model.tokenizer.decode(ids(model)) == "<naïve?>"


@pytest.mark.parametrize(
    ("messages", "sentence"),
    [
        ("hello", r"messages must be a list of at least one message, got 'hello'"),
        ([], r"messages must be a list of at least one message, got"),
        (["hello"], r'messages\[0\] must be a message {"role": "...", "content": "..."}, got \'hello\''),
        (
            [MESSAGES[0], {"role": "bot", "content": "hi"}],
            r"messages\[1\].role must be one of: system, developer, user, assistant, tool, got 'bot'",
        ),
        ([{"content": "hi"}], r"messages\[0\].role must be one of: .*, got None"),
        ([{"role": ["user"], "content": "hi"}], r"messages\[0\].role must be one of: .*, got \"\['user'\]\""),
        ([{"role": "user"}], r"messages\[0\].content must be a string, got None"),
        ([{"role": "user", "content": ["hi"]}], r"messages\[0\].content must be a string, got"),
        ([{"role": "user", "content": None, "tool_calls": [1]}], r"messages\[0\].content must be a string, got None"),
    ],
)
def test_what_is_no_conversation_is_refused_by_line_and_place_before_a_model_is_loaded(tmp_path, messages, sentence):
    path = lines(tmp_path, {"prompt": "x"}, {"messages": messages})
    with pytest.raises(ValueError, match=rf"^prompts.path line 2 {sentence}"):
        prompts("json_lines", path=path).chosen()
    if isinstance(messages, list):
        with pytest.raises(ValueError, match=rf"^prompts.{sentence}"):
            prompts("chat", messages=messages)


@pytest.mark.parametrize("option", ["tokenize", "add_generation_prompt", "return_tensors"])
def test_what_would_change_what_comes_back_is_no_variable_of_a_template(option):
    with pytest.raises(ValueError, match=rf"^prompts.chat_template_kwargs must be .*, got \['{option}'\]"):
        prompts("json_lines", path="x", chat_template_kwargs={option: True})
    with pytest.raises(ValueError, match=rf"^prompts.chat_template_kwargs must be .*, got \['{option}'\]"):
        prompts("chat", messages=MESSAGES, chat_template_kwargs={option: True})


def test_variables_without_messages_are_refused(tmp_path):
    path = lines(tmp_path, {"prompt": "x"})
    with pytest.raises(ValueError, match=r"^prompts.chat_template_kwargs must be left out where no line has"):
        prompts("json_lines", path=path, chat_template_kwargs={"shout": True}).chosen()


def test_a_variable_that_the_template_does_not_read_is_refused(model):
    with pytest.raises(ValueError, match=r"^prompts.messages must be messages for the chat template of target .*shot"):
        ids(model, shot=True)


def test_what_the_template_refuses_is_told_in_its_words(model):
    with pytest.raises(ValueError, match=r"^prompts.messages must be .* target \(.*which says: no developers here$"):
        ids(model, [{"role": "developer", "content": "x"}])


def test_a_template_that_cannot_be_read_is_told(tmp_path):
    path = write(tmp_path / "model", LLAMA)
    edit(path, "tokenizer_config.json", chat_template="{% for x in %}")
    with pytest.raises(ValueError, match=r"^prompts.messages must be .*which says: Expected an expression"):
        ids(Checkpoint(path=path).load("target"))


def test_half_a_surrogate_pair_is_refused(model):
    with pytest.raises(ValueError, match=r"^prompts.messages must be Unicode text, got half a surrogate pair"):
        ids(model, [{"role": "user", "content": "a\udcff"}])


def test_a_model_without_words_has_no_template():
    toy = Iid(probs=(0.5, 0.5)).load("target")
    with pytest.raises(ValueError, match=r"^prompts.messages must be text or token ids, as target \(iid\) has no chat"):
        ids(toy)


def test_a_template_that_is_a_function_of_mlx_lm():
    """Some architectures have theirs in Python, in mlx-lm; there is no text to look variables up in."""

    class Wrapper:
        bos_token_id = eos_token_id = chat_template = None
        has_chat_template, all_special_ids = True, ()

        def apply_chat_template(self, messages, *, add_generation_prompt, deep=False):
            return [len(messages), int(add_generation_prompt), int(deep)]

    words = PretrainedTokenizer(Wrapper())
    assert words.chat(MESSAGES, {"deep": True}) == [2, 1, 1]
    with pytest.raises(ValueError, match="unexpected keyword argument 'depth'"):
        words.chat(MESSAGES, {"depth": True})


# --- through the command ----------------------------------------------------------------------------------------


@pytest.fixture(autouse=True)
def outputs(tmp_path, monkeypatch):
    folder = tmp_path / "outputs"
    monkeypatch.setenv("SPECFW_OUTPUTS", str(folder))
    return folder


def command(path, *words):
    return [f"target.path={path}", f"drafter.path={path}", "max_tokens=8", *words]


def text(checkpoint, **prompts):
    both = {"name": "checkpoint", "path": checkpoint}
    return run(config(both, both, prompts=prompts, max_tokens=8), quiet=True).outputs[0].text


def test_a_run_of_messages_says_what_a_run_of_their_ids_says(tmp_path, chats, model):
    path = lines(tmp_path, {"messages": MESSAGES}, {"messages": MESSAGES[1:]})
    by_ids = text(chats, name="ids", ids=ids(model))
    assert text(chats, name="json_lines", path=path, select=[0]) == by_ids
    assert text(chats, name="chat", messages=MESSAGES) == by_ids


def test_a_conversation_on_the_command_line_and_its_replay(chats, model, capsys, outputs):
    written = "prompts.messages=[{role:system,content:'Be brief.'},{role:user,content:'naïve?'}]"
    words = ["prompts=chat", written, "prompts.chat_template_kwargs.shout=true", "acceptance=stochastic"]
    assert main(command(chats, *words)) == 0
    said = capsys.readouterr().out
    assert said.startswith(text(chats, name="ids", ids=ids(model, shout=True)) + "\n[Spec")
    (newest,) = outputs.glob("2*/*")
    assert main([f"replay={newest}"]) == 0
    assert capsys.readouterr().out == said


def test_a_template_that_writes_the_date_shows_in_the_digest_of_the_prompts(tmp_path, monkeypatch):
    """Llama 3's does, unless it is told a date: the same configuration is another prompt tomorrow."""
    from transformers.utils import chat_template_utils as rendering

    path = write(tmp_path / "model", LLAMA)
    dated = "{% if not day is defined %}{% set day = strftime_now('%d') %}{% endif %}{{ day }}{{ messages[0].content }}"
    edit(path, "tokenizer_config.json", chat_template=dated)
    both = {"name": "checkpoint", "path": path}
    told = {}
    for today in ("01", "02"):
        monkeypatch.setattr(rendering, "datetime", Clock(today))
        for options in ({}, {"day": "01"}):
            chat = {"name": "chat", "messages": MESSAGES, "chat_template_kwargs": options}
            folder = tmp_path / f"{today}{len(options)}"
            folder.mkdir()
            run(config(both, both, prompts=chat, max_tokens=1), folder=folder, quiet=True)
            events = map(json.loads, (folder / "events.jsonl").read_text().splitlines())
            started = next(event for event in events if event["event"] == "run_started")
            told[today, len(options)] = started["prompts_digest"]
    assert told["01", 0] == told["01", 1] == told["02", 1] != told["02", 0]


class Clock:
    def __init__(self, today):
        self.strftime = lambda _: today

    def now(self):
        return self


BAD = [
    ({"messages": MESSAGES, "prompt": "x"}, "prompts.path line 1 must be a JSON object"),
    ({"text": "x"}, "prompts.path line 1 must be a JSON object"),
    ({"messages": [{"role": "bot", "content": "x"}]}, "prompts.path line 1 messages[0].role must be one of"),
    ({"messages": MESSAGES}, "prompts.path line 1 must be text or token ids, as target ("),
]


@pytest.mark.parametrize(("entry", "sentence"), BAD)
def test_bad_lines_are_one_sentence_and_status_2_before_the_first_forward_pass(
    tmp_path, speechless, entry, sentence, capsys, monkeypatch
):
    def never(*_, **__):
        raise AssertionError("decoded")

    monkeypatch.setattr("specfw.experiment.Generation", never)
    path = lines(tmp_path, entry)
    assert main(command(speechless, "prompts=json_lines", f"prompts.path={path}")) == 2
    out, err = capsys.readouterr()
    assert out == ""
    (line,) = [line for line in err.splitlines() if line.startswith("specfw: ")]
    assert line.startswith(f"specfw: {sentence}")


def test_a_toy_is_not_spoken_to(capsys):
    assert main(["pair=iid", "prompts=chat", "prompts.messages=[{role:user,content:hi}]"]) == 2
    assert "prompts.messages must be text or token ids, as target (iid) has no chat template" in capsys.readouterr().err
