"""Launchers and sweepers: which are installed, which an extra would bring, and what a sweep must say to go through one.

Imports no MLX.
"""

from collections.abc import Sequence

from specfw.registry import require

from hydra.core.config_store import ConfigStore
from omegaconf import DictConfig, OmegaConf

LAUNCHER, SWEEPER = "hydra/launcher", "hydra/sweeper"
EXTRAS = {
    LAUNCHER: {
        "joblib": "joblib",
        "submitit_slurm": "slurm",
        "submitit_local": "slurm",
        "ray": "ray",
        "ray_local": "ray",
        "ray_cluster": "ray",
    },
    SWEEPER: {"optuna": "optuna"},
}
"""The extra of specfw that brings an option of Hydra's."""

_BASIC = "basic"


def absent(group: str, name: str, asked: str) -> str | None:
    """One sentence about an option of Hydra's that nothing installed offers; None where no extra would bring it.

    Args:
        group: of the option.
        name: of the option.
        asked: the option that was given, which may be made of `name`.
    """
    extra = EXTRAS.get(group, {}).get(name)
    if extra is None:
        return None
    installed = (file.removesuffix(".yaml") for file in ConfigStore.instance().list(group) if file.endswith(".yaml"))
    return (
        f"{group} must be one of: {', '.join(sorted(installed))}; got {asked!r}, which is not installed: "
        f"python -m pip install 'specfw[{extra}]', in a checkout python -m pip install -e '.[{extra}]'"
    )


def require_launchable(tree: DictConfig, objectives: Sequence[str], *, sweep: bool) -> None:
    """Refuse what Hydra would drop, and a search that has nothing to search for.

    Args:
        tree: composed, what the jobs have in common.
        objectives: the values `task.objective` may have.
        sweep: whether it is one.

    Raises:
        ValueError: a launcher or sweeper of a single run; a search without an objective, or for a small one.
    """
    for group in EXTRAS:
        chosen = tree.hydra.runtime.choices.get(group, _BASIC)
        require(group, sweep or chosen == _BASIC, f"{_BASIC} without --multirun", chosen)
    if tree.hydra.runtime.choices.get(SWEEPER) == "optuna":
        objective = OmegaConf.select(tree, "task.objective")
        require(
            "task.objective", objective in objectives, f"one of: {', '.join(objectives)}, to be searched for", objective
        )
        direction = tree.hydra.sweeper.direction
        largest = getattr(direction, "name", direction) == "maximize"
        require("hydra.sweeper.direction", largest, f"maximize for {objective}", getattr(direction, "name", direction))
