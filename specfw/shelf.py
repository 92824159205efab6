"""The models that one job of a process leaves to the next, so that a sweep opens and reads each of them once."""

import gc
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple, final

from specfw.drafting.base import Drafting
from specfw.models.base import LanguageModel, ModelSpec
from specfw.models.vocabulary import without_padding

import mlx.core as mx


class Pair(NamedTuple):
    """Target and drafter, of one vocabulary."""

    target: LanguageModel
    drafter: LanguageModel | None


@final
class Shelf:
    """What the last job used, and nothing more.

    A model serves again where its specification and the device are the same and none of its files has changed
    since before it was opened (place, inode, size, times). Whatever the next job does not use is let go before
    anything is opened, so that the weights of two jobs are never in memory together. Models hold no state of a
    generation: caches belong to it.
    """

    def __init__(self) -> None:
        """Empty."""
        self._opened: dict[str, tuple[Any, LanguageModel]] = {}
        self._pair: tuple[Any, Pair] | None = None

    def pair(self, specs: Mapping[str, ModelSpec], drafting: Drafting) -> Pair:
        """The models of a job, opened as far as they are not here.

        Args:
            specs: of `target`, and of `drafter` where one drafts.
            drafting: brings the drafter to the target's ids.

        Raises:
            ValueError: a model cannot be opened, or the drafter is foreign to the target.
        """
        states = {role: _state(role, spec) for role, spec in specs.items()}
        wanted = (states, drafting)
        if self._pair is not None and None not in states.values() and self._pair[0] == wanted:
            return self._pair[1]
        self._let_go(states)
        for role, spec in specs.items():
            if role not in self._opened:
                self._opened[role] = states[role], spec.load(role)
        target = without_padding(self._opened["target"][1])
        drafter = drafting.fit(self._opened["drafter"][1], target) if "drafter" in specs else None
        pair = Pair(target, drafter)
        self._pair = wanted, pair
        return pair

    def clear(self) -> None:
        """Let everything go."""
        self._let_go({})

    def _let_go(self, states: Mapping[str, Any]) -> None:
        """Drop what is not of these states, weights and all."""
        kept = {role: entry for role, entry in self._opened.items() if entry[0] and entry[0] == states.get(role)}
        weighty = any(model.held_bytes for role, (_, model) in self._opened.items() if role not in kept)
        self._opened, self._pair = kept, None
        if weighty:
            gc.collect()
            mx.clear_cache()


def _state(role: str, spec: ModelSpec) -> tuple[Any, ...] | None:
    """What an opened model depends on; None where nobody knows."""
    files = spec.files(role)
    return None if files is None else (spec, mx.default_device(), tuple(map(_stamp, files)))


def _stamp(path: Path) -> tuple[str, int, int, int, int, int]:
    found = path.stat()
    return (str(path), found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns)
