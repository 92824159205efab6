"""Models: toys with known rows, and checkpoints."""

from specfw.backend import bind
from specfw.registry import discover

bind()  # mlx-lm's tokenizers load MLX, and nothing below them here has bound the BLAS

discover(__name__, __path__)
