"""A configuration through its schemas and components: types, keys, names, ranges; no model is read."""

import re
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
        unresolved: the same, with the draft chain's interpolations to the target's kept, and ${ escaped elsewhere.
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
    following = {"draft_sampler": OmegaConf.to_container(tree.draft_sampler)}
    return Checked(resolved, {key: _written(value, following.get(key)) for key, value in resolved.items()})


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
    ends = all(isinstance(text, str) and text for text in config["stop"])
    require("stop", ends, "strings of at least one character", config["stop"])
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
        if group in NAMED and node is not None and (group, node["name"]) != ("acceptance", AUTO):
            registry.build(group, node, key)
    for name, node in config["diagnostics"].items():
        registry.construct(registry.component("diagnostic", name), node, f"diagnostics.{name}")
    for key in ("sampler", "draft_sampler"):
        SamplerChain.from_config(config[key], key)


def _written(value: Any, raw: Any = None) -> Any:
    """`value` so that it is read again as what it is, with the pointers to the target's chain that `raw` has."""
    if isinstance(raw, str) and raw.startswith("${sampler."):
        return raw
    if isinstance(value, dict):
        below = raw if isinstance(raw, dict) else {}
        return {key: _written(item, below.get(key)) for key, item in value.items()}
    if isinstance(value, list):
        return [_written(item) for item in value]
    return re.sub(r"(\\*)\$\{", r"\1\1\\${", value) if isinstance(value, str) else value
