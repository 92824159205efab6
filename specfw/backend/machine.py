"""What this machine is: its processor, its cores, whether MLX computes on a GPU here."""

import os
import platform
import subprocess
import sys
from importlib import metadata
from itertools import takewhile
from pathlib import Path

_CUDA_WHEELS = ("mlx-cuda-12", "mlx-cuda-13")
_CUDA_DEVICES = (Path("/dev/nvidiactl"), Path("/dev/dxg"))


def processor() -> str:
    """The processor's model, e.g. `AMD EPYC (family 26, model 2, stepping 1)`; it fixes the bits of a run.

    Hypervisors shorten the name, so family, model and stepping stand beside it where the kernel tells them.
    """
    if sys.platform == "darwin":
        brand = _output("sysctl", "-n", "machdep.cpu.brand_string").strip()
        return brand or platform.processor() or platform.machine()
    facts = _first_core()
    name = facts.get("model name") or platform.processor() or platform.machine()
    details = {"family": "cpu family", "model": "model", "stepping": "stepping"}
    details |= {"implementer": "CPU implementer", "part": "CPU part"}
    known = ", ".join(f"{word} {facts[key]}" for word, key in details.items() if key in facts)
    return f"{name} ({known})" if known else name


def cores() -> int:
    """How many cores this process may use."""
    if sys.platform == "linux":
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def mlx_version() -> str | None:
    """The installed MLX, without importing it; None where there is none."""
    return _version("mlx")


def computes_on_gpu() -> bool:
    """Whether MLX's default device is a GPU: a CUDA build of it is installed and a device is there."""
    return any(map(Path.exists, _CUDA_DEVICES)) and any(map(_version, _CUDA_WHEELS))


def _first_core() -> dict[str, str]:
    try:
        with Path("/proc/cpuinfo").open(errors="replace") as lines:
            pairs = (line.partition(":") for line in takewhile(str.strip, lines))
            return {name.strip(): value.strip() for name, _, value in pairs}
    except OSError:
        return {}


def _version(distribution: str) -> str | None:
    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return None


def _output(*command: str) -> str:
    try:
        return subprocess.run(command, capture_output=True, text=True, check=False).stdout
    except OSError:
        return ""
