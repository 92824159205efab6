"""The rules alone: one round decided from logits."""
