"""A drawing surface: matplotlib's SVG made small, without fonts or colours of its own, its marks in words.

Colours are placeholders that become CSS variables, so one picture is right in light and in dark. Every mark is
given the words that stand for it, which hovering, the keyboard and a screen reader come to.
"""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from io import StringIO
from typing import Any, NamedTuple
from xml.etree import ElementTree as ET

from specfw.study.escaping import one_line, shortened

INK, MUTED, GRID, SURFACE = "#0a0001", "#0a0002", "#0a0003", "#0a0004"
_SERIES = tuple(f"#0b000{index}" for index in range(8))
_VARIABLES = {
    INK: "--ink",
    MUTED: "--muted",
    GRID: "--grid",
    SURFACE: "--surface",
    **{colour: f"--s{index}" for index, colour in enumerate(_SERIES)},
}
WIDTH, HEIGHT = 360, 270
"""Units of a picture, one CSS pixel each on a phone: text of 11 stays legible there."""

CROWD = 80
"""Marks beyond which each is drawn small."""

_UNITS_PER_INCH = 72
_SVG = "{http://www.w3.org/2000/svg}"
_LINK = "{http://www.w3.org/1999/xlink}href"
_MARK = "mark-"
_NOT_OURS = r"(font-family|font|line-height|stroke-linejoin|stroke-linecap|stroke-dashoffset): [^;]*;?"
LONGEST_LABEL = 24
_SIZES = {"^": 10, "v": 10, "P": 10.5, "X": 10.5, "*": 12}
"""Of marks that look smaller than they are."""

_STYLE = {
    "svg.fonttype": "none",
    "text.parse_math": False,
    "font.family": "DejaVu Sans",
    "font.size": 11,
    "text.color": INK,
    "axes.labelcolor": MUTED,
    "axes.edgecolor": GRID,
    "axes.facecolor": "none",
    "axes.labelsize": 11,
    "axes.titlesize": 11,
    "axes.labelpad": 6,
    "axes.grid": True,
    "axes.axisbelow": True,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.spines.left": False,
    "axes.formatter.useoffset": False,
    "grid.color": GRID,
    "grid.linewidth": 0.8,
    "xtick.color": GRID,
    "ytick.color": GRID,
    "xtick.labelcolor": MUTED,
    "ytick.labelcolor": MUTED,
    "xtick.major.size": 0,
    "ytick.major.size": 0,
    "xtick.major.pad": 6,
    "ytick.major.pad": 5,
    "lines.linewidth": 1.8,
    "lines.markeredgewidth": 1.2,
    "figure.facecolor": "none",
    "figure.edgecolor": "none",
}


def colour(series: int | None) -> str:
    """The colour of a series, ink of none."""
    return INK if series is None else _SERIES[series % len(_SERIES)]


def label(text: str) -> str:
    """A text of a record as a label: one short line of characters that the measuring font has."""
    plain = one_line(text).encode("ascii", "backslashreplace").decode()
    return shortened(plain, LONGEST_LABEL).replace("…", "..")


class Key(NamedTuple):
    """An entry of a picture's legend.

    Attributes:
        words: what it stands for.
        series: number of its colour; None is ink.
        shape: matplotlib's letter of a mark, `line`, `dashes` or `bar`.
    """

    words: str
    series: int | None
    shape: str


class Canvas:
    """One picture while it is drawn; made by `canvas`.

    Attributes:
        figure: matplotlib's.
        key: of the picture, a word; ids start with it.
    """

    def __init__(self, key: str, height: int) -> None:
        """An empty picture of `WIDTH` times `height` units."""
        from matplotlib.backends.backend_svg import FigureCanvasSVG
        from matplotlib.figure import Figure

        self.key = key
        self.figure = Figure(figsize=(WIDTH / _UNITS_PER_INCH, height / _UNITS_PER_INCH), layout="constrained")
        self._canvas = FigureCanvasSVG(self.figure)
        self._words: list[str] = []

    def axes(self, *, x: str = "", y: str = "") -> Any:
        """The only axes of the picture, with the names of what they show."""
        axes = self.figure.add_subplot()
        axes.set_xlabel(x)
        axes.set_ylabel(y)
        return axes

    def mark(self, artist: Any, words: str) -> None:
        """Let `artist` be something to come to, with `words` to tell."""
        artist.set_gid(f"{_MARK}{len(self._words)}")
        artist.set_clip_on(False)
        self._words.append(one_line(words))

    def point(self, axes: Any, at: tuple[float, float], key: Key, words: str, crowd: int = 1) -> None:
        """A mark at a point, apart from its neighbours, and small in a crowd."""
        apart = {"markersize": _SIZES.get(key.shape, 8.5), "markeredgecolor": SURFACE}
        style = {"markersize": 4, "markeredgewidth": 0, "alpha": 0.7} if crowd > CROWD else apart
        (mark,) = axes.plot(*([value] for value in at), key.shape, color=colour(key.series), zorder=3, **style)
        self.mark(mark, words)

    def svg(self, title: str) -> str:
        """The picture as an element to stand in a page."""
        file = StringIO()
        self._canvas.print_svg(file, metadata={"Date": None, "Creator": None, "Format": None, "Type": None})
        root = ET.fromstring(file.getvalue())  # noqa: S314 # written by matplotlib the line before
        _tidy(root, self.key)
        self._tell(root, title)
        ET.register_namespace("", _SVG.strip("{}"))
        text = ET.tostring(root, encoding="unicode", short_empty_elements=True)
        for placeholder, variable in _VARIABLES.items():
            text = text.replace(placeholder, f"var({variable})")
        return text

    def _tell(self, root: ET.Element, title: str) -> None:
        root.set("class", "figure")
        root.set("role", "group")
        root.set("aria-label", title)
        for element in root.iter():
            gid = element.get("id", "")
            if gid.startswith(_MARK):
                words = self._words[int(gid.removeprefix(_MARK))]
                element.attrib = {"class": "mark", "role": "img", "aria-label": words, "tabindex": "-1"}


@contextmanager
def canvas(key: str, height: int = HEIGHT) -> Iterator[Canvas]:
    """A picture to draw on, in the style of the page; nothing of matplotlib's own settings is changed for others."""
    import matplotlib as mpl

    with mpl.rc_context({**_STYLE, "svg.hashsalt": key}):
        yield Canvas(key, height)


def _tidy(root: ET.Element, key: str) -> None:
    """Drop what a page does not need: sizes, metadata, fonts, needless digits, and ids that nothing refers to."""
    for attribute in ("width", "height", "version"):
        root.attrib.pop(attribute, None)
    for element in root.iter():
        for name, value in list(element.attrib.items()):
            element.attrib[name] = _shorter(name, value)
        _name(element, key)
        if element.text is not None and not element.text.strip():
            element.text = None
        element.tail = None
    while _emptied(root):
        pass


def _shorter(name: str, value: str) -> str:
    if name == "style":
        return re.sub(r"\s*([:;])\s*", r"\1", re.sub(_NOT_OURS, "", value)).rstrip(";")
    if name in ("d", "x", "y", "width", "height", "transform"):
        return " ".join(
            re.sub(r"-?\d+\.\d+", lambda found: f"{float(found[0]):.2f}".rstrip("0").rstrip("."), value).split()
        )
    return value


def _name(element: ET.Element, key: str) -> None:
    """Ids that are referred to begin with the picture's key, so that several pictures share a page."""
    if (target := element.attrib.pop(_LINK, None)) is not None:
        element.set("href", f"#{key}-{target.removeprefix('#')}")
    if "clip-path" in element.attrib:
        element.set("clip-path", element.attrib["clip-path"].replace("#", f"#{key}-"))
    if element.get("transform", "").startswith("rotate(-0"):
        element.attrib.pop("transform")
    name = element.attrib.pop("id", "")
    if name.startswith(_MARK):
        element.set("id", name)
    elif name and element.tag in (f"{_SVG}path", f"{_SVG}clipPath") and not name.startswith("patch"):
        element.set("id", f"{key}-{name}")


def _emptied(root: ET.Element) -> bool:
    """Remove elements that draw nothing; whether there were any."""
    found = [(parent, child) for parent in root.iter() for child in parent if _draws_nothing(child)]
    for parent, child in found:
        parent.remove(child)
    return bool(found)


def _draws_nothing(element: ET.Element) -> bool:
    kind = element.tag.removeprefix(_SVG)
    unseen = kind == "path" and element.get("style") == "fill:none" and "id" not in element.attrib
    return unseen or kind in ("metadata", "style") or (kind in ("g", "defs") and not len(element))
