"""Which version this is."""

from __future__ import annotations

from zonemta_py import __version__


def program() -> str:
    """Name and version."""
    return f"zonemta {__version__}"
