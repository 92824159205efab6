"""`specfw.compose` and `specfw.run`: the BLAS is bound as they are told before anything imports MLX."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from specfw import backend
from specfw.config.overrides import read
from specfw.config.sentences import REFUSALS, sentence

if TYPE_CHECKING:
    from specfw.tasks.base import Outcome


def compose(lines: Sequence[str]) -> dict[str, Any]:
    """What `python -m specfw <lines>` would run; see `specfw.compose`."""
    try:
        words = read(lines)
        backend.bind(words.blas, words.threads)
        from specfw.config import composing

        with composing.session() as hydra:
            return composing.check(hydra, composing.prepare(hydra, words), words).unresolved
    except REFUSALS as error:
        raise ValueError(sentence(error, tuple(lines))) from error


def run(config: Mapping[str, Any], acceptance: str | None) -> "Outcome":
    """Run `config` in a new folder; see `specfw.run`."""
    asked = config.get("backend")
    if isinstance(asked, Mapping):  # whether it holds is checked with the rest
        blas = asked.get("blas")
        backend.bind(None if blas == "auto" else blas, asked.get("threads"))
    from specfw.config import running

    return running.run(config, acceptance)
