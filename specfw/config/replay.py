"""A run's own record as a configuration to compose from: every node an option named `recorded`."""

from pathlib import Path
from typing import Any, cast

from specfw.config import store
from specfw.config.checks import Plain, checked
from specfw.config.schemas import NAMED, NODES, names
from specfw.registry import require

from omegaconf import OmegaConf
from yaml import YAMLError

RECORD = "config.yaml"
_MODELS = ("target", "drafter", "drafting")


def stored(folder: str, primary: Path) -> str:
    """Store the record of `folder` as the primary configuration `replay`, whose name is returned.

    It is `primary` with every group's choice replaced by the record's node, so overrides of keys and groups,
    and experiments, apply as they do there.

    Args:
        folder: a run's folder.
        primary: the file of the usual primary configuration.

    Raises:
        ValueError: no record lies there, or it does not pass the schemas.
    """
    record = _record(folder)
    for key, group in NODES.items():
        node = record[key]
        if node is not None:
            schema = node["name"] if group in NAMED else names(group)[0]
            store.option(group, f"recorded_{key}", schema, node)
    mounted = {_mount(key, "/"): f"recorded_{key}" for key in _MODELS if record[key] is not None}
    store.pair("recorded", mounted, {key: None for key in _MODELS if record[key] is None})
    usual = cast("dict[str, Any]", OmegaConf.to_container(OmegaConf.load(primary)))
    usual["defaults"] = [_from_record(choice) for choice in usual["defaults"]]
    scalars = {key: value for key, value in record.items() if key not in NODES}
    store.primary("replay", usual | scalars)
    return "replay"


def _record(folder: str) -> Plain:
    path = Path(folder) / RECORD
    require("replay", path.is_file(), f"the folder of a run that left its {RECORD}", folder)
    try:
        loaded = OmegaConf.to_container(OmegaConf.load(path))
        require(RECORD, isinstance(loaded, dict), "a mapping", loaded)
        return checked(cast("dict[str, Any]", loaded)).unresolved
    except (ValueError, YAMLError, OSError) as error:
        raise ValueError(f"replay={folder}: {' '.join(str(error).split())}") from error


def _from_record(choice: Any) -> Any:
    """An entry of the usual defaults list, choosing the record's node where it chooses one."""
    if not isinstance(choice, dict):
        return choice
    ((group, _),) = choice.items()
    if group == "pair":
        return {group: "recorded"}
    key = next((key for key in NODES if _mount(key) == group), None)
    return {group: f"recorded_{key}"} if key else choice


def _mount(key: str, root: str = "") -> str:
    group = NODES[key]
    return f"{root}{group}" if group == key else f"{root}{group}@{key}"
