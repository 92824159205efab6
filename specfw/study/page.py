"""The page of a study: one HTML file that opens from disk and asks nothing of a network.

Whatever a record says is escaped by jinja2; the policy in the head lets the browser run this page's own script and
nothing else, and load nothing at all.
"""

import base64
import hashlib
from collections import Counter
from collections.abc import Callable, Sequence
from importlib import resources
from importlib.util import find_spec
from typing import Any, NamedTuple

from specfw.study import sheet, text_of_run, told
from specfw.study.escaping import one_line, shortened
from specfw.study.figures import acceptance, closed_forms, distortion, lengths, places, scoreboard, speedup
from specfw.study.figures.figure import ABSENT, Figure, between, digits, series
from specfw.study.gathered import Row, Run, Study
from specfw.study.told import Lines

TEMPLATES = "templates"
LOST = "This figure could not be drawn"
_LONGEST = 300


class Tile(NamedTuple):
    """A number of the head of the page.

    Attributes:
        name: what it is.
        value: the number.
        words: what to hold it against.
        tone: `good`, `bad` or nothing.
    """

    name: str
    value: str
    words: str = ""
    tone: str = ""


def require_libraries() -> None:
    """Refuse a page that could not be drawn.

    Raises:
        ValueError: the extra is not installed.
    """
    for name in ("jinja2", "matplotlib"):
        if find_spec(name) is None:
            raise ValueError(f"task=report must have the extra report (pip install 'specfw[report]'): no {name}")


def html(study: Study) -> str:
    """The page, whole."""
    from jinja2 import Environment, PackageLoader, StrictUndefined
    from markupsafe import Markup

    environment = Environment(
        loader=PackageLoader("specfw.study", TEMPLATES),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=_one_line,
    )
    script = _own("page.js")
    return environment.get_template("page.html.j2").render(
        title=_title(study),
        summary=_summary(study),
        tiles=_tiles(study),
        told=told.told(study),
        study=study,
        sheet=sheet.sheet(study),
        texts=text_of_run.texts(study),
        most_texts=text_of_run.MOST_RUNS,
        figures=figures(study) if study.runs or study.others else [],
        style=Markup(_own("page.css")),  # noqa: S704 # our own file
        script=Markup(script),  # noqa: S704 # our own file
        script_digest=base64.b64encode(hashlib.sha256(script.encode()).digest()).decode(),
        drawn=Markup,
    )


def _one_line(value: Any) -> Any:
    """What jinja2 is about to escape, without marks of direction and control characters."""
    from markupsafe import Markup

    return one_line(value) if isinstance(value, str) and not isinstance(value, Markup | Lines) else value


def figures(study: Study) -> list[Figure]:
    """Every figure, in the order of the page."""
    return [figure for part in _PARTS for figure in _drawn(part, study)]


_Drawn = Figure | list[Figure] | None
_PARTS: tuple[tuple[str, str, Callable[[Study], _Drawn]], ...] = (
    ("acceptance", acceptance.TITLE, acceptance.draw),
    ("closed-forms", closed_forms.TITLE, closed_forms.draw),
    ("lengths", lengths.TITLE, lengths.draw),
    ("places", places.TESTED, places.draw),
    ("scoreboard", scoreboard.TITLE, scoreboard.draw),
    ("speedup", speedup.TITLE, speedup.draw),
    ("distortion", distortion.TITLE, distortion.draw),
)


def _drawn(part: tuple[str, str, Callable[[Study], _Drawn]], study: Study) -> list[Figure]:
    """The figures of one kind, or one that says what went wrong: whatever a record holds, the others stand."""
    key, title, draw = part
    try:
        found = draw(study)
    except Exception as error:  # noqa: BLE001 # a record is anyone's, and the page says what it was
        words = shortened(one_line(f"{type(error).__name__}: {error}"), _LONGEST)
        return [Figure(key, title, "", why=f"{LOST}: {words}")]
    return [] if found is None else found if isinstance(found, list) else [found]


def _own(name: str) -> str:
    """A file of the page."""
    return resources.files("specfw.study").joinpath(TEMPLATES, name).read_text(encoding="utf-8")


def _title(study: Study) -> str:
    if len(study.runs) == 1:
        return f"One run of {study.runs[0].row.rule}"
    return f"{len(study.runs)} runs" if study.runs else "Records of other tasks"


def _summary(study: Study) -> str:
    """The sources, and when the runs were started."""
    days = sorted({run.row.started[:10] for run in study.runs if run.row.started})
    when = f"; made on {days[0]}" if len(days) == 1 else f"; made from {days[0]} to {days[-1]}" if days else ""
    return f"{', '.join(study.sources)}{when}"


def _tiles(study: Study) -> list[Tile]:
    if len(study.runs) == 1:
        return _of_one(study.runs[0])
    return _of_many(study.runs) if study.runs else []


def _of_one(run: Run) -> list[Tile]:
    row = run.row
    interval = "" if row.interval is None else f"95 %: {between(row.interval.low, row.interval.high, 3)}"
    against = "" if row.expected is None else f"closed form {digits(row.expected)}"
    rounds = f"{row.rounds} rounds, {row.proposed} drafted"
    tiles = [
        _verdict([row]),
        Tile(
            "Acceptance of tested drafts", digits(row.measured), "; ".join(part for part in (against, interval) if part)
        ),
        Tile("Accepted a round", digits(row.mean_accepted_len, 3), rounds),
        Tile("Tokens a second", digits(row.tokens_per_s, 1), f"{row.emitted} tokens"),
    ]
    return [tile for tile in tiles if tile.value != ABSENT]


def _of_many(runs: Sequence[Run]) -> list[Tile]:
    rules = list(series(run.row.rule for run in runs))
    tested, emitted = (sum(getattr(run.row, name) for run in runs) for name in ("tested", "emitted"))
    return [
        _verdict([run.row for run in runs]),
        Tile("Rules", str(len(rules)), ", ".join(rules)),
        Tile("Draft tokens tested", f"{tested:,}", f"{emitted:,} tokens emitted"),
    ]


def _verdict(rows: Sequence[Row]) -> Tile:
    """The verdicts counted, those against another law than the target's, and the largest evidence against a law."""
    counted, single = Counter(row.standing for row in rows), len(rows) == 1
    failed, passed = counted["failed"], counted["passed"]
    if single:
        value = {"passed": "✓ passed", "failed": "✗ failed"}.get(rows[0].standing, rows[0].standing)
    else:
        value = f"✗ {failed} failed" if failed else f"{'✓ ' if passed else ''}{passed} passed"
    rest = [] if single else [f"{counted[name]} {name}" for name in ("unchecked", "interrupted") if counted[name]]
    told = "; ".join(part for part in (*rest, _lossy(rows), _evidence(rows)) if part)
    return Tile("Verdict", value, told, "bad" if failed else "good" if passed else "")


def _lossy(rows: Sequence[Row]) -> str:
    count = sum(not row.preserves_target for row in rows)
    runs = "" if len(rows) == 1 else f"{count} lossy, "
    return f"{runs}held against the rule's own law, not the target's" if count else ""


def _evidence(rows: Sequence[Row]) -> str:
    evidence = max((row.log10_e_value for row in rows if row.log10_e_value is not None), default=None)
    which = "log10 of the e-value" if len(rows) == 1 else "largest log10 e-value"
    return "" if evidence is None else f"{which} {digits(evidence, 2)}, fails above 6"
