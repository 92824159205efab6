"""The command: bind the BLAS, compose, run the task, and say with the exit status how it went.

0 all is well; 1 a check of the run failed; 2 bad input, in one sentence; 70 a defect of the program, with its
traceback; 75 a launcher lost a worker; 130 interrupted.
"""

import os
import signal
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib.metadata import PackageNotFoundError, version
from io import BufferedWriter, FileIO, TextIOWrapper
from pathlib import Path
from typing import TYPE_CHECKING, Any

from specfw import backend
from specfw.backend.request import THREADS_VARIABLE
from specfw.config import overrides, resuming
from specfw.config.failures import described, interruptible, status
from specfw.config.overrides import Words
from specfw.registry import require

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer

_INFORMS = ("help", "hydra_help", "cfg", "info", "shell_completion")
_INSTEAD = {
    "config_path": "--config-path would replace every option, write --config-dir=<folder> to add some",
    "experimental_rerun": "--experimental-rerun would unpickle a file, write replay=<run folder>",
}


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command line.

    Args:
        argv: what follows the program's name; None reads this process's own, which may then be started again
            under another BLAS.

    Returns:
        The exit status.
    """
    given = list(sys.argv[1:] if argv is None else argv)
    if argv is not None:
        return _status(given, own_process=False)
    _prepare_process()
    code = _status(given, own_process=True)
    # what is left is tearing down: a late signal must not change what the status says
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    return code


def _prepare_process() -> None:
    """Streams that can be written to whatever the shell closed or which locale it has; no empty variable.

    Who reads stderr may leave: Ctrl-C ends the `tee` of a pipeline too, and the record must still be closed.
    """
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is None:
            setattr(sys, name, open(os.devnull, "w"))  # noqa: PTH123, SIM115 # open as long as the process
        elif isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    if isinstance(sys.stderr, TextIOWrapper) and sys.stderr is sys.__stderr__:
        told = BufferedWriter(_Left(sys.stderr.fileno(), "wb", closefd=False))
        sys.stderr = TextIOWrapper(told, sys.stderr.encoding, "backslashreplace", line_buffering=True)
    if os.environ.get("SPECFW_OUTPUTS") == "":
        del os.environ["SPECFW_OUTPUTS"]


class _Left(FileIO):
    """A file whose reader, terminal or disk may be gone; what is written then is lost, and nothing else."""

    def write(self, data: "ReadableBuffer") -> int:
        try:
            return super().write(data)
        except OSError:
            return memoryview(data).nbytes


def _status(given: list[str], *, own_process: bool) -> int:
    if given == ["--version"]:
        sys.stdout.write(f"specfw {_version()}\n")
        return 0
    try:
        with interruptible():
            return _command(given, own_process=own_process)
    except SystemExit as leaving:
        return leaving.code if isinstance(leaving.code, int) else 0
    except BaseException as error:  # noqa: BLE001 # the last place that can say what went wrong
        sys.stderr.write(f"specfw: {described(error, tuple(given))}\n")
        return status(error)


def _version() -> str:
    try:
        return version("specfw")
    except PackageNotFoundError:
        return "(not installed)"


def _command(given: list[str], *, own_process: bool) -> int:
    given, resume = resuming.asked(given)
    flags = overrides.arguments(given)
    words = overrides.read(flags.overrides)
    for flag, sentence in _INSTEAD.items():
        if getattr(flags, flag) is not None:
            raise ValueError(sentence)
    informs = any(getattr(flags, flag) for flag in _INFORMS)
    free = THREADS_VARIABLE not in os.environ
    threads = words.threads or ("1" if flags.multirun and free else None)  # jobs of a sweep may share the cores
    backend.bind(words.blas, threads, self_test=not informs)
    from specfw.config import composing, launching
    from specfw.tasks.generate import OBJECTIVES

    with composing.session(flags.config_dir) as hydra:
        primary = composing.prepare(hydra, words, flags.config_name)
        if flags.help:
            sys.stdout.write(composing.guide(hydra, primary, words))
            return 0
        common = None if informs else composing.composed(hydra, primary, words, sweep=True)
        sweep = common is not None and (flags.multirun or composing.is_sweep(common))
        if resume is not None and not informs:
            require(resuming.KEY, sweep, "of a sweep: add --multirun, or leave out all other words", str(resume))
        if common is not None:
            launching.require_launchable(common, tuple(OBJECTIVES), sweep=sweep)
        if not informs and not sweep:  # refuse before a folder is made
            composing.check(hydra, primary, words)
        if common is not None:
            _bind_as_composed(common.backend, 1 if sweep and free else None, own_process=own_process)
        if sweep:
            return _sweep(hydra, primary, words, given, resume)
    _through_hydra(_flags_first(given, flags.overrides), primary, words)
    return 0


def _bind_as_composed(node: Any, threads: int | None, *, own_process: bool) -> None:
    """A file may ask for another BLAS than the command line and the environment did: begin again under it."""
    from specfw.config.running import require_bound

    asked = {"blas": node.blas, "threads": node.threads or threads}
    if own_process and not backend.bind().satisfies(**asked):
        backend.restart_with(**asked)
    require_bound(asked)


def _flags_first(given: list[str], lines: list[str]) -> list[str]:
    """Hydra takes no flag between overrides."""
    flags = list(given)
    for line in lines:
        flags.remove(line)
    return [*flags, *lines]


def _sweep(hydra: Any, primary: str, words: Words, given: list[str], resume: Path | None) -> int:
    from specfw.config.sweeping import sweep

    with _as_hydra_reads_it(given):
        return sweep(hydra, primary, words, given, resume)


def _through_hydra(given: list[str], primary: str, words: Words) -> None:
    from specfw.config.composing import VERSION_BASE, conf_dir
    from specfw.config.running import CommandLineJob

    import hydra

    decorate = hydra.main(config_path=str(conf_dir()), config_name=primary, version_base=VERSION_BASE)
    with _as_hydra_reads_it(given):
        decorate(CommandLineJob(words, sweep=False))()


@contextmanager
def _as_hydra_reads_it(given: list[str]) -> Iterator[None]:
    """`given` in sys.argv, and errors raised instead of reported."""
    argv, reported = sys.argv, os.environ.get("HYDRA_FULL_ERROR")
    sys.argv, os.environ["HYDRA_FULL_ERROR"] = [argv[0], *given], "1"
    try:
        yield
    finally:
        sys.argv = argv
        if reported is None:
            del os.environ["HYDRA_FULL_ERROR"]
        else:
            os.environ["HYDRA_FULL_ERROR"] = reported


if __name__ == "__main__":
    sys.exit(main())
