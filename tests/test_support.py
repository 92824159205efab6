"""How many ids a chain leaves, and how flat its rows are, against rows that are known."""

import math

from specfw.diagnostics.support import Support
from specfw.experiment import run

import pytest
from kit import config

P, Q = [0.1, 0.2, 0.3, 0.4], [0.4, 0.3, 0.2, 0.1]


def found(*, p=P, q=Q, **changes):
    models = ({"name": "iid", "probs": row} for row in (p, q))
    summary = run(config(*models, diagnostics={"support": {"enabled": True}}, **changes), quiet=True)
    return summary.numbers["diagnostics"]["support"]


def entropy(*row):
    return -sum(share / sum(row) * math.log(share / sum(row)) for share in row)


@pytest.mark.parametrize(
    ("steps", "target", "drafter"),
    [
        ({}, P, Q),
        ({"top_k": {"k": 2}}, [0.3, 0.4], [0.4, 0.3]),
        ({"top_p": {"p": 0.65}}, [0.3, 0.4], [0.4, 0.3]),
        ({"min_p": {"p": 0.5}}, [0.2, 0.3, 0.4], [0.4, 0.3, 0.2]),
    ],
)
def test_ids_and_entropy_are_those_of_the_rows(steps, target, drafter):
    assert found(sampler=steps) == pytest.approx(
        {
            "target_ids": len(target),
            "target_entropy": entropy(*target),
            "drafter_ids": len(drafter),
            "drafter_entropy": entropy(*drafter),
        },
        abs=1e-6,
    )


def test_a_truncated_row_of_many_ids_counts_the_same():
    """Where top_k leaves an eighth or less, rows are lists of survivors and not of all ids."""
    many = [1 / 64] * 64
    counted = found(p=many, q=many, sampler={"top_k": {"k": 3}})
    assert counted == pytest.approx(
        {
            f"{role}_{name}": value
            for role in ("target", "drafter")
            for name, value in (("ids", 3), ("entropy", math.log(3)))
        },
        abs=1e-6,
    )


def test_plain_decoding_has_no_drafter_to_tell_of():
    counted = found(k=0)
    assert counted["target_ids"] == 4
    assert math.isnan(counted["drafter_ids"])


def test_only_emitted_tokens_count():
    """After id 0 the row is a point, and a sequence that ends at once never shows the other row."""
    rows = {"name": "position", "rows": [[0.5, 0.5], [1.0, 0.0]]}
    whole = config(
        rows, rows, diagnostics={"support": {"enabled": True}}, max_tokens=1, prompts={"name": "ids", "ids": [[0]]}
    )
    assert run(whole, quiet=True).numbers["diagnostics"]["support"]["target_ids"] in (1, 2)
    two = run({**whole, "max_tokens": 2}, quiet=True).numbers["diagnostics"]["support"]["target_ids"]
    assert two == 1.5


def test_it_is_off_by_default():
    assert not Support().enabled
