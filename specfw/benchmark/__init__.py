"""Speed: whole decoders side by side, and the rules alone."""
