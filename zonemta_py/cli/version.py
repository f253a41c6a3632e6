"""Which version this is."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version


def program() -> str:
    """Name and version."""
    try:
        return f"zonemta {version('zonemta-py')}"
    except PackageNotFoundError:  # run from a folder of sources
        return "zonemta (not installed)"
