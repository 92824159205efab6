import os

# Exact equality holds on the reference BLAS (one row and K + 1 rows give the same bits), and one thread a
# worker keeps two workers on two cores. Set before anything imports MLX.
os.environ["SPECFW_BLAS"] = "reference"
os.environ["SPECFW_BLAS_THREADS"] = "1"
os.environ.pop("SPECFW_STOCHASTIC_ACCEPT", None)

from specfw import registry
from specfw.backend import bind

bind()

import mlx.core as mx  # noqa: E402 - after the BLAS is bound
import pytest  # noqa: E402
from screen import attach  # noqa: E402, F401 - a fixture

mx.set_default_device(mx.cpu)

ON_REQUEST = ("launchers", "slurm", "browser")
"""Markers of tests that need more than the test group installs: they run where -m names them."""


@pytest.fixture(autouse=True)
def plugins_of_a_test(monkeypatch):
    """What a test loads is loaded for it alone: records name it, and audits ask for it."""
    monkeypatch.setattr(registry, "_plugins", dict(registry._plugins))


def pytest_collection_modifyitems(config, items):
    asked = config.getoption("markexpr")
    unasked = [name for name in ON_REQUEST if name not in asked]
    left_out = [item for item in items if any(item.get_closest_marker(name) for name in unasked)]
    if left_out:
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if item not in left_out]
