"""What an exception means to whoever started the command: an exit status and one sentence. Imports no MLX."""

import signal
import threading
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import NoReturn

from specfw.config.sentences import REFUSALS, sentence
from specfw.errors import FailedCheckError

SIGNALS = (signal.SIGINT, signal.SIGTERM)
FAILED_CHECK, BAD_INPUT, DEFECT, LOST, INTERRUPTED = 1, 2, 70, 75, 130
_OF_LOST_WORKERS = ("TerminatedWorkerError", "UncompletedJobError", "WorkerCrashedError", "NodeDiedError")


class JobError(Exception):
    """A job that failed, in a form that survives the way back from another process.

    Attributes:
        status: exit status.
        text: what stands in the job's folder.
    """

    def __init__(self, status: int, text: str) -> None:
        super().__init__(status, text)
        self.status = status
        self.text = text


class JobInterrupt(KeyboardInterrupt):
    """An interrupt that reached a job in this process.

    Attributes:
        folder: of the job.
    """

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self.folder = folder


def status(error: BaseException) -> int:
    """The exit status that `error` means."""
    match error:
        case JobError():
            return error.status
        case KeyboardInterrupt():
            return INTERRUPTED
        case FailedCheckError():
            return FAILED_CHECK
        case _ if type(error).__name__ in _OF_LOST_WORKERS:
            return LOST
        case _ if isinstance(error, REFUSALS):
            return BAD_INPUT
    return DEFECT


def described(error: BaseException, lines: tuple[str, ...] = ()) -> str:
    """One sentence about `error`, or the traceback of a defect of the program.

    Args:
        error: what was raised.
        lines: the overrides in force.
    """
    if isinstance(error, JobError):
        return error.text
    if isinstance(error, KeyboardInterrupt):
        return "interrupted"
    if status(error) == LOST:
        return (
            f"a worker ended before its job did, finished jobs have their records: {sentence(error).partition('. ')[0]}"
        )
    if status(error) == DEFECT:
        return "".join(traceback.format_exception(error)).rstrip()
    return sentence(error, lines) or type(error).__name__


class _Interrupt:
    """What a signal does: it is raised once, and those that follow are ignored.

    Attributes:
        came: whether there was one.
    """

    came = False

    def __call__(self, _number: int, _frame: FrameType | None) -> NoReturn:
        self.came = True
        for number in SIGNALS:
            signal.signal(number, signal.SIG_IGN)
        raise KeyboardInterrupt


@contextmanager
def interruptible() -> Iterator[None]:
    """Make SIGTERM, which schedulers send, mean what Ctrl-C means; a second signal does not cut the record short.

    Raises:
        KeyboardInterrupt: a signal came, whatever a library made of the one that was raised in it.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    interrupt = _Interrupt()
    before = [signal.signal(number, interrupt) for number in SIGNALS]
    try:
        yield
    except Exception as error:
        if interrupt.came:
            raise KeyboardInterrupt from error
        raise
    finally:
        for number, handler in zip(SIGNALS, before, strict=True):
            # an interrupt ends those around this one too, and they count and tell undisturbed
            if not (signal.getsignal(number) is signal.SIG_IGN and isinstance(handler, _Interrupt)):
                signal.signal(number, handler)
    if interrupt.came:
        raise KeyboardInterrupt
