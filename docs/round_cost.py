"""The tables of docs/results/round-cost.md: what a round takes after so many tokens, and what its passes alone take.

    python docs/round_cost.py acceptance=stochastic max_tokens=2000 num_samples=3

The words are those of a command line; the run is an ordinary one with its record and all diagnostics. A round is timed
from the end of the one before it, so that everything counts that happens once a round. Beside it stand the passes that
such a round makes, c(K + 1) and K drafter steps, the first of which takes in two tokens, each timed alone after a
context of that many tokens: attention makes them dearer. What a round takes beyond them is ours, and must not grow.
It is taken from the tenth percentile of the rounds, which what else the machine does meets least.

Memory is MLX's at the end of a round, less the caches of that many tokens; what MLX has freed and keeps for later;
and the most that the process ever had.
"""
# ruff: noqa: INP001, E402 # a script beside the pages it serves; the BLAS must be bound before MLX is loaded

import io
import resource
import sys
from collections.abc import Iterator, Sequence
from contextlib import redirect_stdout
from dataclasses import dataclass
from itertools import chain, pairwise
from statistics import median, quantiles
from time import perf_counter
from typing import Any, NamedTuple

from specfw.backend import bind

BACKEND = bind()

import specfw
from specfw.diagnostics.base import Diagnostic, Floats, Observer, Setting
from specfw.models.base import LanguageModel
from specfw.models.cost import forward_cost
from specfw.registry import build, register
from specfw.types import Outcome

import mlx.core as mx

LENGTHS, WIDTH = (100, 250, 500, 1000, 1500, 1900), 100
TIMES = ("tokens before", "rounds", "K", "round, ms", "tenth percentile", "passes alone, ms", "the rest, ms")
SIZES = ("tokens before", "MLX, MiB", "caches, MiB", "the rest, MiB", "freed and kept, MiB", "most of the process, MiB")
MIB = 2**20
UNIT = 1 if sys.platform == "darwin" else 1024  # of the most that a process had


class Stamp(NamedTuple):
    """The end of a round: tokens of the sequence, its prompt's, K, seconds, bytes in use, kept, of the process."""

    tokens: int
    prompt: int
    drafted: int
    seconds: float
    active: int
    kept: int
    resident: int


SEQUENCES: list[list[Stamp]] = []


@register("diagnostic", "clock")
@dataclass(frozen=True, kw_only=True)
class Clock(Diagnostic):
    """Looks at the clock after every round."""

    def open(self, setting: Setting) -> Observer:
        return _Clock()


class _Clock(Observer):
    def observe(self, outcome: Outcome, trace: Sequence[Floats]) -> None:
        if outcome.round == 0:
            SEQUENCES.append([])
            self._prompt = int(outcome.position[0])
        tokens = int(outcome.position[0] + outcome.emitted[0])
        most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * UNIT
        now = perf_counter()
        SEQUENCES[-1].append(
            Stamp(
                tokens, self._prompt, int(outcome.lengths[0]), now, mx.get_active_memory(), mx.get_cache_memory(), most
            )
        )

    def numbers(self) -> dict[str, Any]:
        return {}


class Timed(NamedTuple):
    """A round: tokens before it beyond the prompt, and seconds."""

    made: int
    seconds: float
    end: Stamp


def main(*words: str) -> None:
    """Run, time the passes of the same models, print both tables."""
    config = specfw.compose([*words, "ignore_eos=true"])
    config["diagnostics"]["clock"] = {}
    with redirect_stdout(io.StringIO()):
        summary = specfw.run(config)
    drafts = config["drafting"]["name"] != "none"
    models = {role: build("model", config[role], role).load(role) for role in ("target", "drafter")[: 1 + drafts]}
    places = [place for place in LENGTHS if any(timed_at(place))]
    sys.stdout.write(f"{summary.line}\n\n- {BACKEND.processor}, float32 products by {BACKEND.blas}, ")
    sys.stdout.write(f"{BACKEND.threads or 'its own'} thread(s), {len(SEQUENCES)} sequence(s)\n\n")
    sys.stdout.write(_table(TIMES, [time_row(place, models) for place in places]) + "\n")
    sys.stdout.write(_table(SIZES, [size_row(place, models) for place in places]))


def timed_at(place: int) -> Iterator[Timed]:
    """The whole rounds that began within WIDTH tokens after `place`, of every sequence."""
    longest = max(stamp.drafted for stamp in chain.from_iterable(SEQUENCES))
    for before, end in chain.from_iterable(map(pairwise, SEQUENCES)):
        made = before.tokens - before.prompt
        if place <= made < place + WIDTH and end.drafted == longest:
            yield Timed(made, end.seconds - before.seconds, end)


def time_row(place: int, models: dict[str, LanguageModel]) -> list[str]:
    """What rounds took there, and what their passes take alone."""
    rounds = list(timed_at(place))
    seconds = [one.seconds for one in rounds]
    drafted, prompt = rounds[0].end.drafted, rounds[0].end.prompt
    context, repeats = prompt + place + WIDTH // 2, max(9, min(200, int(6 / median(seconds))))
    alone = forward_cost(models["target"], [drafted + 1], context, repeats)[drafted + 1]
    if drafted:
        steps = forward_cost(models["drafter"], [1, 2], context, repeats)
        alone += steps[2] + (drafted - 1) * steps[1]
    typical = median(seconds)
    tenth = quantiles(seconds, n=10)[0] if len(seconds) > 1 else typical
    shown = [f"{1e3 * one:.2f}" for one in (typical, tenth, alone, tenth - alone)]
    return [str(place), str(len(rounds)), str(drafted), *shown]


def size_row(place: int, models: dict[str, LanguageModel]) -> list[str]:
    """Memory at the end of the last of these rounds."""
    end = list(timed_at(place))[-1].end
    caches = sum(model.footprint(end.tokens, 1).cache_bytes for model in models.values())
    most = max(one.end.resident for one in timed_at(place))
    sizes = end.active, caches, end.active - caches, end.kept, most
    return [str(place), *(f"{size / MIB:.1f}" for size in sizes)]


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


if __name__ == "__main__":
    main(*sys.argv[1:])
