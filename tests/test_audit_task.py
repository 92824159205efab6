"""task=audit: runs of ours and foreign files, what is refused before a forward pass, what is written."""

import json
import re
import shutil

from specfw.__main__ import main
from specfw.experiment import run
from specfw.files import EVENTS, TOKENS
from specfw.models._toy import ToyModel
from specfw.verification.audit import source
from specfw.verification.audit.auditing import Auditor
from specfw.verification.audit.rows import scores

import numpy as np
import pytest
from kit import ORDER, config

LINE = re.compile(
    r"\[Audit\] verdict=(passed|failed|unchecked) tokens=\d+ log10_e=(-?\d+\.\d{2}|inf|nan) named=\S+ edge_tokens=\d+ "
    r"ks_p=(\d\.\d{4}|nan) lag1_z=(-?\d+\.\d{2}|nan)\n"
)
P, Q = [0.1, 0.2, 0.3, 0.4], [0.4, 0.3, 0.2, 0.1]  # of pair=iid
TARGET, DRAFTER = ({"name": "iid", "probs": probs} for probs in (P, Q))
CONTEXT = [{"name": "markov", "vocab_size": 3, "row_seed": seed} for seed in (1, 2)]
PENALTIES = {"repetition": {"penalty": 1.3}, "presence": {"penalty": 0.4, "window": 5}}


@pytest.fixture
def command(tmp_path, monkeypatch, capsys):
    """Run a command line: exit status, stdout, stderr, and the folder it wrote."""

    def run(*words):
        outputs = tmp_path / f"outputs{len(list(tmp_path.glob('outputs*')))}"
        monkeypatch.setenv("SPECFW_OUTPUTS", str(outputs))
        capsys.readouterr()
        status = main(list(words))
        out, err = capsys.readouterr()
        return status, out, err, next(iter(outputs.glob("2*/*")), None)

    return run


@pytest.fixture
def record(tmp_path):
    """Run a toy pair and leave its record in a folder."""

    def make(target=CONTEXT[0], drafter=CONTEXT[1], **changes):
        folder = tmp_path / f"run{len(list(tmp_path.glob('run*')))}"
        folder.mkdir()
        run(config(target, drafter, **changes), folder=folder, quiet=True)
        return folder

    return make


def audited(path, **changes):
    whole = config(TARGET, DRAFTER, **changes)
    return Auditor(seed=0, alpha=1e-6, orders={}).audit(source.opened(str(path), whole)).numbers


def written(folder):
    return json.loads((folder / "audit.json").read_text())


def foreign(path, *entries):
    path.write_text("\n".join(entry if isinstance(entry, str) else json.dumps(entry) for entry in entries))
    return f"task.source={path}"


def entry(emitted, prompt=(0,), **steps):
    return {"prompt": list(prompt), "emitted": list(map(int, emitted)), "sampler": {"order": ORDER, **steps}}


def change(folder, name, edit):
    """Change the one event or every token of a record."""
    rows = [json.loads(line) for line in (folder / name).read_text().splitlines()]
    (folder / name).write_text("".join(json.dumps(edit(row)) + "\n" for row in rows))


# --- runs of ours -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("rule", ["sampler_match", "stochastic"])
def test_a_run_is_audited_from_its_folder(command, rule):
    more = ["sampler.temperature.value=0.8", "sampler.xtc.probability=0.3", "draft_sampler.temperature.value=1.5"]
    made = command("pair=markov", f"acceptance={rule}", "max_tokens=60", "num_samples=3", "seed=5", *more)
    status, out, err, folder = command("task=audit", f"task.source={made[-1]}")
    assert (status, LINE.fullmatch(out)[1]) == (0, "passed")
    found = written(folder)
    assert (found["tokens"], found["texts"], found["edge_tokens"]) == (180, 3, 0)
    assert found["line"] + "\n" == out
    assert {"order_mlx_lm+llama_cpp", "no_xtc", "xtc_coin_of_2", "ratio_power_+0.1"} <= set(found["alternatives"])
    assert set(found["uniformity"]) == {"ids", "falling_p", "xtc", "q_over_p"}
    assert "audit: passed" in err
    assert "lag 1" in err


def test_a_plain_run_has_no_drafter_to_compare_with(record):
    found = audited(record(drafting={"name": "none"}))
    assert (found["verdict"], found["tokens"]) == ("passed", 32)
    assert "q_over_p" not in found["uniformity"]
    assert "q_share_0.1" not in found["alternatives"]


def test_greedy_drafts_are_point_masses(record):
    found = audited(record(drafting={"name": "model", "proposal": "greedy"}, max_tokens=200, num_samples=3))
    assert found["verdict"] == "passed"
    assert "q_share_0.3" in found["alternatives"]


def test_a_greedy_run_is_held_against_the_argmax(command):
    made = command("pair=cycle", "sampler.temperature.value=0", "max_tokens=12")[-1]
    assert audited(made)["greedy"]["differences"] == 0
    change(made, TOKENS, lambda row: row | {"id": (row["id"] + (row["position"] == 4)) % 6})
    status, out, err, folder = command("task=audit", f"task.source={made}")
    assert status == 1
    assert "log10_e=nan named=not_the_argmax" in out
    assert written(folder)["greedy"]["first_difference"]["position"] == 4
    assert "top-2 gap" in err


def test_a_lossy_run_fails(record):
    lossy = {"acceptance": {"name": "argmax_against_argmax"}, "allow_lossy": True, "max_tokens": 300}
    found = audited(record(TARGET, DRAFTER, **lossy))
    assert found["verdict"] == "failed"
    assert found["first_rejected_after"] < 150


def test_the_replayed_rows_are_those_the_run_had(record):
    """Without a random step p of the record is p of the replay, history and all."""
    prompts = {"name": "ids", "ids": [0, 1, 1, 0]}
    made = record(max_tokens=50, prompts=prompts, sampler={**PENALTIES, "min_p": {"p": 0.1}})
    case = source.opened(str(made), {})
    recorded = [json.loads(line)["p"] for line in (made / TOKENS).read_text().splitlines()]
    (part,) = scores(case, case.texts[0], {}, 0)
    np.testing.assert_allclose(part.p, recorded, rtol=1e-5)


def test_samples_and_selected_prompts_keep_their_places(record):
    prompts = {"name": "ids", "ids": [[0, 1], [0], [0, 1, 1]], "select": [0, 2]}
    case = source.opened(str(record(prompts=prompts, num_samples=2, max_tokens=9)), {})
    places = [(text.prompt, text.sample, text.ids, len(text.emitted)) for text in case.texts]
    assert places == [(0, 0, (0, 1), 9), (0, 1, (0, 1), 9), (2, 0, (0, 1, 1), 9), (2, 1, (0, 1, 1), 9)]


REFUSED = {
    "model": (
        lambda folder: change(folder, EVENTS, lambda e: _edited(e, "models", "target", "sha256", to="0" * 64)),
        r"target must be the model of the run, but sha256 is '[0-9a-f]{64}' in .* and was '0{64}'",
    ),
    "drafter": (
        lambda folder: change(folder, EVENTS, lambda e: _edited(e, "models", "drafter", "rows", to=[1, 1])),
        r"drafter must be the model of the run, but rows is \[.*\] in .* and was \[1, 1\]",
    ),
    "prompt": (
        lambda folder: change(folder, EVENTS, lambda e: _edited(e, "config", "prompts", "ids", to=[[0, 1]])),
        r"prompts must be those of the run, whose ids have the SHA-256 [0-9a-f]{64}, got",
    ),
    "plugin": (
        lambda folder: change(folder, EVENTS, lambda e: _edited(e, "plugins", to=["no.such"])),
        r"plugins must be those of the run, \['no\.such'\], got \[\]",
    ),
    "no tokens": (
        lambda folder: (folder / TOKENS).unlink(),
        r"task\.source must be a run that left its tokens\.jsonl \(diagnostics\.tokens\)",
    ),
    "a hole": (
        lambda folder: change(folder, TOKENS, lambda t: t | {"position": t["position"] + (t["position"] > 3)}),
        r"task\.source tokens\.jsonl line 3 must be at position 4, got 5",
    ),
    "broken line": (
        lambda folder: (folder / TOKENS).write_text('{"id": 1'),
        r"task\.source tokens\.jsonl line 1 must be JSON",
    ),
    "never started": (
        lambda folder: (folder / EVENTS).write_text('{"event": "model_note"}\n'),
        r"task\.source must be the folder of a run, but .*events\.jsonl has no run_started",
    ),
    "elsewhere": (shutil.rmtree, r"task\.source must be the folder of a run \(with its events\.jsonl\), or a file"),
}


def _edited(event, *path, to):
    if event["event"] == "run_started":
        place = event
        for key in path[:-1]:
            place = place[key]
        place[path[-1]] = to
    return event


@pytest.mark.parametrize("what", REFUSED)
def test_what_is_no_longer_true_is_refused_by_name(what, record, monkeypatch):
    edit, sentence = REFUSED[what]
    made = record()
    edit(made)
    monkeypatch.setattr(ToyModel, "forward", _forbidden)
    with pytest.raises(ValueError, match=sentence):
        audited(made)


def _forbidden(*_):
    raise AssertionError("a forward pass before the refusal")


# --- foreign files ----------------------------------------------------------------------------------------------------


def drawn(law, count, seed=0):
    return np.random.default_rng(seed).choice(4, p=law, size=count)


def test_a_foreign_file_is_held_against_the_composed_target(command, tmp_path):
    texts = foreign(tmp_path / "x.jsonl", entry(drawn(P, 400)), "", entry(drawn(P, 200, 1), prompt=[1, 2]))
    status, out, _, folder = command("task=audit", "pair=iid", texts)
    assert (status, LINE.fullmatch(out)[1]) == (0, "passed")
    assert (written(folder)["texts"], written(folder)["tokens"]) == (2, 600)
    assert "q_over_p" in written(folder)["uniformity"]
    assert "q_over_p" not in audited(tmp_path / "x.jsonl", drafting={"name": "none"})["uniformity"]


def test_a_foreign_text_of_another_law_fails(command, tmp_path):
    foreign(tmp_path / "x.jsonl", entry(drawn(P[::-1], 400)))
    found = audited(tmp_path / "x.jsonl")
    assert (found["verdict"], found["named"]) == ("failed", "q_share_0.3")
    assert found["first_rejected_after"] < 200
    texts = foreign(tmp_path / "y.jsonl", entry([3, 0], top_k={"k": 2}))
    status, out, err, folder = command("task=audit", "pair=iid", texts)
    assert (status, LINE.fullmatch(out)[1]) == (1, "failed")
    assert "prompt 0, sample 0, position 2: token 0 ('0') has probability 0 under the claimed chain" in err
    assert written(folder)["log10_e_value"] == "inf"


def test_alpha_is_the_limit(tmp_path):
    foreign(tmp_path / "x.jsonl", entry(drawn([0.2, 0.25, 0.25, 0.3], 250)))
    case = source.opened(str(tmp_path / "x.jsonl"), config(TARGET, DRAFTER))
    loose, strict = (Auditor(seed=0, alpha=alpha, orders={}).audit(case).numbers for alpha in (0.05, 1e-12))
    assert (loose["verdict"], strict["verdict"]) == ("failed", "passed")
    assert loose["log10_e_value"] == strict["log10_e_value"]


FORM = re.escape('{"prompt": [ids], "emitted": [ids], "sampler": {"order": [steps], ...}}')
MALFORMED = {
    "no JSON": ("{", rf"line 2 must be a JSON object {FORM}, got '{{'"),
    "a list": ("[1]", rf"line 2 must be a JSON object {FORM}, got '\[1\]'"),
    "no prompt": ({"emitted": [1], "sampler": {"order": []}}, r"line 2 prompt must be a list of ids, got None"),
    "empty prompt": (entry([1], prompt=[]), r"line 2 prompt must be a list of at least one id, got \[\]"),
    "words": ({**entry([1]), "emitted": ["a"]}, r"line 2 emitted must be a list of ids, integers from 0, got 'a'"),
    "negative": ({**entry([1]), "emitted": [-1]}, r"line 2 emitted must be a list of ids, integers from 0, got -1"),
    "true": ({**entry([1]), "emitted": [True]}, r"line 2 emitted must be a list of ids, integers from 0, got True"),
    "beyond V": (entry([4]), r"line 2 emitted must be ids in \[0, 4\) of target \(iid\), got 4"),
    "no sampler": ({"prompt": [0], "emitted": [1]}, r"line 2 sampler must be a mapping of steps"),
    "no order": ({"prompt": [0], "emitted": [1], "sampler": {}}, r"line 2 sampler\.order must be a list of steps"),
    "no such step": (entry([1], topk={"k": 2}), r"line 2 sampler\.topk is not a step; allowed: "),
    "out of range": (entry([1], top_p={"p": 2}), r"line 2 sampler\.top_p\.p must be in \(0, 1\], got 2"),
    "bias beyond V": (entry([1], bias={"ban": [7]}), r"line 2 sampler\.bias\.ban must be ids in \[0, 4\), got 7"),
}


@pytest.mark.parametrize("what", MALFORMED)
def test_a_malformed_line_is_refused_by_its_number(what, tmp_path, monkeypatch):
    wrong, sentence = MALFORMED[what]
    monkeypatch.setattr(ToyModel, "forward", _forbidden)
    foreign(tmp_path / "x.jsonl", entry([1]), wrong)
    with pytest.raises(ValueError, match=rf"^task\.source {sentence}"):
        audited(tmp_path / "x.jsonl")


def test_a_refusal_is_one_sentence(command, tmp_path):
    status, out, err, _ = command("task=audit", "pair=iid", foreign(tmp_path / "x.jsonl", entry([1]), entry([4])))
    assert (status, out) == (2, "")
    assert err == "specfw: task.source line 2 emitted must be ids in [0, 4) of target (iid), got 4\n"


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ([], r"task\.source must be given"),
        (
            ["task.source=nowhere"],
            r"task\.source must be the folder of a run .*, or a file of JSON lines, got 'nowhere'",
        ),
        (["task.source=x", "task.alpha=0"], r"task\.alpha must be in \(0, 1\), got 0\.0"),
        (["task.source=x", "+task.orders.mine=[top_q]"], r"task\.orders\.mine\.order must be made of: .*, got 'top_q'"),
    ],
)
def test_a_wrong_key_is_refused(words, sentence, command):
    status, _, err, _ = command("task=audit", "pair=iid", *words)
    assert status == 2
    assert re.search(sentence, err), err


def test_an_empty_file_is_refused(tmp_path):
    foreign(tmp_path / "x.jsonl", "", " ")
    with pytest.raises(ValueError, match="must be a file with at least one line"):
        audited(tmp_path / "x.jsonl")
    (tmp_path / "b.jsonl").write_bytes(b"\xff\xfe{")
    with pytest.raises(ValueError, match=r"task\.source must be a UTF-8 file"):
        audited(tmp_path / "b.jsonl")


def test_an_order_of_ones_own_is_an_alternative(command, tmp_path):
    steps = {"temperature": {"value": 2.0}, "top_p": {"p": 0.65}}
    root = np.sqrt([0, 0, 0.3, 0.4])
    texts = foreign(tmp_path / "x.jsonl", entry(drawn(root / root.sum(), 300), **steps))
    mine = "+task.orders.mine=[top_p,temperature]"
    only = [f"~task.orders.{name}" for name in ("mlx_lm", "llama_cpp")]
    found = written(command("task=audit", "pair=iid", texts, mine, *only)[-1])
    assert (found["verdict"], found["named"]) == ("failed", "order_mine")


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"id": 4}, "line 3 id must be an integer in [0, 4), got 4"),
        ({"id": -1}, "line 3 id must be an integer in [0, 4), got -1"),
        ({"id": 1.7}, "line 3 id must be an integer in [0, 4), got 1.7"),
        ({"id": "x"}, "line 3 id must be an integer in [0, 4), got 'x'"),
        ({"id": None}, "line 3 id must be an integer in [0, 4), got None"),
        ({"prompt": [0]}, "line 3 prompt must be an integer in [0, 1), got [0]"),
        ({"sample": True}, "line 3 sample must be an integer"),
        ({"position": 99}, "line 3 must be at position 4, got 99"),
    ],
)
def test_a_record_that_was_changed_is_refused_by_its_line(change, said, record, command):
    folder = record(TARGET, DRAFTER)
    lines = (folder / TOKENS).read_text().splitlines()
    lines[2] = json.dumps(json.loads(lines[2]) | change)
    (folder / TOKENS).write_text("\n".join(lines) + "\n")
    status, out, err, _ = command("task=audit", f"task.source={folder}")
    assert (status, out) == (2, "")
    assert f"task.source tokens.jsonl {said}" in err


def test_a_record_that_lost_tokens_or_its_beginning_is_refused(record, command):
    folder = record(TARGET, DRAFTER)
    whole = (folder / TOKENS).read_text()
    (folder / TOKENS).write_text("\n".join(whole.splitlines()[:20]) + "\n")
    status, _, err, _ = command("task=audit", f"task.source={folder}")
    assert status == 2
    assert "tokens.jsonl must be the 32 tokens that the run emitted, got 20" in err
    (folder / TOKENS).write_bytes(b"\xff\xfe")
    status, _, err, _ = command("task=audit", f"task.source={folder}")
    assert status == 2
    assert "task.source tokens.jsonl must be UTF-8" in err
    (folder / EVENTS).write_text('{"event": "run_started"}\n')
    status, _, err, _ = command("task=audit", f"task.source={folder}")
    assert status == 2
    assert "task.source must be a whole record" in err
