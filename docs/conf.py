"""Sphinx: `sphinx-build -W -n --keep-going -b html docs build/docs` makes the site from these pages."""
# ruff: noqa: INP001 # Sphinx reads it by this name

import os
import sys
from pathlib import Path

os.environ["SPECFW_BLAS"] = "reference"  # specfw is imported for its docstrings: nothing is multiplied
sys.path.insert(0, str(Path(__file__).parent))

project = "specfw"
html_title = "specfw"
extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
    "sphinx.ext.viewcode",
    "site_tools.extension",
]
source_suffix = {".md": "markdown", ".markdown": "markdown", ".rst": "restructuredtext"}

html_theme = "furo"
html_static_path = ["static"]
html_css_files = ["site.css"]
html_show_copyright = False
html_copy_source = False
html_theme_options = {"navigation_with_keys": True}
pygments_style, pygments_dark_style = "tango", "monokai"

myst_heading_anchors = 3  # as a forge makes them
highlight_language = "text"
smartquotes = False  # "--help" is two hyphens

autodoc_typehints_format, python_use_unqualified_type_names = "short", True
python_maximum_signature_line_length = 100
autodoc_member_order = "bysource"
napoleon_google_docstring, napoleon_numpy_docstring = True, False
napoleon_use_ivar = True
default_role = "literal"  # docstrings quote code with one backtick

nitpick_ignore_regex = [
    (r"py:.*", r"specfw\.(\w+\.)*_\w+\..*"),  # private modules have no entries,
    (r"py:.*", r"specfw\.(backend\.libraries|counting|resolution)\..*|UnavailableError|Shelf"),  # nor have inner ones
    (r"py:.*", r"tuple\[\w+|specfw\.registry\.C"),  # half of `tuple[int, ...]`, and a type variable
    (r"py:.*", r"(mx|mlx|np|npt|numpy|collections|pathlib|typing|abc|enum)\..*"),  # no inventory without a network
]
