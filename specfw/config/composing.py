"""Overrides to one configuration, through Hydra."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, cast

from specfw import registry
from specfw.config import replay, store
from specfw.config.checks import COMMAND_LINE_ONLY, Checked, Plain, checked
from specfw.config.overrides import GROUPS, Words
from specfw.diagnostics.scoreboard import lossless
from specfw.registry import require

from hydra import version
from hydra._internal.hydra import Hydra
from hydra._internal.utils import create_config_search_path
from hydra.core.config_search_path import SearchPathQuery
from hydra.core.global_hydra import GlobalHydra
from hydra.core.hydra_config import HydraConfig
from hydra.types import RunMode
from omegaconf import DictConfig, OmegaConf

PRIMARY = "config"
VERSION_BASE = "1.3"


def conf_dir() -> Path:
    """The folder of options: inside the package when installed, beside it in a checkout or editable install."""
    package = Path(__file__).resolve().parents[1]
    inside = package / "conf"
    return inside if (inside / "config.yaml").is_file() else package.parent / "conf"


@contextmanager
def session(folder: str | None = None) -> Iterator[Hydra]:
    """Hydra on our options, and on those in `folder` (--config-dir); an application's own Hydra is kept apart.

    Raises:
        ValueError: `folder` is none.
    """
    search_path = create_config_search_path(str(conf_dir()))
    if folder is not None:
        require("--config-dir", Path(folder).is_dir(), "a folder of options", folder)
        path = f"file://{Path(folder).resolve()}"
        search_path.prepend(provider="command-line", path=path, anchor=SearchPathQuery(provider="schema"))
    instance = GlobalHydra.instance()
    outer, instance.hydra = instance.hydra, None
    version.setbase(VERSION_BASE)
    try:
        yield Hydra.create_main_hydra2("specfw", search_path)
    finally:
        instance.hydra = outer


def prepare(hydra: Hydra, words: Words, primary: str | None = None) -> str:
    """Import plugins and store what lies in no file.

    Args:
        hydra: from `session`.
        words: of the command line.
        primary: another primary configuration than ours (--config-name).

    Returns:
        The name of the primary configuration to compose.

    Raises:
        ValueError: a plugin that cannot be imported, a record that cannot be replayed.
    """
    registry.load_plugins(words.plugins)
    # for a sweep over all of them, those of a plugin too
    OmegaConf.register_new_resolver("specfw.lossless", lambda: ",".join(lossless()), replace=True)
    store.renew(hydra.config_loader, primary or PRIMARY, words.lines)
    if words.replay is None:
        return primary or PRIMARY
    require("--config-name", primary is None, "left out with replay, which is a whole configuration", primary)
    return replay.stored(words.replay, conf_dir() / f"{PRIMARY}.yaml")


def composed(hydra: Hydra, primary: str, words: Words, *, sweep: bool = False) -> DictConfig:
    """The composed tree with Hydra's own node; of a sweep what its jobs have in common."""
    return hydra.compose_config(
        primary,
        list(words.lines),
        RunMode.MULTIRUN if sweep else RunMode.RUN,
        validate_sweep_overrides=not sweep,
    )


def check(hydra: Hydra, primary: str, words: Words) -> Checked:
    """Compose one job and put it through schemas and components; see `checked` for the errors."""
    tree = composed(hydra, primary, words)
    with current(tree):
        return checked(plain(tree, words))


@contextmanager
def current(tree: DictConfig) -> Iterator[None]:
    """Make `tree` what ${hydra:...} in a file is looked up in."""
    holder: Any = HydraConfig.instance()
    outer, holder.cfg = holder.cfg, tree
    try:
        yield
    finally:
        holder.cfg = outer


def is_sweep(tree: DictConfig) -> bool:
    """Whether a file or an override makes a sweep of it, without --multirun."""
    return tree.hydra.mode is RunMode.MULTIRUN


def plain(tree: DictConfig, words: Words) -> Plain:
    """The composed tree as a mapping, without Hydra's node and without what only a command line may say.

    Raises:
        ValueError: a file or a sweep says it.
    """
    config = cast("dict[str, Any]", OmegaConf.to_container(tree))
    config.pop("hydra", None)
    for key, said in zip(COMMAND_LINE_ONLY, (list(words.plugins), words.replay), strict=True):
        found = config.pop(key)
        require(key, found == said, "given on the command line alone", found)
    return config


def guide(hydra: Hydra, primary: str, words: Words) -> str:
    """What --help prints: hydra.help.template, in which `${specfw.options:<group>}` lists a group's options."""
    options = hydra.config_loader.repository.get_group_options  # type: ignore[attr-defined] # no copy of the store
    listed = {group: ", ".join(options(group)) for group in (*GROUPS, "model", "experiment")}
    # the drafter's chain alone can follow another
    listed["sampler"] = ", ".join(name for name in options("sampler") if name != "as_target")
    OmegaConf.register_new_resolver("specfw.options", listed.__getitem__, replace=True)
    return str(composed(hydra, primary, words).hydra.help.template)
