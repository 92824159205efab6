"""The lists and tables of the pages in docs/results, from the records of a sweep.

    python -m specfw experiment=origin_table
    python docs/result_pages.py origin_table outputs/multirun/<date>/<time>

The first argument is the experiment, the others are folders of one sweep, or of the pieces that it was run in. Runs
that differ in the seed alone are pooled: rates and closed forms are weighted by what each run tested, and a seed is a
cluster of the intervals.
"""
# ruff: noqa: INP001 # a script beside the pages it serves

import json
import math
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from statistics import median

from pools import Pool, Run, pooled, read, read_yaml

PACKAGES = ("specfw", "mlx", "mlx-lm", "hydra-core", "numpy", "scipy", "python")
ROOT = Path(__file__).parents[1]
TEMPERATURE, RULE, K = "sampler.temperature.value", "acceptance.name", "controller.num_draft_tokens"
STEPS = ("temperature", "top_k", "top_p", "min_p")
MEANS = ("ids", "entropy")
PAIRED_WITH = "stochastic"


def origin_table(runs: Sequence[Run]) -> Iterator[str]:
    """Each closed form over the positions that its own rule tested, beside what was measured there."""
    found = pooled(runs, lambda run: (run.get(TEMPERATURE), run.get(RULE)))
    head = ("temperature", "sum_min", "sum_prod", "ratio", "stochastic", "sampler_match")
    rows = []
    for temperature in sorted({key[0] for key in found}):
        ratio_rule, match = (found[temperature, rule] for rule in head[-2:])
        sum_min, sum_prod = ratio_rule.mean("closed_forms", "sum_min"), match.mean("closed_forms", "sum_prod")
        forms = [f"{sum_min:.3f}", f"{sum_prod:.3f}", f"{sum_min / sum_prod:.1f}"]
        rows.append([f"{temperature}", *forms, *(f"{accepted(pool):.3f}" for pool in (ratio_rule, match))])
    yield table(head, rows)
    checked = ("tested", "accepted", "measured", "closed form", "z", "largest log10 e", "verdict")
    yield table(
        ("temperature", "rule", *checked), [[f"{p.key[0]}", f"`{p.key[1]}`", *check(p)] for p in found.values()]
    )


def rules_race(runs: Sequence[Run]) -> Iterator[str]:
    """Every rule beside the same seeds of one of them; and what each rule's blocks say of the others."""
    found = sorted(
        pooled(runs, lambda run: (run.get(RULE),)).values(),
        key=lambda pool: pool.total("accepted") / pool.total("rounds"),
    )
    own = next(pool for pool in found if pool.key == (PAIRED_WITH,))
    head = ("rule", "rounds", "accepted a round", "by its law", f"more than {PAIRED_WITH}", "tokens/s")
    yield table(
        (*head, "largest log10 e", "verdict"),
        [
            [
                f"`{pool.key[0]}`",
                f"{pool.total('rounds')}",
                pool.rate("accepted", "rounds"),
                f"{pool.predicted(pool.runs[0].numbers['rule']):.3f}",
                "" if pool is own else pool.lead(own),
                pool.speed,
                pool.evidence,
                pool.verdict,
            ]
            for pool in found
        ],
    )
    names = [pool.runs[0].numbers["rule"] for pool in found]
    predictions = [
        [f"`{pool.key[0]}`", *(f"{pool.predicted(name):.3f}" for name in (*names, "joint_ceiling"))] for pool in found
    ]
    yield table(("blocks of", *(f"`{name}`" for name in names), "joint ceiling"), predictions)


def draft_length(runs: Sequence[Run]) -> Iterator[str]:
    """Tokens of a round over K, and how many rounds accepted how much, beside the law."""
    found = pooled(runs, lambda run: (run.get(K),))
    head = ("K", "rounds", "accepted a round", "by the law", "if alike", "tested", "acceptance", "tokens/s", "verdict")
    rows, lengths = [], []
    for (count,), pool in found.items():
        if not count:
            plain = f"{pool.total('plain_rounds')}"
            rows.append(["0", plain, *["-"] * 5, pool.speed, pool.verdict])
            continue
        each = accepted(pool)
        rows.append(
            [
                f"{count}",
                f"{pool.total('rounds')}",
                pool.rate("accepted", "rounds"),
                f"{pool.predicted(pool.runs[0].numbers['rule']):.3f}",
                f"{sum(each**length for length in range(1, count + 1)):.3f}",
                f"{pool.total('positions_tested')}",
                f"{each:.4f}",
                pool.speed,
                pool.verdict,
            ]
        )
        lengths += [[f"{count}", *row] for row in shares(pool, count)]
    yield table(head, rows)
    yield table(("K", "accepted", "rounds", "share", "by the law", "z"), lengths)


def filters_order(runs: Sequence[Run]) -> Iterator[str]:
    """What the order of equal filters leaves of the rows, and what that does to acceptance and to the text."""
    presets = {tuple(read_yaml(path)["order"]): path.stem for path in (ROOT / "conf/sampler").glob("*.yaml")}
    found = pooled(runs, lambda run: (presets[tuple(run.get("sampler.order"))], run.get(RULE)))
    orders = ("seed", "hf", "llama_cpp", "mlx_lm")
    first = {run.get("seed"): run.texts() for run in found["seed", "sampler_match"].runs}
    head = ("preset", "acting in order", "ids left", "entropy", "drafter's ids left", "drafter's entropy")
    rows, rates = [], []
    for order in orders:
        ratio, own = found[order, "stochastic"], found[order, "sampler_match"]
        steps = [step for step in own.runs[0].get("sampler.order") if step in STEPS]
        left = [own.mean("support", f"target_{name}", "emitted") for name in MEANS]
        drafted = [own.mean("support", f"drafter_{name}") for name in MEANS]
        rows.append([f"`{order}`", ", ".join(steps), *(f"{value:.2f}" for value in (*left, *drafted))])
        forms = [f"{pool.mean('closed_forms', name):.3f}" for pool, name in ((ratio, "sum_min"), (own, "sum_prod"))]
        measured = [pool.rate("accepted", "positions_tested") for pool in (ratio, own)]
        parted = [parting(*pair) for run in own.runs for pair in zip(first[run.get("seed")], run.texts(), strict=True)]
        same = f"{sum(place is None for place in parted)} of {len(parted)}"
        where = "-" if None in parted else f"{median(place for place in parted if place is not None):.0f}"
        rates.append([f"`{order}`", forms[0], measured[0], forms[1], measured[1], same, where, own.verdict])
    yield table(head, rows)
    rules = ("sum_min", "stochastic", "sum_prod", "sampler_match")
    yield table(("preset", *rules, "texts equal to `seed`'s", "else equal up to", "verdict"), rates)


PAGES: dict[str, Callable[[Sequence[Run]], Iterator[str]]] = {
    page.__name__: page for page in (origin_table, rules_race, draft_length, filters_order)
}


def main(experiment: str, *folders: str) -> None:
    """Print provenance and the tables of one experiment."""
    runs = [run for folder in folders for run in read(Path(folder))]
    sys.stdout.write("\n".join([provenance(runs), *PAGES[experiment](runs)]))


def check(pool: Pool) -> list[str]:
    """What was measured beside its closed form, and what the checks say."""
    counts = [f"{pool.total('positions_tested')}", f"{pool.total('accepted')}", f"{accepted(pool):.4f}"]
    expected = f"{pool.mean('closed_forms', 'expected_acceptance'):.4f}"
    return [*counts, expected, f"{pool.z:.2f}", pool.evidence, pool.verdict]


def accepted(pool: Pool) -> float:
    """Accepted of tested."""
    return pool.total("accepted") / pool.total("positions_tested")


def shares(pool: Pool, most: int) -> Iterator[list[str]]:
    """How many rounds accepted 0 .. `most` draft tokens, beside the law given their blocks."""
    names = ("accepted_length_counts", "accepted_length_law")
    counts, law = ([run.found("acceptance")[name] for run in pool.runs] for name in names)
    for length in range(most + 1):
        rounds = sum(one[length] for one in counts if length < len(one))
        expected, variance = (
            math.fsum(one[name][length] for one in law if length < len(one[name])) for name in ("expected", "variance")
        )
        all_rounds = pool.total("rounds")
        z = f"{(rounds - expected) / math.sqrt(variance):.2f}" if variance else "-"
        yield [f"{length}", f"{rounds}", f"{rounds / all_rounds:.3f}", f"{expected / all_rounds:.3f}", z]


def parting(one: Sequence[int], other: Sequence[int]) -> int | None:
    """Tokens up to which two texts are equal; None where one text is all of it."""
    if list(one) == list(other):
        return None
    return next((place for place, pair in enumerate(zip(one, other, strict=False)) if pair[0] != pair[1]), len(one))


def provenance(runs: Sequence[Run]) -> str:
    """When, on which machine, with which versions, on which BLAS, with which weights."""
    started = [json.loads((run.folder / "events.jsonl").read_text(encoding="utf-8").partition("\n")[0]) for run in runs]
    first = min(started, key=lambda event: event["timestamp"])
    config, versions = first["config"], first["versions"]
    shown = ", ".join(f"{name} {versions[name]}" for name in PACKAGES if versions[name] != "not installed")
    threads = first["threads"]
    digests = {role: model["sha256"] for role, model in first["models"].items()}
    lines = (
        f"- made on {first['timestamp'][:10]} by {len(runs)} runs with {shown}",
        f"- {first['processor']}, float32 products by {first['blas']}, {threads} thread{'s' * (threads != 1)} a run",
        f"- {config['max_tokens']} tokens at most, {config['num_samples']} samples of one prompt a run",
        *(f"- SHA-256 of the {role}'s weights: `{_of_weights(digest)[:16]}`" for role, digest in digests.items()),
    )
    return "".join(f"{line}\n" for line in lines)


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table in Markdown."""
    lines = [head, ["---"] * len(head), *rows]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def _of_weights(digest: str | dict[str, str]) -> str:
    """A toy has one digest, of its rows; a checkpoint one for each file."""
    return digest if isinstance(digest, str) else digest["model.safetensors"]


if __name__ == "__main__":
    main(*sys.argv[1:])
