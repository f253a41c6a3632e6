"""The filter of the queue as a form, and as what the queue is asked (`queue/tasks/where.py`). Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from zonemta_py.reception.http.dashboard.words import seconds

USUAL = (
    ("recipient", "To"), ("sender", "From"), ("domain", "Domain"), ("subject", "Subject has"),
)  # fmt: skip
MORE = (
    ("campaign", "Campaign"), ("tenant", "Tenant"), ("provider", "Provider"), ("site", "Site"), ("source", "Source"),
    ("user", "Login"), ("id", "Message id"), ("class", "Class of last reply"), ("priority", "Priority"),
    ("older", "Older than"), ("younger", "Younger than"),
)  # fmt: skip
CHOICES = ("zone", "state")
STATES = ("queued", "deferred", "leased", "held", "deleted")
NAMES = (*(name for name, _ in (*USUAL, *MORE)), *CHOICES)


def chosen(form: Mapping[str, str]) -> dict[str, str]:
    """What was filled in."""
    return {name: text for name in NAMES if (text := form.get(name, "").strip())}


def where(filled: Mapping[str, str]) -> dict[str, Any]:
    """Several values with commas mean any of them. Raises ValueError."""
    found: dict[str, Any] = {}
    for name, text in filled.items():
        if name in ("older", "younger"):
            found[f"{name}_s"] = seconds(text)
        elif name == "priority":
            try:
                found[name] = int(text)
            except ValueError:
                raise ValueError(f"the priority is {text[:20]!r}; use -9 to 9") from None
        elif name == "subject":
            found[name] = text
        else:
            values = [one.strip() for one in text.split(",") if one.strip()]
            found[name] = values if len(values) > 1 else text
    return found
