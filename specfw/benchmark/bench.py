"""A benchmark from a plain configuration: everything is refused that cannot be compared, then the repeats run."""

import sys
import time
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Any

from specfw.benchmark.arms import Clock
from specfw.benchmark.line_up import LineUp, Parts, Wanted, check, line_up
from specfw.benchmark.measuring import Course, measure
from specfw.benchmark.own import Own
from specfw.benchmark.report import Ran, Report, report
from specfw.drafting.controllers.base import Controller
from specfw.experiment import costed, read
from specfw.models.memory import wired
from specfw.parts import Models, Plan, load, plan
from specfw.prompts.base import Encoded
from specfw.shelf import Shelf


def stderr(words: str) -> None:
    """Say how far it is."""
    sys.stderr.write(f"benchmark: {words}\n")
    sys.stderr.flush()


def benchmark(
    config: Mapping[str, Any],
    wanted: Wanted,
    *,
    repeats: int,
    acceptance: str | None = None,
    shelf: Shelf | None = None,
    clock: Clock = time.perf_counter,
    say: Callable[[str], None] = stderr,
) -> Report:
    """Run it.

    Args:
        config: plain, resolved.
        wanted: the arms.
        repeats: that count.
        acceptance: a Python caller's explicit rule.
        shelf: see `parts.load`.
        clock: seconds.
        say: told what was left out, and how far it is.

    Raises:
        ValueError: it cannot be honoured; one sentence.
        KeyboardInterrupt: before a single repeat was complete.
    """
    planned = plan(config, acceptance)
    check(wanted, config, planned)
    models = load(planned, shelf)
    chosen = line_up(wanted, Parts(config, planned, models))
    prompts = planned.prompts.encode(models.target)
    read(models, prompts, config)
    for kind, why in chosen.left_out.items():
        say(f"{kind} left out: {why}")
    say(f"{len(chosen.arms)} arms: {', '.join(arm.name for arm in chosen.arms)}")
    with wired():
        chosen = _knowing(chosen, planned, models, prompts, say)
        measured = measure(Course(chosen.arms, prompts, models, config["seed"], repeats, clock, say))
    names = {role: model.name for role, model in models.present().items()}
    lengths = tuple(len(one.ids) for one in prompts)
    ran = Ran(names, lengths, tuple(planned.chain.describe()))
    return report(chosen, measured, ran, speedup=wanted.speedup)


def _knowing(
    chosen: LineUp, planned: Plan, models: Models, prompts: Sequence[Encoded], say: Callable[[str], None]
) -> LineUp:
    """The arms, their controllers knowing what passes cost; arms with the same controller know the same."""

    @cache
    def learn(controller: Controller) -> Controller:
        tell = lambda costs: say(f"controller knows: {costs}")  # noqa: E731
        return costed(planned._replace(controller=controller), models, prompts, tell).controller

    return chosen._replace(arms=tuple(arm.knowing(learn) if isinstance(arm, Own) else arm for arm in chosen.arms))
