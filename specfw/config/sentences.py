"""What Hydra and OmegaConf raise, as one sentence: the full key, what is allowed, what was given."""

import difflib
import re
from collections.abc import Iterator
from typing import Any

from specfw.config.launching import absent
from specfw.registry import suggestion

from hydra.errors import HydraException, MissingConfigException, OverrideParseException
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import (
    ConfigAttributeError,
    ConfigKeyError,
    MissingMandatoryValue,
    OmegaConfBaseException,
)
from yaml import YAMLError

REFUSALS = (HydraException, OmegaConfBaseException, YAMLError, ValueError, OverflowError, OSError)
"""What means bad input; an OSError is a file that cannot be read or written, an overflow an absurd number."""

_KINDS = {
    "converted to Integer": "an integer",
    "converted to Float": "a number",
    "not a valid bool": "true or false",
    "NoneType is not a subclass of": "given a value",
    "is not a subclass of": "a mapping of its keys",
    "is not a ListConfig": "a list",
    "Cannot merge DictConfig with ListConfig": "a list and no mapping",
    "Cannot merge ListConfig with DictConfig": "a mapping and no list",
    "is not Optional": "given a value",
}


def sentence(error: BaseException, lines: tuple[str, ...] = ()) -> str:
    """One sentence for `error`.

    Args:
        error: what was raised while a configuration was made.
        lines: the overrides in force, to find the key whose option does not exist.
    """
    match error:
        case OverrideParseException():
            return f"an override must be key=value, got {error.override!r} ({_first(error.message)})"
        case MissingConfigException():
            return _unknown_option(error, lines)
        case OmegaConfBaseException():
            return _node(error, None)
        case HydraException():
            return _composition(error)
    return _joined(str(error))


def _unknown_option(error: MissingConfigException, lines: tuple[str, ...]) -> str:
    group, _, name = (error.missing_cfg_file or "").rpartition("/")
    written = [line.partition("=") for line in lines]
    asked = next((value for key, _, value in written if key == group and value.startswith(name)), name)
    if told := absent(group, name, asked):
        return told
    if not error.options:
        return _joined(str(error).partition("Config search path")[0])
    key = next((key for key, _, value in written if key.partition("@")[0] == group and name in value), group)
    return f"{key} must be one of: {', '.join(error.options)}; got {name!r}{suggestion(name, error.options)}"


def _composition(error: HydraException) -> str:
    text = str(error)
    inner = error.__cause__ or error.__context__
    override = re.search(r"Could not override '([^']+)'", text)
    if isinstance(inner, OmegaConfBaseException):
        return _node(inner, override and override[1]) + _place(text)
    if "requires --multirun" in text or "Ambiguous value" in text:
        swept = re.findall("'([^']+)'", text)[0]
        return f"{swept} is a sweep: add --multirun, or write key=[a,b] for a list"
    if override and (mounted := re.search(r"Did you mean to override (?:one of )?(.+?)\?", text)):
        return f"{override[1]} is not mounted by that name; allowed: {mounted[1]}"
    if chosen := re.match(r"Multiple values for (\S+)\. .*: (\S+)'", text):
        return f"{chosen[1]} is chosen already: write {chosen[1]}={chosen[2]} without the +"
    if nothing := re.match(r"You must specify '([^']+)'.*Available options:(.*)", text, flags=re.DOTALL):
        return f"{nothing[1]} must be one of: {', '.join(nothing[2].split())}; got nothing"
    return _joined(re.sub(r"To append to your default list use .*|Config search path.*", "", text, flags=re.DOTALL))


def _place(text: str) -> str:
    file = re.match(r"In '([^']+)'", text)
    if not file:
        return ""
    pair = file[1].startswith("pair/") and "Key '" in text
    return f" (in {file[1]}" + ("; other models go together as pair=custom)" if pair else ")")


def _node(error: OmegaConfBaseException, written: str | None) -> str:
    key, first = error.full_key or "", _first(error.msg or str(error))
    match error:
        case MissingMandatoryValue():
            return f"{key or first.rpartition(' ')[2]} must be given"
        case ConfigKeyError() | ConfigAttributeError():
            return _unknown_key(error, written or key)
    if allowed := next((kind for mark, kind in _KINDS.items() if mark in first), None):
        return f"{key} must be {allowed}, got {error.value!r}{_inner(error, key)}"
    return f"{key}: {first}" if key else first


def _inner(error: OmegaConfBaseException, key: str) -> str:
    """The key under `key` that takes the value that was given to `key` itself."""
    node = error.child_node
    for inner in map(str, node) if isinstance(node, DictConfig) and not node._is_none() else ():  # noqa: SLF001
        try:
            node.copy()[inner] = error.value
        except OmegaConfBaseException:
            continue
        shown = str(error.value).lower() if isinstance(error.value, bool) else error.value
        return f": write {key}.{inner}={shown}"
    return ""


def _unknown_key(error: OmegaConfBaseException, key: str) -> str:
    root = error.parent_node._get_root() if error.parent_node is not None else None  # noqa: SLF001
    known = [name for name in _paths(root) if name.startswith("hydra.") == key.startswith("hydra.")]
    siblings = [name for name in known if name.rpartition(".")[0] == key.rpartition(".")[0]]
    close = difflib.get_close_matches(key, known, n=3, cutoff=0.6)
    hint = f"did you mean {' or '.join(close)}?" if close else f"allowed: {', '.join(siblings) or 'none'}"
    return f"{key} is not a key; {hint}"


def _paths(node: Any, prefix: str = "") -> Iterator[str]:
    if not isinstance(node, DictConfig) or node._is_none() or node._is_missing() or node._is_interpolation():  # noqa: SLF001
        return
    for key in map(str, node):
        yield f"{prefix}{key}"
        if not OmegaConf.is_missing(node, key) and not OmegaConf.is_interpolation(node, key):
            yield from _paths(node[key], f"{prefix}{key}.")


def _first(text: str) -> str:
    return text.strip().partition("\n")[0].rstrip(".")


def _joined(text: str) -> str:
    return " ".join(text.split())
