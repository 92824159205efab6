"""Configuration: the only part, with `__main__`, that knows Hydra and OmegaConf. Plain mappings leave it."""
