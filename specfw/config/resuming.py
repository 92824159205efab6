"""`task.resume=<sweep folder>`: which sweep goes on, and which of its jobs have finished. Imports no MLX."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple, final

from specfw.config.overrides import arguments
from specfw.files import ERROR, JOB, SUMMARY, SWEEP, write_whole
from specfw.registry import require

from hydra.core.override_parser.overrides_parser import OverridesParser

KEY = "task.resume"
_PLAIN = {"-m", "--multirun"}
_UNREADABLE = (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError)


class Begun(NamedTuple):
    """A sweep as it was begun.

    Attributes:
        words: of its command line.
        blas: that multiplied.
        threads: of the BLAS.
        earlier: words that others have replaced since.
        jobs: how many finished records the folder has when nothing is missing; None where that is not known.
    """

    words: tuple[str, ...]
    blas: str
    threads: int | None
    earlier: tuple[tuple[str, ...], ...] = ()
    jobs: int | None = None

    def gone_on_with(self, now: "Begun") -> "Begun":
        """The sweep under the words of `now`; its own are kept among the earlier ones.

        Raises:
            ValueError: `now` multiplies with another BLAS.
        """
        allowed = f"gone on with under the BLAS it began with (blas={self.blas} threads={self.threads})"
        same = (self.blas, self.threads) == (now.blas, now.threads)
        require(KEY, same, allowed, f"blas={now.blas} threads={now.threads}")
        known = dict.fromkeys((*self.earlier, self.words))
        return now._replace(earlier=tuple(words for words in known if words != now.words))


def asked(given: Sequence[str]) -> tuple[list[str], Path | None]:
    """The words of a command line without `task.resume`, and the folder that it names.

    Where nothing else is said, the words are those that the sweep was begun with.

    Raises:
        ValueError: the folder is no sweep's.
    """
    lines = [line for line in arguments(given).overrides if line.lstrip("+~").partition("=")[0] == KEY]
    if not lines:
        return list(given), None
    folder = Path(_folder(lines[-1]))
    sweep = begun(folder)
    words = [word for word in given if word not in lines]
    return (words if set(words) - _PLAIN else list(sweep.words)), folder


def _folder(line: str) -> str:
    (override,) = OverridesParser.create().parse_overrides([line])
    value = override.value()
    single = isinstance(value, str | int) and not override.is_delete() and not override.is_sweep_override()
    require(KEY, single, "the folder of one sweep", line.partition("=")[2])
    require(KEY, "${" not in str(value), "a folder without ${ in its path", str(value))
    return str(value)


def begun(folder: Path) -> Begun:
    """How the sweep of `folder` was begun.

    Raises:
        ValueError: it is no sweep's folder.
    """
    try:
        found = json.loads((folder / SWEEP).read_text(encoding="utf-8"))
        earlier = tuple(tuple(map(str, words)) for words in found.get("earlier", ()))
        return Begun(tuple(map(str, found["words"])), str(found["blas"]), found["threads"], earlier)
    except _UNREADABLE as error:
        allowed = f"the folder of a sweep, with the {SWEEP} that it was begun with"
        raise ValueError(f"{KEY} must be {allowed}, got {str(folder)!r}") from error


def note_begun(folder: Path, sweep: Begun) -> None:
    """Keep in the sweep's folder how it was begun."""
    folder.mkdir(parents=True, exist_ok=True)
    write_whole(folder / SWEEP, json.dumps(sweep._asdict(), indent=1) + "\n")


def note_finished(folder: Path, digest: str) -> None:
    """Keep in a job's folder that its record is complete: the digest of its configuration, and its files' sizes."""
    sizes = {path.name: path.stat().st_size for path in sorted(_files(folder))}
    write_whole(folder / JOB, json.dumps({"digest": digest, "files": sizes}, indent=1) + "\n")


def finished(folder: Path) -> str | None:
    """The digest of the job that finished in `folder`; None where none did, or its record is no longer whole."""
    try:
        found = json.loads((folder / JOB).read_text(encoding="utf-8"))
        sizes, digest = found["files"], str(found["digest"])
        whole = bool(sizes) and all((folder / name).stat().st_size == size for name, size in sizes.items())
        if SUMMARY in sizes:
            said = json.loads((folder / SUMMARY).read_text(encoding="utf-8"))
            whole = whole and said.get("digest", digest) == digest
        return digest if whole and not (folder / ERROR).exists() else None
    except _UNREADABLE:
        return None


def failed(folder: Path) -> str | None:
    """What went wrong with the job of `folder`; None where it says nothing of that."""
    try:
        return (folder / ERROR).read_text(encoding="utf-8").rstrip()
    except OSError:
        return None


def clear(folder: Path, *, everything: bool = False) -> None:
    """Remove what an earlier try says of itself in a job's folder, or all its files."""
    said = {folder / ERROR, folder / JOB, *folder.glob(".*.part")}
    for path in said | (set(_files(folder)) if everything else set()):
        path.unlink(missing_ok=True)


def _files(folder: Path) -> list[Path]:
    return [path for path in folder.iterdir() if path.is_file() and not path.name.startswith(".")]


@final
class Finished:
    """The finished jobs of a sweep's folder; each counts for one job."""

    def __init__(self, sweep: Path) -> None:
        """Look through `sweep`."""
        folders = [note.parent for note in sorted(sweep.rglob(JOB))]
        self._digests: dict[Path, str] = {
            folder.resolve(): digest for folder in folders if (digest := finished(folder)) is not None
        }
        self._counted: set[Path] = set()

    @property
    def others(self) -> int:
        """How many of them counted for no job."""
        return len(self._digests) - len(self._counted)

    def at(self, folder: Path) -> bool:
        """Whether a job has finished in `folder`, whichever it was."""
        return folder.resolve() in self._digests

    def take(self, digest: str | None, folder: Path | None = None) -> bool:
        """Count a job of this digest, if one has finished: in `folder`, or in any where None is given."""
        places = self._digests if folder is None else [folder.resolve()]
        found = next((at for at in places if at not in self._counted and self._digests.get(at) == digest), None)
        if found is None or digest is None:
            return False
        self._counted.add(found)
        return True
