"""The repeats: every arm in every one of them, in rotating order, under the repeat's own seed."""

from collections.abc import Callable, Sequence
from typing import NamedTuple, TypeVar

from specfw.benchmark.arms import Arm, Clock, Timed
from specfw.benchmark.numbers import Costs
from specfw.models.cost import forward_cost
from specfw.parts import Models
from specfw.prompts.base import Encoded
from specfw.randomness import SEED_LIMIT

import mlx.core as mx

T = TypeVar("T")

COST_PASSES = 5
ROWS = (1, 2, 4, 8, 16)


class Taken(NamedTuple):
    """One arm in one repeat.

    Attributes:
        repeat: its number, from 1.
        place: in the order of that repeat, from 0.
        arm: its name.
        seed: of all arms of the repeat.
        timed: what was measured.
        peak_bytes: of memory, weights of both models among them.
    """

    repeat: int
    place: int
    arm: str
    seed: int
    timed: Timed
    peak_bytes: int


class Measured(NamedTuple):
    """All that was measured.

    Attributes:
        taken: in the order they ran, complete repeats only.
        costs: of forward passes, one entry a repeat.
        split: one more decoding of each arm that can tell its phases, not counted.
        repeats: how many were completed.
        interrupted: whether more were wanted.
    """

    taken: tuple[Taken, ...]
    costs: tuple[Costs, ...]
    split: dict[str, Timed]
    repeats: int
    interrupted: bool


class Course(NamedTuple):
    """What is run.

    Attributes:
        arms: all of them.
        prompts: each is decoded once by every arm of every repeat.
        models: whose passes are timed.
        seed: of the first repeat; the next has the next.
        repeats: that count, after one that does not.
        clock: seconds.
        say: told after each repeat, in words.
    """

    arms: Sequence[Arm]
    prompts: Sequence[Encoded]
    models: Models
    seed: int
    repeats: int
    clock: Clock
    say: Callable[[str], None]


def rotated(all_: Sequence[T], repeat: int) -> list[T]:
    """The order of a repeat: it begins one later each time, so that the first place is not always the same one's."""
    start = repeat % len(all_)
    return [*all_[start:], *all_[:start]]


def measure(course: Course) -> Measured:
    """Run every repeat; an interrupt ends it after those that are complete.

    Raises:
        KeyboardInterrupt: not one was completed.
    """
    taken: list[Taken] = []
    costs: list[Costs] = []
    split: dict[str, Timed] = {}
    interrupted = False
    try:
        for repeat in range(course.repeats + 1):
            found = _repeat(course, repeat)
            cost = _costs(course)
            if repeat:
                taken += found
                costs.append(cost)
            course.say(f"repeat {repeat} of {course.repeats}" if repeat else "warm-up done, not counted")
        split = _split(course)
    except KeyboardInterrupt:
        if not costs:
            raise
        interrupted = True
    return Measured(tuple(taken), tuple(costs), split, len(costs), interrupted)


def _repeat(course: Course, repeat: int) -> list[Taken]:
    seed = (course.seed + repeat) % SEED_LIMIT
    found = []
    for place, arm in enumerate(rotated(course.arms, repeat)):
        mx.clear_cache()
        mx.reset_peak_memory()
        timed = _decode(arm, course, seed)
        found.append(Taken(repeat, place, arm.name, seed, timed, mx.get_peak_memory()))
    return found


def _decode(arm: Arm, course: Course, seed: int) -> Timed:
    first, *others = (arm.decode(prompt, seed, course.clock) for prompt in course.prompts)
    for other in others:
        first = first.plus(other)
    return first


def _costs(course: Course) -> Costs:
    """Passes over 1, 2, 4, 8, 16 rows and over every K + 1, after a context of the longest prompt."""
    drafted = {arm.num_draft_tokens + 1 for arm in course.arms}
    rows, context = sorted({*ROWS, *drafted}), max(len(one.ids) for one in course.prompts)
    target = forward_cost(course.models.target, rows, context, COST_PASSES)
    drafter = course.models.drafter
    return Costs(target, forward_cost(drafter, rows, context, COST_PASSES) if drafter is not None else {})


def _split(course: Course) -> dict[str, Timed]:
    apart = (arm.split() for arm in course.arms)
    return {arm.name: _decode(arm, course, course.seed) for arm in apart if arm is not None}
