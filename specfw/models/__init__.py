"""Models: toys with known rows, and checkpoints."""

from specfw.registry import discover

discover(__name__, __path__)
