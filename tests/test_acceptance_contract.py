"""Contract tests over the registry: a rule is tested because it exists. And the contract is seen to bite."""

from dataclasses import dataclass

from specfw import registry
from specfw.acceptance.sampler_match import SamplerMatch
from specfw.acceptance.stochastic import Stochastic
from specfw.verification.contract import check_rule

import mlx.core as mx
import pytest
from test_losslessness import ResampleFromTarget

RULES = registry.names("acceptance")


@pytest.mark.parametrize("name", RULES)
def test_every_rule_holds_the_contract(name):
    rule = registry.component("acceptance", name)()
    check_rule(rule)
    assert rule.id == name.replace("_", "-")


def altered(base, **methods):
    return dataclass(frozen=True, kw_only=True)(type("Altered", (base,), methods))()


WRONG = {
    "another law": ResampleFromTarget(),
    "closed form": altered(Stochastic, expected_acceptance=lambda _, p, q: p.product(q)),
    "id": altered(SamplerMatch, id="Sampler_Match"),
    "label": altered(SamplerMatch, label=""),
}


@pytest.mark.parametrize("name", sorted(WRONG))
def test_what_does_not_hold_is_found(name):
    with pytest.raises(AssertionError):
        check_rule(WRONG[name], count=20)


def test_a_survival_that_increases_is_found():
    def rising(self, block):
        return mx.broadcast_to(mx.arange(1, block.tokens.shape[1] + 1) / 10.0, block.tokens.shape)

    with pytest.raises(AssertionError, match="survival increases"):
        check_rule(altered(Stochastic, survival=rising), count=20)
