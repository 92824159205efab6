"""Hydra's loader of configurations for a sweep, whose jobs differ in a few values."""

import copy
from collections.abc import Sequence
from typing import Any, cast, final

from hydra._internal.config_loader_impl import ConfigLoaderImpl, get_overrides_dirname
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Override
from omegaconf import DictConfig, OmegaConf

_MOST_KEPT = 16
_STRUCTURAL = "hydra.searchpath"


@final
class JobsLoader(ConfigLoaderImpl):
    """Composes once for each choice of options, and puts the values of a job into a copy.

    Hydra composes every job twice from all its files, to see that it can be and to run it, which costs more than a
    small job. The result is the same: values are put in last there too.
    """

    def __init__(self, *arguments: Any) -> None:
        """See ConfigLoaderImpl."""
        super().__init__(*arguments)
        self._forget()

    def _forget(self) -> None:
        self._made: dict[tuple[str, ...], DictConfig] = {}
        self._is_group: dict[str, bool] = {}

    def load_sweep_config(self, master_config: DictConfig, sweep_overrides: list[str]) -> DictConfig:
        """The configuration of one job."""
        parsed = OverridesParser.create().parse_overrides(sweep_overrides)
        master = _of_hydra(master_config)
        values = [override for override in parsed if not self._is_choice(override, master_config, master)]
        choices = [override for override in parsed if override not in values]
        config = copy.deepcopy(self._composed(master_config, [str(choice.input_line) for choice in choices]))
        self._apply_overrides_to_config(values, config)
        _tell(config, master, parsed)
        OmegaConf.copy_cache(from_config=master_config, to_config=config)
        return config

    def _composed(self, master_config: DictConfig, choices: list[str]) -> DictConfig:
        key = (*_of_hydra(master_config), *choices)
        if key not in self._made:
            if len(self._made) >= _MOST_KEPT:
                del self._made[next(iter(self._made))]
            self._made[key] = super().load_sweep_config(master_config, choices)
        return self._made[key]

    def _is_choice(self, override: Override, master_config: DictConfig, master: list[str]) -> bool:
        """Whether it chooses an option, or changes where options are looked for."""
        key = override.key_or_group
        if key not in self._is_group:
            name = master_config.hydra.job.config_name
            _, repository = self._parse_overrides_and_create_caching_repo(name, master)
            self._is_group[key] = repository.group_exists(key)
        return override.package is not None or self._is_group[key] or key == _STRUCTURAL

    def __getstate__(self) -> dict[str, Any]:
        """Workers compose by themselves."""
        return {name: value for name, value in self.__dict__.items() if name not in ("_made", "_is_group")}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._forget()


def _of_hydra(config: DictConfig) -> list[str]:
    """The overrides of Hydra's own node as they were written: what they refer to may be there for a job alone."""
    return cast("list[str]", OmegaConf.to_container(config.hydra.overrides.hydra, resolve=False))


def _tell(config: DictConfig, master: list[str], overrides: Sequence[Override]) -> None:
    """The overrides in Hydra's own node, as Hydra writes them there."""
    lines = {of: [one.input_line for one in overrides if one.is_hydra_override() is of] for of in (False, True)}
    task = [one for one in overrides if not one.is_hydra_override()]
    config.hydra.overrides.task = lines[False]
    config.hydra.overrides.hydra = [*master, *lines[True]]
    naming = config.hydra.job.config.override_dirname
    config.hydra.job.override_dirname = get_overrides_dirname(
        overrides=task, kv_sep=naming.kv_sep, item_sep=naming.item_sep, exclude_keys=naming.exclude_keys
    )
