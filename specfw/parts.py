"""The parts of a run from plain configuration: everything is built and checked before any model is loaded."""

import os
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from specfw.acceptance.base import AcceptanceRule
from specfw.decoder import Decoder
from specfw.diagnostics.base import Diagnostic, Observer, Setting
from specfw.diagnostics.throughput import Throughput
from specfw.drafting.base import Drafting
from specfw.drafting.controllers.base import Controller
from specfw.models.base import LanguageModel, ModelSpec
from specfw.prompts.base import Prompts
from specfw.registry import build, component, construct
from specfw.resolution import Choice, Circumstances, choose, resolve
from specfw.sampling.chain import SamplerChain
from specfw.shelf import Shelf


class Plan(NamedTuple):
    """Every component of a run; nothing heavy has happened yet.

    Attributes:
        target: what to load as the target.
        drafter: what to load as the drafter, None when nothing drafts with a model.
        drafting: how drafts are made.
        chain: the target's sampler chain.
        draft_chain: the drafter's.
        controller: of the draft length.
        diagnostics: the enabled ones, by name.
        prompts: where the prompts come from.
        asked: the rule asked for, `auto` and the environment resolved.
        active: the rule that runs.
    """

    target: ModelSpec
    drafter: ModelSpec | None
    drafting: Drafting
    chain: SamplerChain
    draft_chain: SamplerChain
    controller: Controller
    diagnostics: dict[str, Diagnostic]
    prompts: Prompts
    asked: Choice
    active: Choice

    @property
    def split(self) -> bool:
        """Whether the phases of a round are timed apart."""
        return any(isinstance(one, Throughput) and one.split for one in self.diagnostics.values())

    @property
    def point_mass(self) -> bool:
        """Whether every proposal row is a point mass."""
        return self.drafting.point_mass(self.draft_chain)

    @property
    def setting(self) -> Setting:
        """What a diagnostic may know of the run."""
        return Setting(rule=self.active.rule, point_mass=self.point_mass)


class Models(NamedTuple):
    """The pair: two models of one vocabulary size."""

    target: LanguageModel
    drafter: LanguageModel | None

    def present(self) -> dict[str, LanguageModel]:
        """Those there are, by role."""
        return {role: model for role, model in self._asdict().items() if model is not None}


def plan(config: Mapping[str, Any], argument: AcceptanceRule | Mapping[str, Any] | str | None = None) -> Plan:
    """Build every component of `config`.

    Args:
        config: plain, resolved.
        argument: a Python caller's explicit acceptance rule.

    Raises:
        ValueError: the first thing that cannot be honoured, with its full key.
    """
    drafting: Drafting = build("drafting", config["drafting"], "drafting")
    chain = SamplerChain.from_config(config["sampler"], "sampler")
    target: ModelSpec = build("model", config["target"], "target")
    drafter: ModelSpec | None = build("model", config["drafter"], "drafter") if drafting.uses_model else None
    asked = choose(config["acceptance"], os.environ, argument)
    given = Circumstances(
        greedy_target=chain.is_greedy,
        proposes=drafting.proposes,
        reports_distribution=drafting.reports_distribution(),
        shares_noise=drafting.shares_noise,
        allow_lossy=bool(config["allow_lossy"]),
    )
    planned = Plan(
        target=target,
        drafter=drafter,
        drafting=drafting,
        chain=chain,
        draft_chain=SamplerChain.from_config(config["draft_sampler"], "draft_sampler"),
        controller=build("controller", config["controller"], "controller"),
        diagnostics=_diagnostics(config["diagnostics"]),
        prompts=build("prompts", config["prompts"], "prompts"),
        asked=asked,
        active=resolve(asked, given),
    )
    planned.prompts.chosen()
    target.check("target")
    if drafter is not None:
        drafter.check("drafter")
    return planned


def load(planned: Plan, shelf: Shelf | None = None) -> Models:
    """Open the pair, its large weights unread, and see that both mean the same by their ids.

    Args:
        planned: what to open.
        shelf: has what the job before this one used, and then what this one uses; None keeps nothing.

    Raises:
        ValueError: a model cannot be read or cannot rewind, or the drafter is foreign to the target.
    """
    specs = {"target": planned.target} | ({} if planned.drafter is None else {"drafter": planned.drafter})
    pair = (Shelf() if shelf is None else shelf).pair(specs, planned.drafting)
    planned.chain.check(pair.target.vocab_size)
    if pair.drafter is not None:
        planned.draft_chain.check(pair.target.vocab_size)
    return Models(*pair)


def decoder(config: Mapping[str, Any], planned: Plan, models: Models, observers: Sequence[Observer] = ()) -> Decoder:
    """The parts of a run, put together."""
    return Decoder(
        target=models.target,
        drafter=models.drafter,
        chain=planned.chain,
        draft_chain=planned.draft_chain,
        drafting=planned.drafting,
        rule=planned.active.rule,
        controller=planned.controller,
        seed=config["seed"],
        max_tokens=config["max_tokens"],
        eos_ids=frozenset() if config["ignore_eos"] else models.target.eos_ids,
        prefill_chunk=config["prefill_chunk"],
        observers=observers,
        split=planned.split,
    )


def _diagnostics(node: Mapping[str, Any]) -> dict[str, Diagnostic]:
    built = {
        name: construct(component("diagnostic", name, "diagnostics"), values, f"diagnostics.{name}")
        for name, values in node.items()
    }
    return {name: diagnostic for name, diagnostic in built.items() if diagnostic.enabled}
