"""Speculative decoding on MLX: composed, run, and checked against its own mathematics."""
