"""The shipped pair: a target and a drafter trained on the standard library of CPython (see README.md, NOTICE)."""

from pathlib import Path

NAMES = ("target", "drafter")


def folder(name: str) -> Path:
    """The folder of a shipped model, in mlx-lm's layout.

    Args:
        name: `target` or `drafter`.

    Raises:
        ValueError: there is no such model.
    """
    if name not in NAMES:
        raise ValueError(f"the zoo holds {' and '.join(NAMES)}, got {name!r}")
    return Path(__file__).parent / name
