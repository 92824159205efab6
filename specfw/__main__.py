"""The command: bind the BLAS, compose, run the task, and say with the exit status how it went.

0 all is well; 1 a check of the run failed; 2 bad input, in one sentence; 70 a defect of the program, with its
traceback; 130 interrupted.
"""

import os
import sys
from collections.abc import Sequence
from importlib.metadata import version

from specfw import backend
from specfw.backend.request import THREADS_VARIABLE
from specfw.config import overrides
from specfw.config.failures import described, interruptible, status

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
    if given == ["--version"]:
        sys.stdout.write(f"specfw {version('specfw')}\n")
        return 0
    try:
        with interruptible():
            _command(given, own_process=argv is None)
    except SystemExit as leaving:
        return leaving.code if isinstance(leaving.code, int) else 0
    except BaseException as error:  # noqa: BLE001 # the last place that can say what went wrong
        sys.stderr.write(f"specfw: {described(error, tuple(given))}\n")
        return status(error)
    return 0


def _command(given: list[str], *, own_process: bool) -> None:
    flags = overrides.arguments(given)
    words = overrides.read(flags.overrides)
    for flag, sentence in _INSTEAD.items():
        if getattr(flags, flag) is not None:
            raise ValueError(sentence)
    informs = any(getattr(flags, flag) for flag in _INFORMS)
    free = THREADS_VARIABLE not in os.environ
    threads = words.threads or ("1" if flags.multirun and free else None)  # jobs of a sweep may share the cores
    backend.bind(words.blas, threads, self_test=not informs)
    primary, sweep = _rehearse(flags, words, free=free, own_process=own_process)
    _through_hydra(given, primary, words, sweep=sweep)


def _rehearse(flags: Namespace, words: Words, *, free: bool, own_process: bool) -> tuple[str, bool]:
    """Compose once ahead of Hydra: refuse before a folder is made, and bind again where a file asks for it.

    Returns:
        The name of the primary configuration, and whether the command is a sweep.
    """
    from hydra.types import RunMode

    from specfw.config import composing, running
    from specfw.config.checks import checked

    with composing.session(flags.config_dir) as hydra:
        primary = composing.prepare(hydra, words, flags.config_name)
        if any(getattr(flags, flag) for flag in _INFORMS):
            return primary, False
        tree = composing.composed(hydra, primary, words, sweep=True)
    sweep = flags.multirun or tree.hydra.mode is RunMode.MULTIRUN
    asked = {"blas": tree.backend.blas, "threads": tree.backend.threads or (1 if sweep and free else None)}
    if own_process and not backend.bind().satisfies(**asked):
        backend.restart_with(**asked)
    running.require_bound(asked)
    if not sweep:
        checked(composing.plain(tree, words))
    return primary, sweep


def _through_hydra(given: list[str], primary: str, words: Words, *, sweep: bool) -> None:
    import hydra

    from specfw.config.composing import VERSION_BASE, conf_dir
    from specfw.config.running import CommandLineJob

    decorate = hydra.main(config_path=str(conf_dir()), config_name=primary, version_base=VERSION_BASE)
    with _as_hydra_reads_it(given):
        decorate(CommandLineJob(words, sweep))()


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
