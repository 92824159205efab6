"""How far from the target a lossy rule goes: recorded exactly where the rule declares what it follows."""

import json
from dataclasses import dataclass
from itertools import groupby

from specfw import registry
from specfw.acceptance.stochastic import Stochastic
from specfw.experiment import run
from specfw.study.figures import distortion
from specfw.study.gathering import gather

import mlx.core as mx
import pytest
from kit import config
from study_records import recorded

PAIR = {"name": "iid", "probs": [0.1, 0.2, 0.3, 0.4]}, {"name": "iid", "probs": [0.4, 0.3, 0.2, 0.1]}
CONTROL = {"acceptance": {"name": "argmax_against_argmax"}, "allow_lossy": True}


@dataclass(frozen=True, kw_only=True)
class Undeclared(Stochastic):
    """Accepts everything and says nothing of what it follows."""

    id = "undeclared"
    preserves_target = False

    def survival(self, block):
        return mx.ones_like(super().survival(block))


def forms(**changes):
    return run(config(*PAIR, **changes), quiet=True).numbers["diagnostics"]["closed_forms"]


@pytest.mark.parametrize("temperature", [0.5, 1.0, 2.0])
def test_the_control_is_as_far_as_its_surrogate(temperature):
    found = forms(sampler={"temperature": {"value": temperature}}, **CONTROL)
    weights = [p ** (1 / temperature) for p in PAIR[0]["probs"]]
    expected = 1 - max(weights) / sum(weights)
    assert found["distortion"] == pytest.approx(expected, abs=1e-6)
    assert found["first_position"]["distortion"] == pytest.approx(expected, abs=1e-6)
    assert found["distortion_lower_bound"] <= expected


def test_lossless_rules_and_undeclared_laws_have_none(monkeypatch):
    assert str(forms(acceptance={"name": "stochastic"})["distortion"]) == "nan"
    monkeypatch.setitem(registry._components["acceptance"], "undeclared", Undeclared)
    found = forms(acceptance={"name": "undeclared"}, allow_lossy=True)
    assert str(found["first_position"]["distortion"]) == "nan"
    assert found["distortion_lower_bound"] == pytest.approx(0.4, abs=1e-6)


def test_a_record_and_its_report_have_the_mean_over_first_draft_tokens(tmp_path):
    words = ["pair=markov", "acceptance=argmax_against_argmax", "allow_lossy=true", "max_tokens=64"]
    folder = recorded(tmp_path / "run", *words)
    tokens = [json.loads(line) for line in (folder / "tokens.jsonl").read_text().splitlines()]
    firsts = [next(group) for _, group in groupby(tokens, key=lambda token: token["round"])]
    drafted = [first for first in firsts if first["origin"] != "plain"]
    expected = sum(1 - first["p"] for first in drafted) / len(drafted)
    study = gather([str(folder)])
    assert study.runs[0].row.distortion == pytest.approx(expected, abs=1e-6)
    (row,) = distortion.draw(study).rows
    assert row[4:] == (f"{expected:.4f}", "recorded")
