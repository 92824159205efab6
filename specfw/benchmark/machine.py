"""What a page of results must say of where and how it was measured."""

import platform
import shlex
import sys
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from specfw.backend import bind
from specfw.backend.machine import cores

bind()

import mlx.core as mx  # noqa: E402 - the BLAS must be bound before MLX is loaded

PACKAGES = ("specfw", "mlx", "mlx-lm", "numpy", "transformers", "torch")


def machine(folder: Path) -> dict[str, Any]:
    """Processor, cores, BLAS, versions, command line and date; packages that are not installed are left out.

    Args:
        folder: of the job; one that the command line made has Hydra's folder in it.
    """
    backend = bind()
    words = shlex.join(["python", "-m", "specfw", *sys.argv[1:]])
    return {
        "date": f"{datetime.now(UTC):%Y-%m-%d %H:%M} UTC",
        "command": words if (folder / ".hydra").is_dir() else "specfw.run, from Python",
        "processor": backend.processor,
        "cores": cores(),
        "system": f"{platform.system()} {platform.machine()}",
        "device": str(mx.default_device()),
        "blas": backend.blas,
        "blas_version": backend.version,
        "threads": backend.threads,
        "versions": {"python": platform.python_version(), **_versions()},
    }


def _versions() -> dict[str, str]:
    found = {}
    for name in PACKAGES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found
