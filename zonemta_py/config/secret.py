"""The secrets in a configuration: hidden in output, and a reason to keep the file unreadable for others."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

HIDDEN = "(hidden, see the file)"
_KEYS = frozenset(("password", "system_password", "secret", "secrets", "earlier_secrets", "users"))
_OPTION = re.compile(r"pass|secret|token|credential|api_?key|auth", re.IGNORECASE)
"""In names of plugins' options, whose purpose is unknown here."""
_LOGIN = re.compile(r"(?<=://)[^/@\s]+@")


def hidden(key: str, value: Any, plugins: bool = False) -> Any:
    """The value, or a stand-in if it is secret. plugins: the key is in [plugins.options]."""
    if isinstance(value, dict) and key not in _KEYS:
        return {name: hidden(str(name), one, plugins) for name, one in value.items()}
    if value and not isinstance(value, bool) and (key in _KEYS or (plugins and _OPTION.search(key))):
        return HIDDEN
    if isinstance(value, list | tuple):
        return [hidden(key, one, plugins) for one in value]
    return _LOGIN.sub("***@", value) if isinstance(value, str) else value


def in_place(place: Sequence[int | str], value: Any, plugins: bool = False) -> Any:
    """An invalid value as an error may show it; `place`: the keys that lead to it. Where a key's hash belongs, an
    operator may have written the key itself."""
    for part in place:
        value = hidden(str(part), value, plugins)
    return HIDDEN if "hash" in place[-1:] else hidden("", value, plugins)


def warning(path: Path, rows: dict[str, Any]) -> str:
    """One sentence if everybody can read what is secret in the file; else "". rows: the configuration as plain data."""
    if not path.stat().st_mode & 0o004:
        return ""
    rows = {key: _plain(value) for key, value in rows.items()}
    options = rows.get("plugins", {}).pop("options", {})
    if hidden("", rows) == rows and hidden("", options, plugins=True) == options:
        return ""
    return f"{path}: contains passwords or secrets, and everybody can read it; `chmod o-r {path}`"


def _plain(value: Any) -> Any:
    """With lists for tuples."""
    if isinstance(value, dict):
        return {key: _plain(one) for key, one in value.items()}
    return [_plain(one) for one in value] if isinstance(value, list | tuple) else value
