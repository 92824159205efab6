"""What the documentation site is made of besides its pages; `setup` is the Sphinx extension."""
