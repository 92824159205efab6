"""What Hydra finds besides conf/: schemas, the chain that follows another, options of components without YAML."""

from collections.abc import Mapping, Sequence
from typing import Any

from specfw.config import schemas

from hydra._internal.config_loader_impl import ConfigLoaderImpl
from hydra.core.config_loader import ConfigLoader
from hydra.core.config_store import ConfigStore
from omegaconf import DictConfig, OmegaConf

_PROVIDER = "specfw"


def renew(loader: ConfigLoader, primary: str, lines: Sequence[str]) -> None:
    """Store what the registry holds now.

    Every schema as `schema/<group>/<name>`, the option `sampler/as_target`, and an option for each component
    that no file on the search path offers. A stored option must not share its name with a file: Hydra would
    take it for that file's schema.

    Args:
        loader: knows the search path.
        primary: name of the primary configuration, which may extend the search path.
        lines: overrides, which may extend it too.
    """
    _forget(ConfigStore.instance().repo)
    assert isinstance(loader, ConfigLoaderImpl)
    # one repository for all groups: get_group_options of the loader would read the primary file for each
    _, files = loader._parse_overrides_and_create_caching_repo(primary, list(lines))  # noqa: SLF001
    _store("schema", "root", schemas.Root)
    for group in sorted(set(schemas.NODES.values())):
        for name in schemas.names(group):
            _store(f"schema/{group}", name, schemas.schema(group, name))
    option("sampler", "as_target", "chain", _pointers(schemas.schema("sampler", "chain"), "sampler"))
    for group in schemas.NAMED:
        for name in set(schemas.names(group)) - set(files.get_group_options(group)):
            option(group, name, name, {})


def option(group: str, name: str, schema: str, values: Mapping[str, Any]) -> None:
    """Store the option `group`/`name`: that schema with `values` merged into it."""
    _store(group, name, {"defaults": [f"/schema/{group}/{schema}@_here_", "_self_"], **values})


def pair(name: str, mounted: Mapping[str, str], values: Mapping[str, Any]) -> None:
    """Store the option `pair`/`name`: what it mounts, and keys of the root besides."""
    defaults = [{mount: chosen} for mount, chosen in mounted.items()]
    _store("pair", name, {"defaults": [*defaults, "_self_"], **values}, "_global_")


def primary(name: str, node: Mapping[str, Any]) -> None:
    """Store a primary configuration."""
    _store(None, name, dict(node))


def _store(group: str | None, name: str, node: Any, package: str | None = None) -> None:
    ConfigStore.instance().store(group=group, name=name, node=node, package=package, provider=_PROVIDER)


def _forget(repository: dict[str, Any]) -> None:
    for name, entry in list(repository.items()):
        if isinstance(entry, dict):
            _forget(entry)
        elif entry.provider == _PROVIDER:
            del repository[name]


def _pointers(node: DictConfig, path: str) -> dict[str, Any]:
    """`node` with every leaf replaced by an interpolation to the same leaf under `path`."""
    pointers: dict[str, Any] = {}
    for key in map(str, node):
        child = node[key]
        inner = isinstance(child, DictConfig) and OmegaConf.get_type(child) is not dict
        pointers[key] = _pointers(child, f"{path}.{key}") if inner else f"${{{path}.{key}}}"
    return pointers
