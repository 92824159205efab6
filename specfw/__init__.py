"""Speculative decoding on MLX: composed, run, and checked against its own mathematics.

    >>> import specfw
    >>> config = specfw.compose(["pair=iid", "acceptance=stochastic", "seed=1"])
    >>> summary = specfw.run(config)

Importing this package imports the standard library only.
"""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, cast

if TYPE_CHECKING:
    from specfw.summary import Summary

__all__ = ["compose", "run"]


def compose(overrides: Sequence[str] = ()) -> dict[str, Any]:
    r"""The configuration that `python -m specfw <overrides>` would run.

    Args:
        overrides: as on a command line, e.g. `["acceptance=stochastic", "sampler.temperature.value=0.7"]`;
            `plugins=[...]` and `replay=...` among them.

    Returns:
        A plain mapping, to be changed at will and given to `run`. The draft chain's values are interpolations
        (`${sampler.temperature.value}`) where they follow the target's; a literal `${` is written `\${`.

    Raises:
        ValueError: whatever the command would refuse with exit status 2 before it reads a model.
    """
    from specfw.config.caller import compose as composed

    return composed(overrides)


def run(config: Mapping[str, Any], *, acceptance: str | None = None) -> "Summary":
    """Run `config` as the command would, in a new folder under `outputs/` (or SPECFW_OUTPUTS).

    Args:
        config: from `compose`.
        acceptance: a rule that beats the configuration and the environment.

    Returns:
        What the configured task measured and decided.

    Raises:
        ValueError: bad input.
        FailedCheckError: a check failed on the way.
    """
    from specfw.config.caller import run as started

    return cast("Summary", started(config, acceptance))
