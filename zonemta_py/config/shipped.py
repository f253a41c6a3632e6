"""Where the data files shipped with the program are: rules.toml, providers.toml.

They live in config/ of the checkout. This package holds links to them; a built wheel has copies in place of the links.
"""

from __future__ import annotations

from pathlib import Path


def shipped(name: str) -> Path:
    """The file of that name as an operator would name it: in the checkout's config/, or in the installed package."""
    return Path(__file__).with_name(name).resolve()
