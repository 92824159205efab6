"""Checkpoints of the Hugging Face hub, fetched by mlx-lm's own means into the cache that other programs share.

Code that lies beside the weights is not even fetched. Without a network, or with HF_HUB_OFFLINE=1, what the cache
holds is used; HF_HUB_CACHE says where it is.
"""

import re
from pathlib import Path

_ID = re.compile(r"[\w.-]+/[\w.-]+")
_COMMIT = re.compile(r"[0-9a-f]{40}")


def is_id(path: str) -> bool:
    """Whether `path` is written like `organisation/model`."""
    return _ID.fullmatch(path) is not None and not path.startswith(".")


def fetch(name: str, revision: str | None, role: str) -> Path:
    """The snapshot of a repository, downloaded as far as it is not in the cache.

    Args:
        name: `organisation/model`.
        revision: branch, tag or commit; None is the main branch.
        role: for messages.

    Raises:
        ValueError: there is no such repository or revision, or it can be had neither from the hub nor from the cache.
    """
    from mlx_lm import utils

    data = [pattern for pattern in utils.DEFAULT_ALLOW_PATTERNS if pattern != "*.py"]
    try:
        return utils._download(name, revision=revision, allow_patterns=data)  # noqa: SLF001 # what its loader calls
    except Exception as error:
        at = f" at revision {revision!r}" if revision else ""
        reason = " ".join(str(error).split())[:300].removesuffix(".")
        raise ValueError(
            f"{role}.path must be a local folder in mlx-lm's layout, zoo:target, zoo:drafter, or a model of the "
            f"Hugging Face hub; there is no folder {name!r} here, and the hub's{at} cannot be had ({reason})"
        ) from error


def commit(snapshot: Path) -> str | None:
    """The commit of a snapshot folder, None where its name does not say."""
    return snapshot.name if _COMMIT.fullmatch(snapshot.name) else None
