"""The text the shipped pair learns from: the standard library's own sources, of the running interpreter."""

import hashlib
import sysconfig
import tokenize
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

EXCLUDED = frozenset({"test", "tests", "idlelib", "lib2to3", "site-packages"})
HELD_OUT_ONE_IN = 20


class Source(NamedTuple):
    """One file of the corpus.

    Attributes:
        path: relative to the corpus's root, with forward slashes.
        text: its content, line ends made one.
    """

    path: str
    text: str


class Corpus(NamedTuple):
    """The two parts of the corpus, each in the order of paths.

    Attributes:
        training: what models and tokenizer are trained on.
        held_out: what they are measured on, and never see.
    """

    training: tuple[Source, ...]
    held_out: tuple[Source, ...]

    @property
    def digest(self) -> str:
        """SHA-256 of every path and text, in hexadecimal."""
        mixed = hashlib.sha256()
        for source in sorted((*self.training, *self.held_out)):
            for part in source:
                content = part.encode()
                mixed.update(len(content).to_bytes(8, "big") + content)
        return mixed.hexdigest()


def standard_library() -> Path:
    """Where the running interpreter keeps its sources."""
    return Path(sysconfig.get_path("stdlib"))


def read(root: Path) -> Corpus:
    """Read the Python files under a folder, without tests and what EXCLUDED names, and split them by file.

    Args:
        root: the folder.

    Raises:
        ValueError: no Python file is left for training, or none for measuring.
    """
    sources = [Source(path.relative_to(root).as_posix(), _text(path)) for path in _paths(root)]
    corpus = Corpus(
        training=tuple(source for source in sources if not is_held_out(source.path)),
        held_out=tuple(source for source in sources if is_held_out(source.path)),
    )
    if not all(corpus):
        raise ValueError(f"the corpus must hold Python files to train on and to measure on, got {root} with {corpus}")
    return corpus


def is_held_out(path: str) -> bool:
    """Whether a file is kept from training: where SHA-256 of its path, as a number, divides by HELD_OUT_ONE_IN."""
    return int.from_bytes(hashlib.sha256(path.encode()).digest(), "big") % HELD_OUT_ONE_IN == 0


def size_bytes(sources: Sequence[Source]) -> int:
    """The UTF-8 length of the texts."""
    return sum(len(source.text.encode()) for source in sources)


def _paths(root: Path) -> list[Path]:
    found = (path for path in root.rglob("*.py") if not EXCLUDED.intersection(path.relative_to(root).parts))
    wanted = (path for path in found if not _is_generated(path))
    return sorted(wanted, key=lambda path: path.relative_to(root).as_posix())


def _is_generated(path: Path) -> bool:
    """Whether a file was written by one machine's build, whose paths stand in it."""
    return path.name.startswith("_sysconfigdata") or path.parent.name.startswith("config-")


def _text(path: Path) -> str:
    with tokenize.open(path) as file:
        return file.read()
