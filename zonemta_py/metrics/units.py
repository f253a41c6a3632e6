"""How sizes are written, for everybody: in powers of a thousand, as disks and networks are measured, and named so."""

from __future__ import annotations

_UNITS = ("bytes", "kB", "MB", "GB", "TB")


def size(count: float) -> str:
    """ "512 bytes", "67.1 MB", "80 GB": at most three digits that matter."""
    for unit in _UNITS:
        if count < 1000 or unit == _UNITS[-1]:
            break
        count /= 1000
    return f"{count:,.0f} {unit}" if unit == "bytes" or count >= 100 else f"{count:.3g} {unit}"
