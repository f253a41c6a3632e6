"""Values as TOML writes them: JSON's forms are TOML's too, tables inside values become inline ones."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from pydantic import BaseModel


def value(of: Any) -> str:
    """A number, text, truth, array or inline table."""
    if isinstance(of, BaseModel):
        of = of.model_dump()
    if isinstance(of, dict):
        return "{ " + ", ".join(f"{key(str(k))} = {value(v)}" for k, v in of.items()) + " }" if of else "{}"
    if isinstance(of, list | tuple):
        return "[" + ", ".join(value(item) for item in of) + "]"
    if isinstance(of, Path):
        of = str(of)
    if isinstance(of, str):
        return _quoted(of)
    return json.dumps(of, default=str)


def key(name: str) -> str:
    """Bare where it may be."""
    return name if name.replace("-", "").replace("_", "").isalnum() and name.isascii() else _quoted(name)


def _quoted(text: str) -> str:
    """JSON's string is TOML's basic string, except that TOML wants DEL escaped and no surrogate pairs."""
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")
