"""What theory says a rule accepts, over temperature: sum_min, sum_prod and shared noise, one picture for each pair."""

import json
from collections.abc import Sequence
from typing import NamedTuple

from specfw.study.columns import telling
from specfw.study.escaping import one_line, shortened
from specfw.study.figures.canvas import Key, canvas, colour
from specfw.study.figures.figure import Figure, configured, cut, differing, digits, named, sentences, share_ticks
from specfw.study.gathered import PROMPTS, Run, Study
from specfw.study.pooling import Pool, pools
from specfw.study.values import LARGE

TITLE = "Closed forms over temperature"
LEAD = (
    "What three rules accept of a draft token in theory, at the positions these runs tested: sum_min for stochastic "
    "(no lossless rule can do better at one position), sum_prod for sampler_match, and gumbel for shared noise."
)
FORMS = {
    "sum_min": Key("sum_min", 0, "o"),
    "gumbel": Key("gumbel", 3, "D"),
    "sum_prod": Key("sum_prod", 2, "^"),
}
TEMPERATURE = "sampler.temperature.value"
_PAIR = ("target.", "drafter.", "drafting.")
_MOST_PAIRS = 3


class _At(NamedTuple):
    """The closed forms at one temperature, None where a run lacks one."""

    temperature: float
    tested: int
    values: dict[str, float | None]


def draw(study: Study) -> list[Figure]:
    """A figure for each pair of models, at most three."""
    drafting = (
        run for pool in pools(study.runs) for run in pool.runs if run.row.tested and run.row.sum_min is not None
    )
    kept = [run for run in drafting if _temperature(run) is not None]
    pairs: dict[str, list[Run]] = {}
    for run in kept:
        pairs.setdefault(_pair(run), []).append(run)
    drawn = [_figure(study, runs, place) for place, runs in enumerate(list(pairs.values())[:_MOST_PAIRS])]
    if not drawn:
        why = "No run recorded the closed forms and has a temperature; a drafter without rows has none."
        return [Figure("closed-forms", TITLE, LEAD, why=why)]
    if len(pairs) > 1:
        named = _names(study, [runs[0] for runs in pairs.values()])
        titles = [f"{TITLE}, pair {place + 1} of {len(pairs)}{name}" for place, name in enumerate(named)]
        drawn = [one._replace(title=title) for one, title in zip(drawn, titles, strict=False)]
    return drawn


def _temperature(run: Run) -> float | None:
    value = run.settings.get(TEMPERATURE)
    known = isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value <= LARGE
    return float(value) if known else None  # type: ignore[arg-type]


def _pair(run: Run) -> str:
    """The models by their settings and their weights: a path may hold other weights tomorrow."""
    settings = {key: value for key, value in run.settings.items() if key.startswith(_PAIR)}
    weights = {role: digest for role, digest in run.inputs.items() if role != PROMPTS}
    return json.dumps([settings, weights], sort_keys=True)


def _names(study: Study, runs: Sequence[Run]) -> list[str]:
    """What tells pairs apart, each by one of its runs, which is named where only the weights differ."""
    keys = telling(runs, [key for key in study.varying if key.startswith(_PAIR)])
    names = named(study, keys)
    told = [configured(Pool("", run.settings, (run,)), names) for run in runs]
    alike = {words for words in told if told.count(words) > 1}
    where = [f"models of {shortened(one_line(run.name), 60)}" for run in runs]
    parts = [(words, place) if words in alike else (words,) for words, place in zip(told, where, strict=True)]
    return [f": {', '.join(part for part in both if part)}" for both in parts]


def _figure(study: Study, runs: Sequence[Run], place: int) -> Figure:
    found, key = _temperatures(runs), f"closed-forms-{place}"
    legend = [entry for name, entry in FORMS.items() if any(at.values[name] is not None for at in found)]
    names = differing(study, [Pool("", {}, tuple(runs))])
    pooled = [one.name for one in names if one.key != TEMPERATURE and not one.key.startswith(_PAIR)]
    over = f"Pooled over {', '.join(['rule', 'seed', *pooled])}, weighted by tested draft tokens."
    rows, rest = cut([_row(at) for at in found])
    return Figure(
        key=key,
        title=TITLE,
        lead=LEAD,
        svg=_picture(found, key),
        legend=tuple(legend),
        head=("temperature", *FORMS, "sum_min / sum_prod", "draft tokens"),
        rows=rows,
        note=sentences(over, _lacking(runs), rest),
    )


def _lacking(runs: Sequence[Run]) -> str:
    """A sentence about shared noise, whose closed form is recorded only on request."""
    having = sum(run.row.gumbel is not None for run in runs)
    if having == len(runs):
        return ""
    return f"gumbel: recorded by {having} of {len(runs)} runs (diagnostics.closed_forms.sorting=true records it)."


def _temperatures(runs: Sequence[Run]) -> list[_At]:
    groups: dict[float, list[Run]] = {}
    for run in runs:
        groups.setdefault(_temperature(run) or 0.0, []).append(run)
    found = []
    for temperature, group in sorted(groups.items()):
        values = {name: _mean([run for run in group if getattr(run.row, name) is not None], name) for name in FORMS}
        found.append(_At(temperature, sum(run.row.tested for run in group), values))
    return found


def _mean(runs: Sequence[Run], name: str) -> float | None:
    """Over the runs that have it."""
    return Pool("", {}, tuple(runs)).mean(name)


def _picture(found: Sequence[_At], key: str) -> str:
    with canvas(key) as sheet:
        axes = sheet.axes(x="temperature", y="acceptance by theory")
        for name, entry in FORMS.items():
            points = [(at, value) for at in found if (value := at.values[name]) is not None]
            shade = colour(entry.series)
            axes.plot([at.temperature for at, _ in points], [value for _, value in points], color=shade)
            for at, value in points:
                words = f"temperature {at.temperature:g}: {name} {digits(value, 3)}"
                sheet.point(axes, (at.temperature, value), entry, words, crowd=3 * len(found))
        axes.set_ylim(0, 1.02)
        if len(found) < 2:  # noqa: PLR2004 # a single temperature is no axis
            axes.set_xlim(found[0].temperature - 0.5, found[0].temperature + 0.5)
        if len(found) <= 6:  # noqa: PLR2004 # as many as have room
            axes.set_xticks([at.temperature for at in found], [f"{at.temperature:g}" for at in found])
        share_ticks(axes.yaxis)
        return sheet.svg(TITLE)


def _row(at: _At) -> tuple[str, ...]:
    least, most = at.values["sum_prod"], at.values["sum_min"]
    ratio = most / least if least and most is not None else None
    return (f"{at.temperature:g}", *(digits(value) for value in at.values.values()), digits(ratio, 2), str(at.tested))
