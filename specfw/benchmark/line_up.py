"""Which arms a benchmark has: what was asked, what this pair allows, and what would be compared with itself."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from specfw.acceptance._plain import Plain
from specfw.acceptance.sampler_match import SamplerMatch
from specfw.acceptance.sampler_match_no_proposal_distribution import SamplerMatchNoProposalDistribution
from specfw.benchmark import mlx_lm_sampler
from specfw.benchmark.arms import Arm
from specfw.benchmark.own import Own, described
from specfw.drafting.controllers.base import Controller
from specfw.drafting.controllers.constant import Constant
from specfw.parts import Models, Plan, decoder, plan
from specfw.registry import build, require

PLAIN, MLX_LM_PLAIN, MLX_LM_SPECULATIVE, RULES = KINDS = ("plain", "mlx_lm_plain", "mlx_lm_speculative", "rules")
AUTO = "auto"
NO_SPEEDUP = "a speedup needs the plain arm of the same run"


class Wanted(NamedTuple):
    """What a benchmark is asked for.

    Attributes:
        arms: kinds of arms, None for those that exist.
        rules: names of acceptance rules.
        num_draft_tokens: K of every arm that drafts with a constant one.
        controllers: names of controllers that change K, each an arm of every rule.
        diagnostics_cost: time the configured rule with and without the configured diagnostics.
        speedup: whether ratios to plain decoding are wanted; None: where it is among the arms.
    """

    arms: tuple[str, ...] | None
    rules: tuple[str, ...]
    num_draft_tokens: tuple[int, ...]
    diagnostics_cost: bool
    speedup: bool | None
    controllers: tuple[str, ...] = ()


class LineUp(NamedTuple):
    """The arms, in order.

    Attributes:
        arms: every one runs in every repeat.
        left_out: why, by kind.
        diagnosed: names of the arm with diagnostics and of the same without; None when their cost is not asked for.
    """

    arms: tuple[Arm, ...]
    left_out: dict[str, str]
    diagnosed: tuple[str, str] | None


class Parts(NamedTuple):
    """A configuration and what was built of it."""

    config: Mapping[str, Any]
    planned: Plan
    models: Models


def check(wanted: Wanted, config: Mapping[str, Any], planned: Plan) -> None:
    """Refuse what cannot be compared, before a model is opened.

    Raises:
        ValueError: names the key, what is allowed and what was given.
    """
    if wanted.speedup and wanted.arms is not None and PLAIN not in wanted.arms:
        raise ValueError(NO_SPEEDUP)
    require("num_samples", config["num_samples"] == 1, "1 for a benchmark, which repeats", config["num_samples"])
    require("batch_size", config["batch_size"] in (None, 1), "null or 1 for a benchmark", config["batch_size"])
    require("stop", not config["stop"], "[] for a benchmark, which handles no text", config["stop"])
    configured = config["controller"]["name"]
    known = configured in ("constant", *wanted.controllers)
    require("controller", known, "constant, or one of task.controllers", configured)
    own = (planned.controller.longest,) if wanted.diagnostics_cost else ()
    least = 2 * (max(*(one.longest for one in _controllers(wanted, config)), *own, 0) + 1)
    why = "so that two rounds fit"
    require("max_tokens", config["max_tokens"] >= least, f"at least {least}, {why}", config["max_tokens"])
    if wanted.diagnostics_cost and not planned.diagnostics:
        raise ValueError(
            "task.diagnostics_cost must be false where no diagnostic is on: both of its arms would be the same"
        )
    if wanted.diagnostics_cost and planned.drafting.proposes:
        drafted = planned.controller.longest
        require("controller.num_draft_tokens", drafted >= 1, "at least 1 for task.diagnostics_cost", drafted)
    drafts = planned.drafting.proposes and RULES in (wanted.arms or KINDS)
    require("task.controllers", drafts or not wanted.controllers, "[] where no rule drafts", list(wanted.controllers))
    if wanted.arms is not None and not planned.drafting.proposes:
        for kind in (MLX_LM_SPECULATIVE, RULES):
            require("task.arms", kind not in wanted.arms, f"without {kind} where nothing drafts", list(wanted.arms))
    if drafts:
        _different(wanted.rules, _rules(wanted, config))


def line_up(wanted: Wanted, parts: Parts) -> LineUp:
    """The arms of a benchmark; `check` has passed.

    Raises:
        ValueError: an arm was named that this pair does not have, or mlx-lm cannot draw as the chain does.
    """
    left_out = dict(_missing(parts))
    named = [kind for kind in KINDS if kind in wanted.arms] if wanted.arms is not None else None
    for kind in named or ():
        if kind in left_out:
            raise ValueError(f"task.arms must be without {kind}: {left_out[kind]}")
    kinds = named if named is not None else [kind for kind in KINDS if kind not in left_out]
    arms = [arm for kind in kinds for arm in _arms(kind, wanted, parts)]
    diagnosed = None
    if wanted.diagnostics_cost:
        base = _own(parts, parts.planned)
        arms += [] if base.name in {arm.name for arm in arms} else [base]
        arms.append(_own(parts, parts.planned, diagnosed=True))
        diagnosed = arms[-1].name, base.name
    return LineUp(tuple(arms), left_out if named is None else {}, diagnosed)


def _missing(parts: Parts) -> Iterator[tuple[str, str]]:
    """Kinds of arms that this pair does not have, and why."""
    unknown = {
        role: f"mlx-lm cannot run {model.name}, a toy or a vocabulary of another size"
        for role, model in parts.models.present().items()
        if model.module is None
    }
    if "target" in unknown:
        yield MLX_LM_PLAIN, unknown["target"]
    if not parts.planned.drafting.proposes:
        yield from ((kind, "nothing drafts") for kind in (MLX_LM_SPECULATIVE, RULES))
    elif unknown:
        yield MLX_LM_SPECULATIVE, next(iter(unknown.values()))


def _arms(kind: str, wanted: Wanted, parts: Parts) -> Iterator[Arm]:
    match kind:
        case "plain":
            yield _own(parts, plan({**parts.config, "drafting": {"name": "none"}}))
        case "rules":
            for planned in _rules(wanted, parts.config):
                for controller in _controllers(wanted, parts.config):
                    yield _own(parts, planned._replace(controller=controller))
        case _:
            yield from _of_mlx_lm(kind, wanted, parts)


def _of_mlx_lm(kind: str, wanted: Wanted, parts: Parts) -> Iterator[Arm]:
    from specfw.benchmark.mlx_lm_arms import MlxLmPlain, MlxLmSpeculative

    config, planned, models = parts
    for role in ("target",) if kind == MLX_LM_PLAIN else models.present():
        bits = config[role].get("kv_bits")
        require(f"{role}.kv_bits", bits is None, "null for the arms of mlx-lm, which quantises other tokens", bits)
    common: dict[str, Any] = {
        "engine": "mlx-lm",
        "model": models.target.module,
        "sampler": mlx_lm_sampler.settings(planned.chain),
        "max_tokens": config["max_tokens"],
        "eos_ids": frozenset() if config["ignore_eos"] else models.target.eos_ids,
        "prefill_chunk": config["prefill_chunk"],
    }
    if kind == MLX_LM_PLAIN:
        yield MlxLmPlain(name=kind, rule="plain", num_draft_tokens=0, **common)
        return
    _require_same_draws(planned)
    rule = "greedy-argmax" if planned.chain.is_greedy else "sampler-match"
    assert models.drafter is not None
    for count in wanted.num_draft_tokens:
        options: dict[str, Any] = {"name": f"{kind} K={count}", "rule": rule, "num_draft_tokens": count}
        yield MlxLmSpeculative(drafter=models.drafter.module, **options, **common)


def _require_same_draws(planned: Plan) -> None:
    """mlx-lm has one sampler for both models, and drafts by drawing from it."""
    same = planned.draft_chain.digest == planned.chain.digest
    without = "for mlx_lm_speculative (task.arms=[plain,mlx_lm_plain,rules] leaves it out)"
    require("draft_sampler", same, f"the target's {without}", planned.draft_chain.describe())
    greedy = planned.point_mass and not planned.chain.is_greedy
    require("drafting.proposal", not greedy, f"sampled {without}", "greedy")


def _own(parts: Parts, planned: Plan, *, diagnosed: bool = False) -> Own:
    drafted = planned.controller.longest if planned.drafting.proposes else 0
    rule, config = planned.active.rule, parts.config
    changing = described(planned.controller) if planned.drafting.proposes else None
    length = changing["name"] if changing else f"K={drafted}"
    name = PLAIN if isinstance(rule, Plain) else f"{rule.id} {length}"
    models = parts.models if planned.drafting.proposes else Models(parts.models.target, None)
    return Own(
        name=f"{name} with diagnostics" if diagnosed else name,
        engine="specfw",
        rule=rule.id,
        num_draft_tokens=drafted,
        stops_at_rejection=rule.stops_at_rejection,
        controller=changing,
        decoder=decoder(config, planned._replace(diagnostics=planned.diagnostics if diagnosed else {}), models),
        setting=planned.setting._replace(drafter=models.drafter),
        diagnostics=planned.diagnostics if diagnosed else {},
    )


def _rules(wanted: Wanted, config: Mapping[str, Any]) -> list[Plan]:
    """A plan for each named rule, with the fields of the configured one where it is the same."""
    configured = config["acceptance"]
    nodes = [configured if name == configured["name"] else {"name": name} for name in wanted.rules]
    return [plan({**config, "acceptance": node}) for node in nodes]


def _controllers(wanted: Wanted, config: Mapping[str, Any]) -> list[Controller]:
    """Every constant K, then each named controller, with the fields of the configured one where it is the same."""
    configured = config["controller"]
    nodes = [configured if name == configured["name"] else {"name": name} for name in wanted.controllers]
    constant = [Constant(num_draft_tokens=count) for count in wanted.num_draft_tokens]
    return [*constant, *(build("controller", node, "controller") for node in nodes)]


def _different(names: Sequence[str], plans: Sequence[Plan]) -> None:
    """Refuse rules that come to one path here."""
    seen: dict[str, str] = {}
    for name, planned in zip(names, plans, strict=True):
        rule = planned.active.rule
        path = SamplerMatch.id if isinstance(rule, SamplerMatchNoProposalDistribution) else rule.id
        if path in seen:
            both = f"{seen[path]} and {name}"
            raise ValueError(f"task.rules must name paths that differ, but here {both} both run {rule.id}")
        seen[path] = name
