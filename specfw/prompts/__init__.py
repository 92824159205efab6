"""Sources of prompts, one file each."""

from specfw.registry import discover

discover(__name__, __path__)
