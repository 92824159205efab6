"""What every acceptance rule must hold, as one function: for our own rules and for those of a user's package.

from specfw.verification.contract import check_rule

def test_my_rule():
check_rule(MyRule())
"""

import dataclasses

from specfw.acceptance.base import AcceptanceRule, Needs
from specfw.distribution import Dense
from specfw.verification.exact import Pair, declared, enumerate_rule, float64, joint, total_variation
from specfw.verification.pairs import pairs

import mlx.core as mx
import numpy as np

EXACT = 1e-9
PAIRS = 200


def check_rule(rule: AcceptanceRule, count: int = PAIRS) -> None:
    """Hold `rule` to the contract on `count` enumerated pairs of its declared domain.

    Raises:
        AssertionError: what does not hold, with the number of the pair.
    """
    check_declarations(rule)
    for number, pair in enumerate(pairs(count, greedy_target=rule.domain == "greedy_target")):
        try:
            check_on(rule, pair)
        except AssertionError as error:
            raise AssertionError(f"{rule.id}, pair {number}: {error}") from error


def check_declarations(rule: AcceptanceRule) -> None:
    """A frozen dataclass with an id in kebab case, words for the summary line, and a domain."""
    assert dataclasses.is_dataclass(rule), f"{type(rule).__name__} must be a dataclass"
    assert type(rule).__dataclass_params__.frozen, f"{type(rule).__name__} must be frozen"
    assert rule.id == rule.id.lower().replace("_", "-").replace(" ", "-"), f"{rule.id!r} must be in kebab case"
    assert rule.label, f"{rule.id} must have a label"
    assert rule.domain in ("any", "greedy_target"), f"{rule.id}: domain is {rule.domain!r}"
    assert isinstance(rule.needs, Needs), f"{rule.id}: needs is {rule.needs!r}"
    assert isinstance(rule.stops_at_rejection, bool)
    assert isinstance(rule.preserves_target, bool)


def check_on(rule: AcceptanceRule, pair: Pair) -> None:
    """On one pair: survival is a survival function, the joint law is the declared one, the closed form is right."""
    found = enumerate_rule(rule, pair)
    assert ((found.survival >= 0) & (found.survival <= 1 + EXACT)).all(), "survival leaves [0, 1]"
    assert (np.diff(found.survival, axis=1) <= EXACT).all(), "survival increases"
    if rule.deterministic:
        assert np.isin(found.survival, (0, 1)).all(), "a deterministic rule's survival must be 0 or 1"
    if rule.preserves_target or declares_surrogate(rule, pair):
        distance = total_variation(found.emitted, joint(declared(rule, pair)))
        assert distance < EXACT, f"emitted tokens are {distance:.3g} in total variation from the declared law"
    first = float(found.blocks @ found.survival[:, 0])
    closed = first_acceptance(rule, pair)
    assert abs(first - closed) < EXACT, f"first acceptance is {first:.12g}, its closed form says {closed:.12g}"
    for kept in {pair.vocab_size, most_possible(pair)}:
        survivors = enumerate_rule(rule, pair, survivors=kept)
        distance = total_variation(survivors.emitted, found.emitted)
        assert distance < EXACT, f"rows of {kept} survivors give another law, {distance:.3g} away"


def most_possible(pair: Pair) -> int:
    """The most ids that any row makes possible: rows of so many survivors list different ids."""
    return max(int(np.count_nonzero(row, axis=-1).max()) for rows in pair for row in rows)


def declares_surrogate(rule: AcceptanceRule, pair: Pair) -> bool:
    """Whether a lossy rule says what it follows instead."""
    try:
        declared(rule, pair)
    except ValueError:
        return False
    return True


def first_acceptance(rule: AcceptanceRule, pair: Pair) -> float:
    """The closed form at the first draft token."""
    with mx.stream(mx.cpu):
        p, q = (Dense(float64(rows[0][None])) for rows in pair)
        return float(np.array(rule.expected_acceptance(p, q))[0])
