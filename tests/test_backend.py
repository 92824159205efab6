import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import specfw
from specfw import backend
from specfw.backend import Backend, machine, selftest
from specfw.backend.forwarding import UnavailableError, source_code
from specfw.backend.libraries import Library, in_process, system, wheel
from specfw.backend.request import read

import pytest

LINUX = sys.platform == "linux" and not machine.computes_on_gpu()
ELSEWHERE = "accelerate" if sys.platform == "darwin" else "none"
COMPILER = next(filter(None, map(shutil.which, ("cc", "gcc", "clang"))), None)
BUNDLED = "bind(sources=(wheel,))"
EXPORTED = "SPECFW_BLAS", "SPECFW_BLAS_THREADS", "OPENBLAS_NUM_THREADS", "OPENBLAS_THREAD_TIMEOUT"
REPOSITORY = Path(specfw.__file__).parents[1]


@pytest.fixture(scope="module")
def cache(tmp_path_factory):
    return tmp_path_factory.mktemp("cache")


@pytest.fixture
def python(cache):
    def run(*arguments, **variables):
        inherited = {name: value for name, value in os.environ.items() if not name.startswith("SPECFW_")}
        for name in ("OPENBLAS_NUM_THREADS", "OPENBLAS_THREAD_TIMEOUT"):
            inherited.pop(name, None)
        environment = inherited | {"XDG_CACHE_HOME": str(cache), "PYTHONPATH": str(REPOSITORY)} | variables
        return subprocess.run(
            [sys.executable, *arguments], env=environment, capture_output=True, text=True, check=False
        )

    return run


@pytest.fixture
def bind_in_child(python):
    def run(call, **variables):
        code = f"import json, os, sys\nfrom specfw.backend import *\nbound = {call}\n"
        code += f"names = {EXPORTED}\n"
        code += "print(json.dumps([bound._asdict(), [os.environ.get(name) for name in names]]))"
        child = python("-c", code, **variables)
        if child.returncode:
            return child.stderr.strip().splitlines()[-1], None
        fields, exported = json.loads(child.stdout)
        return Backend(**fields), exported

    return run


@pytest.fixture
def unbound(monkeypatch):
    monkeypatch.setattr(backend, "_bound", [])
    monkeypatch.setenv("SPECFW_BLAS", "auto")
    monkeypatch.setenv("SPECFW_BLAS_THREADS", "")


@pytest.fixture
def compiled(tmp_path):
    def compile_c(text):
        path = tmp_path / "library.so"
        command = [COMPILER, "-shared", "-fPIC", "-x", "c", "-", "-o", path]
        subprocess.run(command, input=text, text=True, check=True)
        return path

    return compile_c


def test_importing_the_backend_imports_neither_mlx_nor_numpy(python):
    child = python("-c", "import sys, specfw.backend; print({'mlx', 'mlx.core', 'numpy'} & set(sys.modules))")
    assert child.stdout.strip() == "set()", child.stderr


@pytest.mark.parametrize(
    ("arguments", "variables", "expected"),
    [
        ((None, None), ("", ""), ("auto", None)),
        ((None, None), (" OpenBLAS ", "3"), ("openblas", 3)),
        (("reference", "2"), ("openblas", "3"), ("reference", 2)),
        (("null", 4), ("auto", ""), ("auto", 4)),
    ],
)
def test_arguments_come_before_the_environment(monkeypatch, arguments, variables, expected):
    monkeypatch.setenv("SPECFW_BLAS", variables[0])
    monkeypatch.setenv("SPECFW_BLAS_THREADS", variables[1])
    assert read(*arguments) == expected


@pytest.mark.parametrize(
    ("arguments", "variables", "message"),
    [
        (("mkl", None), ("", ""), r"backend\.blas must be auto, openblas or reference, got 'mkl'"),
        ((None, None), ("blas", ""), r"SPECFW_BLAS must be auto, openblas or reference, got 'blas'"),
        ((None, 0), ("", ""), r"backend\.threads must be an integer in \[1, inf\), got '0'"),
        ((None, "two"), ("", ""), r"backend\.threads must be an integer in \[1, inf\), got 'two'"),
        ((None, None), ("", "-1"), r"SPECFW_BLAS_THREADS must be an integer in \[1, inf\), got '-1'"),
    ],
)
def test_a_bad_value_is_named_with_its_field(monkeypatch, arguments, variables, message):
    monkeypatch.setenv("SPECFW_BLAS", variables[0])
    monkeypatch.setenv("SPECFW_BLAS_THREADS", variables[1])
    with pytest.raises(ValueError, match=message):
        read(*arguments)


def test_the_openblas_of_the_scipy_wheel_is_bound_where_a_compiler_is(bind_in_child):
    bound, exported = bind_in_child(BUNDLED)
    if not LINUX:
        assert (bound.blas, bound.threads, exported[0]) == (ELSEWHERE, None, "auto")
    elif COMPILER:
        assert (bound.blas, bound.source, bound.warnings) == ("openblas", "scipy", [])
        assert bound.version.startswith("OpenBLAS")
        assert 0 < bound.difference < 1e-5
        assert exported == ["openblas", str(bound.threads), str(machine.cores()), "14"]
    else:
        assert bound.blas == "reference"
        assert "no C compiler" in bound.warnings[0]


def test_without_a_compiler_the_reference_multiplies_and_a_warning_says_so(bind_in_child, tmp_path):
    bound, exported = bind_in_child(BUNDLED, PATH=str(tmp_path), XDG_CACHE_HOME=str(tmp_path))
    if LINUX:
        assert (bound.blas, bound.source, bound.threads) == ("reference", "mlx", 1)
        assert "many times slower" in bound.warnings[0]
        assert "no C compiler" in bound.warnings[0]
        assert exported[:3] == ["reference", str(machine.cores()), None]
        error, _ = bind_in_child("bind('openblas', sources=(wheel,))", PATH=str(tmp_path), XDG_CACHE_HOME=str(tmp_path))
        assert error.startswith("ValueError: backend.blas=openblas cannot be had (no OpenBLAS: no C compiler")
    else:
        assert bound.blas == ELSEWHERE


def test_an_unwritable_cache_is_a_reason_not_a_crash(bind_in_child, tmp_path):
    (tmp_path / "specfw").write_text("a file where the folder should be")
    bound, _ = bind_in_child(BUNDLED, XDG_CACHE_HOME=str(tmp_path))
    assert bound.blas == ("reference" if LINUX else ELSEWHERE)
    assert not LINUX or "no forwarding library" in bound.reason


def test_the_reference_is_left_alone_when_asked_for(bind_in_child):
    bound, exported = bind_in_child("bind('reference', 3)")
    assert bound.blas == ("reference" if LINUX else ELSEWHERE)
    assert bound.warnings == []
    assert exported[:3] == ["reference", "3", None]


def test_a_second_call_returns_what_the_first_one_bound(bind_in_child):
    bound, exported = bind_in_child("(bind('reference', 3), bind('openblas', 5), bind('mkl'))[2]")
    assert bound.blas == ("reference" if LINUX else ELSEWHERE)
    assert exported[:2] == ["reference", "3"]


def test_mlx_imported_first_means_the_reference(bind_in_child):
    bound, _ = bind_in_child("sys.modules.update({'mlx.core': sys}) or bind('openblas')")
    assert (bound.blas, bound.reason) == ("reference", "mlx imported first") if LINUX else (ELSEWHERE, bound.reason)
    assert len(bound.warnings) == 1


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("void cblas_sgemm() {}", "off float64"),
        ("void cblas_sgemm() { __builtin_trap(); }", "status -"),
        ('const char *openblas_get_config() { return "USE64BITINT"; }', "differ in the size of integers"),
    ],
)
def test_a_library_that_errs_or_crashes_under_mlx_is_not_bound(bind_in_child, compiled, text, complaint):
    if not (LINUX and COMPILER):
        assert bind_in_child(BUNDLED)[0].blas == ("reference" if LINUX else ELSEWHERE)
        return
    library = str(compiled(text))
    bound, exported = bind_in_child(f"bind(sources=(lambda: system({library!r}),))")
    trusted, _ = bind_in_child(f"bind(self_test=False, sources=(lambda: system({library!r}),))")
    assert (bound.blas, exported[0], trusted.library) == ("reference", "reference", library)
    assert complaint in bound.warnings[0]


def test_a_file_that_is_no_library_gives_way_to_the_next_source(bind_in_child, tmp_path):
    (tmp_path / "libopenblas.so.0").write_text("not a library")
    bound, _ = bind_in_child("bind(sources=(system, wheel))", LD_LIBRARY_PATH=str(tmp_path))
    expected = ("openblas", "scipy") if COMPILER else ("reference", "mlx")
    assert (bound.blas, bound.source) == (expected if LINUX else (ELSEWHERE, "mlx"))


def test_threads_are_what_was_asked_for_or_an_error(bind_in_child):
    bound, exported = bind_in_child("bind(threads=1, sources=(wheel,))")
    error, _ = bind_in_child("bind(threads=10**6, self_test=False, sources=(wheel,))")
    assert exported[1] == "1"
    if LINUX and COMPILER:
        assert bound.threads == 1
        assert error.startswith("ValueError: backend.threads must be in [1, ")
        assert error.endswith("got 1000000")
    else:
        assert isinstance(error, Backend)


def test_a_blas_already_in_the_process_is_reported_and_cannot_be_refused(bind_in_child, monkeypatch, cache):
    if not (LINUX and COMPILER):
        assert not LINUX or in_process() is None
        return
    monkeypatch.setenv("XDG_CACHE_HOME", str(cache))
    preloaded = str(wheel().path)
    bound, _ = bind_in_child("bind()", LD_PRELOAD=preloaded)
    error, _ = bind_in_child("bind('reference')", LD_PRELOAD=preloaded)
    assert (bound.blas, bound.source, bound.threads) == ("other", "process", None)
    assert error == "ValueError: backend.blas must be auto while another BLAS is in the process, got 'reference'"


@pytest.mark.parametrize("package", ["scipy", "numpy"])
def test_both_integer_sizes_are_forwarded_rightly(monkeypatch, cache, package):
    monkeypatch.setenv("XDG_CACHE_HOME", str(cache))
    if not (LINUX and COMPILER):
        with pytest.raises(UnavailableError, match=r"bundles no OpenBLAS|no C compiler"):
            wheel(package)
        return
    library = wheel(package)
    size = "long long" if library.spelling == "scipy_{}64_" else "int"
    assert f"(int, int, int, {size}, {size}, {size}, float" in source_code(library.spelling)
    assert selftest.check(library, 2, machine.processor(), run=True) < 1e-5


def test_the_self_test_is_remembered_until_something_changes(monkeypatch, tmp_path):
    measured = []
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(selftest, "_measure", lambda *_: measured.append(1) or 2e-7)
    file = tmp_path / "library.so"
    file.write_text("first")
    library = Library("system", file)
    assert selftest.check(library, 2, "P", run=False) is None
    assert [selftest.check(library, 2, "P", run=run) for run in (True, True, False)] == [2e-7] * 3
    assert len(measured) == 1
    selftest.check(library, 1, "P", run=True)
    selftest.check(library, 2, "another", run=True)
    monkeypatch.setenv("OPENBLAS_CORETYPE", "Prescott")
    selftest.check(library, 2, "P", run=True)
    file.write_text("second, longer")
    selftest.check(library, 2, "P", run=True)
    assert len(measured) == 5
    for remembered in (tmp_path / "specfw").glob("*.json"):
        remembered.write_text("{")
    selftest.check(library, 2, "P", run=True)
    assert len(measured) == 6


@pytest.mark.parametrize("difference", [1.1e-4, float("nan")])
def test_a_failed_self_test_is_not_remembered(monkeypatch, tmp_path, difference):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    library = Library("system", Path(__file__))
    monkeypatch.setattr(selftest, "_measure", lambda *_: difference)
    with pytest.raises(UnavailableError, match="off float64"):
        selftest.check(library, 1, "P", run=True)
    monkeypatch.setattr(selftest, "_measure", lambda *_: 1e-4)
    assert selftest.check(library, 1, "P", run=True) == 1e-4


def test_the_system_library_is_found_by_path_and_by_name(monkeypatch, tmp_path):
    file = tmp_path / "libsome-0.1.so"
    file.touch()
    (tmp_path / "libsome.so.0").symlink_to(file)
    assert system(str(tmp_path / "libsome.so.0")) == Library("system", file.resolve())
    with pytest.raises(UnavailableError, match=r"the system has no libsome\.so\.0"):
        system("libsome.so.0")
    monkeypatch.setenv("LD_LIBRARY_PATH", f"/nowhere:{tmp_path}")
    assert system("libsome.so.0").path == file.resolve()
    if LINUX and Path("/sbin/ldconfig").exists():
        assert system("libc.so.6").path.is_file()


@pytest.mark.parametrize("package", ["structlog", "no_such_package"])
def test_a_package_without_an_openblas_is_no_source(package):
    with pytest.raises(UnavailableError, match=f"{package} bundles no OpenBLAS"):
        wheel(package)


@pytest.mark.parametrize(("platform", "gpu", "blas"), [("darwin", False, "accelerate"), ("linux", True, "none")])
@pytest.mark.usefixtures("unbound")
def test_elsewhere_nothing_is_bound(monkeypatch, platform, gpu, blas):
    monkeypatch.setattr(sys, "platform", platform)
    monkeypatch.setattr(backend, "computes_on_gpu", lambda: gpu)
    bound = backend.bind("openblas", 2)
    assert (bound.blas, bound.threads, bound.source) == (blas, None, "mlx")
    assert "backend.blas=openblas changes nothing" in bound.warnings[0]
    assert bound.satisfies("reference", 7)
    assert backend.bound() is bound


def test_a_gpu_needs_both_a_wheel_and_a_device(monkeypatch, tmp_path):
    for devices, wheels, expected in (
        ([tmp_path], ["pytest"], True),
        ([tmp_path / "none"], ["pytest"], False),
        ([tmp_path], ["no-such-wheel"], False),
    ):
        monkeypatch.setattr(machine, "_CUDA_DEVICES", devices)
        monkeypatch.setattr(machine, "_CUDA_WHEELS", wheels)
        assert machine.computes_on_gpu() is expected


def test_what_is_bound_is_compared_with_what_was_composed():
    openblas = Backend("openblas", "scipy", 2, "P", "found")
    reference = Backend("reference", "mlx", 1, "P", "asked for")
    assert [openblas.satisfies(*want) for want in (("auto", None), ("openblas", 2))] == [True, True]
    assert [openblas.satisfies(*want) for want in (("reference", 2), ("auto", 3))] == [False, False]
    assert [reference.satisfies(*want) for want in (("auto", 8), ("openblas", 1))] == [True, False]


def test_a_command_restarts_once_and_keeps_its_arguments(python, tmp_path):
    script = tmp_path / "command.py"
    script.write_text(
        "import os, sys\nfrom specfw.backend import restart_with\n"
        "print(os.environ.get('SPECFW_BLAS'), os.environ.get('SPECFW_BLAS_THREADS'), sys.argv[1:])\n"
        "restart_with('openblas', 3)\n"
    )
    child = python(str(script), "seed=1")
    assert child.stdout.splitlines() == ["None None ['seed=1']", "openblas 3 ['seed=1']"]
    assert "RuntimeError: backend.blas=openblas backend.threads=3 was not bound by a second start" in child.stderr


def test_the_processor_has_a_name_of_one_line():
    name = machine.processor()
    assert name.strip()
    assert "\n" not in name
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.exists() and "model name" in cpuinfo.read_text():
        assert f": {name.partition(' (family')[0]}\n" in cpuinfo.read_text()
