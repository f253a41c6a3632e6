"""Which configuration a command line means, and whether that enables plugins: without loading what would load them."""

from __future__ import annotations

import os
import tomllib
from collections.abc import Sequence
from pathlib import Path

from zonemta_py import USUAL_CONFIG


def named_file(arguments: Sequence[str]) -> Path | None:
    """The configuration that a command line means; None: there is none."""
    for place, word in enumerate(arguments):
        if word == "--":
            break
        if word in ("--config", "-c") and place + 1 < len(arguments):
            return Path(arguments[place + 1])
        for begins in ("--config=", "-c"):
            if word.startswith(begins) and len(word) > len(begins):
                return Path(word.removeprefix(begins))
    if file := os.environ.get("ZONEMTA_CONFIG"):
        return Path(file)
    return Path(USUAL_CONFIG) if os.path.exists(USUAL_CONFIG) else None


def enables_plugins(file: Path | None) -> bool:
    """Whether it is worth loading."""
    if file is None:
        return False
    try:
        table = tomllib.loads(file.read_text("utf-8")).get("plugins", {})
        return bool(isinstance(table, dict) and table.get("enabled"))
    except (OSError, ValueError):
        return False
