"""Imports run one way. The table is the order of the house; a new module must be given its place in it."""

import ast
import subprocess
import sys
from pathlib import Path

import specfw

import pytest

PACKAGE = Path(specfw.__file__).parent

LAYERS = (
    ("__main__",),
    ("tasks", "config", "zoo", "terminal", "live"),
    ("study", "verification", "benchmark"),
    ("experiment",),
    ("parts", "provenance", "summary", "transcript", "watching"),
    ("generation", "recording"),
    ("rounds",),
    ("decoder",),
    ("diagnostics", "resolution", "shelf"),
    ("drafting", "counting"),
    ("acceptance", "sampling", "models", "prompts"),
    ("types",),
    ("distribution", "randomness"),
    ("summation",),
    ("registry", "backend", "errors", "files", "console"),
)
SIBLINGS = LAYERS[10]
"""These stand side by side and do not see each other."""

ONLY = {
    "hydra": ("__main__", "config"),
    "omegaconf": ("__main__", "config"),
    "structlog": ("recording",),
}
"""Who may import what."""

STANDARD_LIBRARY_ONLY = ("registry", "errors", "files", "backend", "tasks.base")
CHILD_PROCESS = "backend.multiply"  # the self-test of a BLAS runs there, under MLX, in a process of its own

DEPTH = {unit: depth for depth, layer in enumerate(LAYERS) for unit in layer}
FILES = {".".join(path.relative_to(PACKAGE).with_suffix("").parts): path for path in PACKAGE.rglob("*.py")}
MODULES = {name.removesuffix(".__init__"): path for name, path in FILES.items() if name != "__init__"}


def imports(path):
    """Absolute names of everything that `path` imports, wherever in it."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert not node.level, f"{path}: a relative import"
            # `from specfw import backend` imports a module, `from specfw.types import Block` a name
            yield from (f"specfw.{alias.name}" for alias in node.names) if node.module == "specfw" else [node.module]


def ours(path):
    return {name.split(".")[1] for name in imports(path) if name.startswith("specfw.")}


def unit(module):
    return module.partition(".")[0]


def test_every_module_has_its_place():
    assert {unit(module) for module in MODULES} <= set(DEPTH)


@pytest.mark.parametrize("module", sorted(MODULES))
def test_imports_run_one_way(module):
    own = unit(module)
    allowed = {
        other for other in DEPTH if DEPTH[other] > DEPTH[own] or (DEPTH[other] == DEPTH[own] and own not in SIBLINGS)
    }
    assert ours(MODULES[module]) <= allowed | {own}


@pytest.mark.parametrize("library", sorted(ONLY))
def test_a_library_stays_where_it_belongs(library):
    users = {unit(module) for module, path in MODULES.items() if any(unit(name) == library for name in imports(path))}
    assert users
    assert users <= set(ONLY[library])


@pytest.mark.parametrize(
    "module",
    sorted(m for m in MODULES if m.startswith(STANDARD_LIBRARY_ONLY) and m != CHILD_PROCESS),
)
def test_the_lowest_layer_is_standard_library(module):
    foreign = {unit(name) for name in imports(MODULES[module])} - sys.stdlib_module_names
    assert foreign <= {"specfw"}


@pytest.mark.parametrize(
    ("statement", "absent"),
    [
        ("import specfw", ("hydra", "omegaconf", "mlx", "numpy", "specfw.registry")),
        ("import specfw.__main__, specfw.config.caller", ("mlx", "numpy")),
        ("import specfw.config.schemas", ("mlx_lm", "transformers", "scipy", "matplotlib")),
    ],
)
def test_nothing_is_imported_before_it_is_needed(statement, absent):
    code = f"import sys\n{statement}\nprint([name for name in {absent!r} if name in sys.modules])"
    child = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=PACKAGE.parent)
    assert child.stdout.strip() == "[]"


class Importing:
    """What Python does when one module is imported first: statements in order, packages before what lies in them."""

    def __init__(self):
        self.seen, self.bound, self.too_early = set(), False, []

    def visit(self, name):
        for part in (name[:end] for end in [*(i for i, c in enumerate(name) if c == "."), len(name)]):
            if part in MODULES and part not in self.seen:
                self.seen.add(part)
                self.run(part)

    def run(self, module):
        for statement in ast.parse(MODULES[module].read_text()).body:
            if isinstance(statement, ast.Import | ast.ImportFrom):
                self.follow(module, statement)
            elif isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Call):
                self.bound |= ast.unparse(statement.value).startswith("bind(")
                if ast.unparse(statement.value).startswith("discover("):
                    for inner in sorted(MODULES):
                        if inner.startswith(f"{module}.") and "." not in inner[len(module) + 1 :]:
                            self.visit(inner)

    def follow(self, module, statement):
        names = [alias.name for alias in statement.names]
        if isinstance(statement, ast.ImportFrom):
            names = [f"{statement.module}.{name}" for name in names]
        for name in names:
            if name.startswith("specfw."):
                self.visit(name.removeprefix("specfw."))
            elif name.split(".")[0] in ("mlx", "mlx_lm") and not self.bound:
                self.too_early.append(module)


@pytest.mark.parametrize("module", sorted(set(MODULES) - {CHILD_PROCESS, "__main__"}))
def test_the_blas_is_bound_before_mlx_is_loaded_whatever_is_imported_first(module):
    importing = Importing()
    importing.visit(module)
    assert not importing.too_early
