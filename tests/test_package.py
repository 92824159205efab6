"""The package found and complete from a wheel, an sdist, an editable install and a bare checkout."""

import importlib.util
import os
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import venv
import zipfile
from pathlib import Path

import specfw
from specfw.config.composing import conf_dir

import pytest

pytestmark = pytest.mark.slow

REPOSITORY = Path(specfw.__file__).parents[1]
SHIPPED = ("specfw", "conf", "tests", "docs", "README.md", "LICENSE", "pyproject.toml")
DEPENDENCIES = sysconfig.get_path("purelib")


def run(*words, cwd, **variables):
    # the checkout that is tested here must not be what the child finds
    inherited = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    child = subprocess.run(
        list(map(str, words)), cwd=cwd, env=inherited | variables, capture_output=True, text=True, check=False
    )
    assert child.returncode == 0, child.stderr
    return child.stdout


@pytest.fixture(scope="module")
def checkout(tmp_path_factory):
    """A copy of the repository as it would be cloned."""
    folder = tmp_path_factory.mktemp("checkout")
    ignored = shutil.ignore_patterns("__pycache__", ".*")
    for name in SHIPPED:
        source = REPOSITORY / name
        if source.is_dir():
            shutil.copytree(source, folder / name, ignore=ignored)
        else:
            shutil.copy(source, folder / name)
    return folder


@pytest.fixture(scope="module")
def build(tmp_path_factory):
    """A function that builds what is asked for from a source tree."""
    tools = tmp_path_factory.mktemp("tools")
    if importlib.util.find_spec("hatchling") is None:
        run(sys.executable, "-m", "pip", "install", "--quiet", "--target", tools, "hatchling", cwd=tools)

    def make(kind, source, folder):
        run(sys.executable, "-m", "hatchling", "build", "-t", kind, "-d", folder, cwd=source, PYTHONPATH=str(tools))
        (made,) = (path for path in folder.iterdir() if path.name.endswith((".whl", ".tar.gz")))
        return made

    return make


@pytest.fixture(scope="module")
def wheel(build, checkout, tmp_path_factory):
    return build("wheel", checkout, tmp_path_factory.mktemp("wheel"))


@pytest.fixture(scope="module")
def unpacked(build, checkout, tmp_path_factory):
    folder = tmp_path_factory.mktemp("sdist")
    sdist = build("sdist", checkout, folder)
    with tarfile.open(sdist) as archive:
        archive.extractall(folder, filter="data")
    return folder / sdist.name.removesuffix(".tar.gz")


@pytest.fixture
def environment(tmp_path):
    """A virtual environment that has the dependencies and nothing of ours, and the folder of its packages."""
    venv.create(tmp_path / "venv", symlinks=True)
    python = tmp_path / "venv" / "bin" / "python"
    (packages,) = (tmp_path / "venv" / "lib").glob("python*/site-packages")
    (packages / "dependencies.pth").write_text(DEPENDENCIES + "\n")
    return python, packages


def files(wheel):
    with zipfile.ZipFile(wheel) as archive:
        return {name for name in archive.namelist() if ".dist-info/" not in name}


def works(python, folder, place):
    """Whether the package found is that in `place`, and composes from another working directory."""
    elsewhere = folder / "elsewhere"
    elsewhere.mkdir()
    code = "import specfw; from specfw.config.composing import conf_dir; print(specfw.__file__); print(conf_dir())"
    package, conf = run(python, "-c", code, cwd=elsewhere).splitlines()
    assert Path(package) == place / "specfw" / "__init__.py"
    assert "path: zoo:target" in run(python, "-m", "specfw", "--cfg", "job", cwd=elsewhere)
    run(python, "-m", "specfw", "pair=iid", "max_tokens=3", cwd=elsewhere, SPECFW_OUTPUTS=str(folder / "outputs"))
    assert len(list((folder / "outputs").glob("2*/*/summary.json"))) == 1
    return Path(conf)


def test_a_wheel_has_the_options_the_shipped_pair_and_its_notice(wheel):
    held = files(wheel)
    options = {f"specfw/conf/{path.relative_to(conf_dir()).as_posix()}" for path in conf_dir().rglob("*.yaml")}
    assert options <= held
    assert {"specfw/zoo/NOTICE", "specfw/zoo/target/model.safetensors", "specfw/zoo/drafter/config.json"} <= held
    assert {"specfw/study/templates/page.html.j2", "specfw/study/templates/page.css"} <= held
    assert not [name for name in held if not name.startswith("specfw/") or "__pycache__" in name]


def test_a_wheel_built_from_the_sdist_is_the_same(wheel, unpacked, build, tmp_path):
    assert files(build("wheel", unpacked, tmp_path)) == files(wheel)


def test_an_installed_wheel_works(wheel, environment, tmp_path):
    python, packages = environment
    pip = [sys.executable, "-m", "pip", "--python", python, "install", "--quiet", "--no-deps", "--no-index"]
    run(*pip, wheel, cwd=tmp_path)
    assert works(python, tmp_path, packages) == packages / "specfw" / "conf"
    assert run(python.with_name("specfw"), "--version", cwd=tmp_path) == f"specfw {version(wheel)}\n"
    assert "acceptance" in run(python.with_name("specfw"), "--help", cwd=tmp_path)


@pytest.mark.parametrize("tree", ["checkout", "unpacked"])
def test_a_source_tree_on_the_path_works(tree, environment, tmp_path, request):
    """An editable install is a line in a .pth file that names the checkout, as here."""
    python, packages = environment
    place = request.getfixturevalue(tree)
    (packages / "editable.pth").write_text(f"{place}\n")
    assert works(python, tmp_path, place) == place / "conf"


def version(wheel):
    return wheel.name.split("-")[1]
