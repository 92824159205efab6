"""Reading checkpoints with mlx-lm, which is imported only when one is loaded: it takes a second."""
