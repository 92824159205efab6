"""The schema of every node of a configuration, derived from the registered components."""

import dataclasses
from collections.abc import Mapping
from functools import cache
from typing import Any

# importing a component package registers what lies in it
import specfw.acceptance
import specfw.diagnostics
import specfw.drafting
import specfw.drafting.controllers
import specfw.models
import specfw.prompts
import specfw.sampling
import specfw.tasks  # noqa: F401
from specfw import registry
from specfw.registry import suggestion

from omegaconf import MISSING, DictConfig, OmegaConf

NODES = {
    "target": "model",
    "drafter": "model",
    "drafting": "drafting",
    "sampler": "sampler",
    "draft_sampler": "sampler",
    "acceptance": "acceptance",
    "controller": "controller",
    "diagnostics": "diagnostics",
    "prompts": "prompts",
    "task": "task",
    "backend": "backend",
}
"""Key of each node and the configuration group it is chosen from."""

NAMED = ("model", "drafting", "acceptance", "controller", "prompts", "task")
"""Groups whose options are components of the registry's group of the same name."""

AUTO = "auto"
"""The option of `acceptance` that is no component but a request to choose one."""

_GATHERED = {"sampler": ("chain",), "diagnostics": ("on", "off"), "backend": ("blas",)}


@dataclasses.dataclass(kw_only=True)
class Root:
    """The keys of a configuration; conf/config.yaml explains them and gives their values."""

    seed: int = MISSING
    num_samples: int = MISSING
    max_tokens: int = MISSING
    batch_size: int | None = MISSING
    ignore_eos: bool = MISSING
    stop: list[str] = MISSING
    prefill_chunk: int = MISSING
    allow_lossy: bool = MISSING
    log_level: str = MISSING
    plugins: list[str] = dataclasses.field(default_factory=list)
    replay: str | None = None
    target: Any = MISSING
    drafter: Any = MISSING
    drafting: Any = MISSING
    sampler: Any = MISSING
    draft_sampler: Any = MISSING
    acceptance: Any = MISSING
    controller: Any = MISSING
    diagnostics: Any = MISSING
    prompts: Any = MISSING
    task: Any = MISSING
    backend: Any = MISSING


@dataclasses.dataclass(kw_only=True)
class Auto:
    """No rule but the request to choose one.

    Attributes:
        strict: refuse a drafter that reports no proposal distribution, where `stochastic` is chosen.
    """

    name: str = AUTO
    strict: bool = False


@dataclasses.dataclass(kw_only=True)
class Backend:
    """What multiplies float32 under MLX on Linux; `specfw.backend` refuses what is not allowed.

    Attributes:
        blas: `auto`, `openblas` or `reference`; on the command line, before MLX is imported.
        threads: its threads, 1 or more; null: the cores, and 1 in a sweep.
    """

    blas: str = "auto"
    threads: int | None = None


def names(group: str) -> tuple[str, ...]:
    """The schemas of `group`, by the name an option pulls them in with."""
    if group in _GATHERED:
        return _GATHERED[group]
    return tuple(sorted((*registry.names(group), *([AUTO] if group == "acceptance" else []))))


def schema_of(group: str, node: Mapping[str, Any], key: str) -> DictConfig:
    """The schema that fits `node`, which names a component if its group has components.

    Raises:
        ValueError: no such component; the sentence names `key` and the allowed values.
    """
    name = str(node.get("name")) if group in NAMED else names(group)[0]
    if name not in (known := names(group)):
        raise ValueError(f"{key} must be one of: {', '.join(known)}; got {name!r}{suggestion(name, known)}")
    return schema(group, name)


def schema(group: str, name: str) -> DictConfig:
    """The typed node that an option of `group` is merged into."""
    node: DictConfig = OmegaConf.structured(_mirror(group, name))
    if name == "off":
        for diagnostic in node:
            node[diagnostic].enabled = False
    _open_mappings(node)
    return node


def _mirror(group: str, name: str) -> type:
    match group, name:
        case "acceptance", "auto":
            return Auto
        case "backend", _:
            return Backend
        case "sampler", _:
            return _gathered("Chain", _members("filter"), ("order",))
        case "diagnostics", _:
            return _gathered("Diagnostics", _members("diagnostic"))
        case _:
            return _single(registry.component(group, name), name)


def _members(group: str) -> tuple[tuple[str, type], ...]:
    return tuple((name, registry.component(group, name)) for name in registry.names(group))


@cache
def _single(cls: type, name: str) -> type:
    return registry.schema(cls, name)


@cache
def _gathered(title: str, members: tuple[tuple[str, type], ...], lists: tuple[str, ...] = ()) -> type:
    """One node with a sub-node for every member, each at its defaults, after some lists of words."""
    fields: list[Any] = [(name, list[str], dataclasses.field(default_factory=list)) for name in lists]
    for name, cls in members:
        mirror = registry.schema(cls)
        fields.append((name, mirror, dataclasses.field(default_factory=mirror)))
    return dataclasses.make_dataclass(title, fields, kw_only=True)


def _open_mappings(node: DictConfig) -> None:
    """Let a mapping of a component (token id to bias) take new keys, which Hydra's struct flag would refuse."""
    for key in node:
        child = None if OmegaConf.is_missing(node, key) else node[key]
        if isinstance(child, DictConfig):
            if dataclasses.is_dataclass(OmegaConf.get_type(child)):
                _open_mappings(child)
            else:
                OmegaConf.set_struct(child, value=False)
