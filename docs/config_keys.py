"""Every option and every key of a configuration, as Markdown: `python docs/config_keys.py`.

The schemas, the components' docstrings and refusals, and the files of conf/ are asked; the site shows the same.
"""
# ruff: noqa: INP001 # a script beside the pages it serves

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

from site_tools.key_page import body

if __name__ == "__main__":
    sys.stdout.write(body())
