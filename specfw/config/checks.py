"""A configuration through its schemas and components: types, keys, names, ranges; no model is read."""

from collections.abc import Mapping
from typing import Any, NamedTuple, cast

from specfw import registry
from specfw.backend import request
from specfw.config.schemas import AUTO, NAMED, NODES, Root, schema_of
from specfw.config.sentences import sentence
from specfw.registry import require
from specfw.sampling.chain import SamplerChain

from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

Plain = dict[str, Any]
COMMAND_LINE_ONLY = ("plugins", "replay")
LOG_LEVELS = ("info", "debug")


class Checked(NamedTuple):
    """A configuration that holds.

    Attributes:
        config: every value plain.
        unresolved: the same, with the draft chain's interpolations to the target's kept.
    """

    config: Plain
    unresolved: Plain


def checked(config: Mapping[str, Any] | DictConfig) -> Checked:
    """Put `config` through the schemas and build every component once.

    Args:
        config: a whole configuration, plain or Hydra's; interpolations are resolved.

    Raises:
        ValueError: an unknown key or name, a wrong type, a value out of range, a key without a value.
    """
    try:
        tree = _typed(config)
        resolved = cast("Plain", OmegaConf.to_container(tree, resolve=True, throw_on_missing=True))
    except OmegaConfBaseException as error:
        raise ValueError(sentence(error)) from error
    _ranges(resolved)
    _components(resolved)
    for key in COMMAND_LINE_ONLY:
        del resolved[key]
    return Checked(resolved, resolved | {"draft_sampler": _following(tree.draft_sampler, resolved)})


def _typed(config: Mapping[str, Any] | DictConfig) -> DictConfig:
    given = OmegaConf.to_container(config) if isinstance(config, DictConfig) else dict(config)
    tree = cast("DictConfig", OmegaConf.merge(OmegaConf.structured(Root), given))
    for key, group in NODES.items():
        node = tree[key]
        if key == "drafter" and node is None:
            continue
        require(key, isinstance(node, DictConfig), "a mapping of its keys", node)
        # merged under its own key, so that an error tells the full one
        merged = cast("DictConfig", OmegaConf.merge({key: schema_of(group, node, key)}, {key: node}))
        tree[key] = merged[key]
    return tree


def _ranges(config: Plain) -> None:
    require("seed", 0 <= config["seed"] < 2**64, "in [0, 2^64)", config["seed"])
    for key, least in (("num_samples", 1), ("max_tokens", 0), ("prefill_chunk", 1)):
        require(key, config[key] >= least, f"in [{least}, inf)", config[key])
    batch_size = config["batch_size"]
    require("batch_size", batch_size is None or batch_size >= 1, "null or in [1, inf)", batch_size)
    require("log_level", config["log_level"] in LOG_LEVELS, f"one of: {', '.join(LOG_LEVELS)}", config["log_level"])
    request.read(config["backend"]["blas"], config["backend"]["threads"])
    for key in COMMAND_LINE_ONLY:
        require(key, not config[key], "given on the command line alone", config[key])
    if config["drafter"] is None and config["drafting"]["name"] != "none":
        raise ValueError("drafter must be a model unless drafting=none, got None")


def _components(config: Plain) -> None:
    for key, group in NODES.items():
        node = config[key]
        if group in NAMED and node is not None and node["name"] != AUTO:
            registry.build(group, node, key)
    for name, node in config["diagnostics"].items():
        registry.construct(registry.component("diagnostic", name), node, f"diagnostics.{name}")
    for key in ("sampler", "draft_sampler"):
        SamplerChain.from_config(config[key], key)


def _following(node: DictConfig, resolved: Plain) -> Plain:
    return cast("Plain", _keep(OmegaConf.to_container(node), resolved["draft_sampler"]))


def _keep(raw: Any, value: Any) -> Any:
    """`value` with the interpolations to the target's chain that `raw` has in its places."""
    if isinstance(raw, dict):
        return {key: _keep(raw[key], value[key]) for key in value}
    return raw if isinstance(raw, str) and raw.startswith("${sampler.") else value
