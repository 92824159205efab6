"""Which rule runs, and what decided it: the configuration, the environment, an argument, or what the parts can do."""

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any, NamedTuple

from specfw.acceptance._plain import Plain
from specfw.acceptance.base import AcceptanceRule, Needs
from specfw.acceptance.greedy_argmax import GreedyArgmax
from specfw.acceptance.sampler_match import SamplerMatch
from specfw.acceptance.sampler_match_no_proposal_distribution import SamplerMatchNoProposalDistribution
from specfw.acceptance.stochastic import Stochastic
from specfw.registry import build, name_of

VARIABLE = "SPECFW_STOCHASTIC_ACCEPT"
ON, OFF = ("1", "true", "yes", "on"), ("0", "false", "no", "off")
AUTO = "auto"


class Choice(NamedTuple):
    """What was asked for: a rule, and whether configuration, auto, environment or argument said so."""

    rule: AcceptanceRule
    decided_by: str

    def node(self) -> dict[str, Any]:
        """The rule as a node of the configuration of record; an unregistered one is named by its id."""
        name = name_of(type(self.rule), "acceptance") or self.rule.id
        return {"name": name, **asdict(self.rule)}  # type: ignore[call-overload]


class Circumstances(NamedTuple):
    """What the other parts of a run can do.

    Attributes:
        greedy_target: the target's chain is greedy.
        proposes: anything is drafted at all.
        reports_distribution: the drafter hands over the rows its tokens came from.
        shares_noise: the drafter can draw on the target's noise.
        allow_lossy: rules that change the distribution are allowed.
    """

    greedy_target: bool
    proposes: bool
    reports_distribution: bool
    shares_noise: bool
    allow_lossy: bool


def choose(
    node: Mapping[str, Any],
    environment: Mapping[str, str],
    argument: AcceptanceRule | Mapping[str, Any] | str | None = None,
) -> Choice:
    """The rule asked for: an argument, else the kill switch, else the configuration, `auto` resolved.

    Args:
        node: `acceptance` of the configuration.
        environment: of the process; SPECFW_STOCHASTIC_ACCEPT is read.
        argument: of a Python caller: a rule, a node, or a name.

    Raises:
        ValueError: unknown rule, or the variable holds none of its values.
    """
    if argument is not None:
        if isinstance(argument, AcceptanceRule):
            return Choice(argument, "argument")
        given = {"name": argument} if isinstance(argument, str) else argument
        if given["name"] != AUTO:
            return Choice(build("acceptance", given), "argument")
        node = given
    switch = _switch(environment)
    if switch is False:
        return Choice(SamplerMatch(), "environment")
    if node["name"] != AUTO:
        return Choice(build("acceptance", node), "configuration")
    if switch:
        return Choice(Stochastic(strict=bool(node.get("strict", False))), "environment")
    return Choice(SamplerMatch(), "auto")


def resolve(choice: Choice, given: Circumstances) -> Choice:
    """The rule that really runs.

    Raises:
        ValueError: the rule cannot run with these parts, and no other may stand in for it.
    """
    rule, decided_by = choice
    if not given.proposes:
        return Choice(Plain(), "no_drafter")
    if given.greedy_target:
        already = isinstance(rule, GreedyArgmax)
        return Choice(GreedyArgmax(), decided_by if already else "greedy_target")
    if rule.domain == "greedy_target":
        raise ValueError(
            f"acceptance={_name(rule)} needs a greedy target (sampler.temperature.value=0 or sampler.top_k.k=1), "
            "and this one samples"
        )
    if isinstance(rule, SamplerMatchNoProposalDistribution) and given.reports_distribution:
        raise ValueError(
            f"acceptance={_name(rule)} says that the drafter reports no proposal distribution, and this one does: "
            "write acceptance=sampler_match"
        )
    if rule.needs is not Needs.NOTHING and not given.reports_distribution:
        return _without_distribution(rule)
    if rule.needs is Needs.SHARED_NOISE and not given.shares_noise:
        raise ValueError(f"acceptance={_name(rule)} needs a drafter on the target's noise, and this one draws alone")
    if not rule.preserves_target and not given.allow_lossy:
        raise ValueError(
            f"acceptance={_name(rule)} changes the distribution of the text: allow_lossy must be true, got False"
        )
    return choice


def _switch(environment: Mapping[str, str]) -> bool | None:
    value = environment.get(VARIABLE)
    if value is None:
        return None
    word = value.strip().lower()
    if word not in ON + OFF:
        raise ValueError(f"{VARIABLE} must be one of: {', '.join(ON + OFF)}; got {value!r}")
    return word in ON


def _without_distribution(rule: AcceptanceRule) -> Choice:
    if isinstance(rule, Stochastic) and not rule.strict:
        return Choice(SamplerMatchNoProposalDistribution(), "no_proposal_distribution")
    strictly = " (acceptance.strict=true)" if isinstance(rule, Stochastic) else ""
    raise ValueError(
        f"acceptance={_name(rule)}{strictly} needs the drafter's proposal distribution, and this drafter reports none"
    )


def _name(rule: AcceptanceRule) -> str:
    return rule.id.replace("-", "_")
