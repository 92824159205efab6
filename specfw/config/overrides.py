"""The words of a command line, read before anything that imports MLX."""

import argparse
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple, NoReturn

from hydra._internal.utils import get_args_parser
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Override, ValueType

GROUPS = ("pair", "drafting", "sampler", "acceptance", "controller", "diagnostics", "prompts", "task", "backend")
_FIXED = {
    "plugins": "modules are imported before anything is composed",
    "replay": "a record is loaded before anything is composed",
    "backend": "the BLAS is bound before MLX is imported",
}


class Words(NamedTuple):
    """What overrides say to those who must know it before Hydra composes.

    Attributes:
        lines: the overrides as they were written.
        plugins: modules to import.
        replay: run folder, or None.
        blas: of `backend.blas`, None where not written.
        threads: of `backend.threads`, None where not written.
    """

    lines: tuple[str, ...]
    plugins: tuple[str, ...] = ()
    replay: str | None = None
    blas: str | None = None
    threads: str | None = None


def arguments(words: Sequence[str]) -> argparse.Namespace:
    """Hydra's own flags and the overrides among `words`, in any order.

    Raises:
        ValueError: no such flag.
    """
    parser = get_args_parser()
    parser.error = _refuse  # type: ignore[method-assign] # argparse would print its usage and leave
    return parser.parse_intermixed_args(list(words))


def read(lines: Sequence[str]) -> Words:
    """What `lines` say early, and the refusal of what Hydra would misread or drop.

    Raises:
        ValueError: a spelling that cannot mean anything, or a sweep over what is fixed before a sweep.
        hydra.errors.OverrideParseException: a line that is no override.
    """
    overrides = OverridesParser.create().parse_overrides(list(lines))
    early: dict[str, Any] = {}
    for override in overrides:
        _refuse_sweeps_of_fixed_keys(override)
        _refuse_chain_spellings(override)
        _refuse_choices_of_nothing(override)
        if not override.is_delete():
            early[override.key_or_group] = override.value()
    return Words(
        tuple(lines),
        _modules(early.get("plugins", [])),
        _text(early.get("replay")),
        _text(early.get("backend.blas")),
        _text(early.get("backend.threads")),
    )


def _refuse(message: str) -> NoReturn:
    raise ValueError(f"{message}; the flags are listed by --hydra-help")


def _refuse_sweeps_of_fixed_keys(override: Override) -> None:
    reason = _FIXED.get(override.key_or_group.partition(".")[0])
    if reason and override.is_sweep_override():
        raise ValueError(f"{override.key_or_group} must be one value, {reason}; got {override.input_line!r}")


def _refuse_chain_spellings(override: Override) -> None:
    key, words = override.key_or_group, list(_words(override))
    if key == "sampler" and override.package is None and "as_target" in words:
        raise ValueError(
            "sampler must be a chain of its own, as_target is for the drafter's: write sampler@draft_sampler=as_target"
        )
    if key == "draft_sampler" and words:
        raise ValueError(
            "draft_sampler must be set key by key, its option is chosen as "
            f"sampler@draft_sampler={','.join(words)}; got {override.input_line!r}"
        )


def _refuse_choices_of_nothing(override: Override) -> None:
    if not override.key_or_group:
        raise ValueError(f"an override must be key=value, got {override.input_line!r}")
    chosen = override.key_or_group in (*GROUPS, "model", "experiment") and not override.is_delete()
    several = isinstance(override.value(), list) and override.key_or_group == "experiment"
    if chosen and not override.is_sweep_override() and not several and not isinstance(override.value(), str | dict):
        key = override.get_key_element().lstrip("+")
        raise ValueError(f"{key} must be the name of one option, got {override.input_line!r}")


def _words(override: Override) -> Iterator[str]:
    if override.value_type in (ValueType.CHOICE_SWEEP, ValueType.SIMPLE_CHOICE_SWEEP):
        yield from override.sweep_string_iterator()
    elif isinstance(override.value(), str):
        yield str(override.value())


def _modules(value: Any) -> tuple[str, ...]:
    if not isinstance(value, list) or not all(isinstance(module, str) for module in value):
        raise ValueError(f"plugins must be a list of importable modules such as [my.module], got {value!r}")
    return tuple(value)


def _text(value: Any) -> str | None:
    return None if value is None else str(value)
