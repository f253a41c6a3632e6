"""The filter of the queue as a form, and as what the queue is asked (`queue/tasks/where.py`). Pure."""

from __future__ import annotations

from collections.abc import Mapping, Set
from typing import Any

from zonemta_py.metrics.quantities import WAITING
from zonemta_py.web.dashboard.words import Wrong, seconds

USUAL = (
    ("recipient", "To"), ("sender", "From"), ("domain", "Domain"), ("subject", "Subject has"),
)  # fmt: skip
MORE = (
    ("campaign", "Campaign"), ("tenant", "Tenant"), ("provider", "Provider"), ("site", "Site"), ("source", "Source"),
    ("user", "Login"), ("id", "Message id"), ("class", "Class of last reply"), ("priority", "Priority"),
    ("older", "Older than"), ("younger", "Younger than"),
)  # fmt: skip
CHOICES = ("zone", "state")
NAMES = (*(name for name, _ in (*USUAL, *MORE)), *CHOICES)


def chosen(form: Mapping[str, str]) -> dict[str, str]:
    """What was filled in."""
    return {name: text for name in NAMES if (text := form.get(name, "").strip())}


def where(filled: Mapping[str, str]) -> dict[str, Any]:
    """Several values with commas mean any of them. Raises Wrong."""
    found: dict[str, Any] = {}
    for name, text in filled.items():
        if name in ("older", "younger"):
            found[f"{name}_s"] = seconds(text)
        elif name == "priority":
            try:
                found[name] = int(text)
            except ValueError:
                raise Wrong(f"the priority is {text[:20]!r}; use -9 to 9") from None
        elif name == "subject":
            found[name] = text
        else:
            values = [one.strip() for one in text.split(",") if one.strip()]
            found[name] = values if len(values) > 1 else text
    return found


COUNTED: tuple[Set[str], ...] = (
    set(), {"zone"}, {"domain"}, {"zone", "domain"}, {"provider"}, {"campaign"}, {"tenant"},
    {"campaign", "tenant"},
)  # fmt: skip


def counted(filled: Mapping[str, str]) -> dict[str, str] | None:
    """What to ask the sizes for (`queue/admin/browse/counts.py`), which are exact; None: nobody counts such mail."""
    named = {name: text for name, text in filled.items() if name != "state"}
    single = all("*" not in text and "," not in text for text in filled.values())
    return named if single and set(named) in COUNTED else None


def matching(filled: Mapping[str, str], sizes: Mapping[str, Any]) -> int | None:
    """How many of the sizes of what is `counted` the whole filter means; None: that is not known."""
    counts = sizes.get("total", sizes)
    states = (filled["state"],) if "state" in filled else WAITING
    return sum(counts[name] for name in states) if all(name in counts for name in states) else None
