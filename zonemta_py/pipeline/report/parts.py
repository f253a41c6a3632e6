"""What a page is made of, and what its parts share. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from zonemta_py.pipeline.report.tables import Table

if TYPE_CHECKING:
    import plotly.graph_objects as go

NAMES_MAX = 12
OTHERS = "others"


@dataclass(frozen=True)
class Plot:
    """alt: what it shows, for those who cannot see it. switch: names of layers, of which one is shown."""

    id: str
    figure: go.Figure
    alt: str
    title: str = ""
    switch: Sequence[tuple[str, str]] = ()


@dataclass(frozen=True)
class PageSection:
    id: str
    title: str
    says: str
    plots: Sequence[Plot]
    table: Table
    open: bool = False
    wide: bool = True
    """Takes the whole width of a wide page."""


def largest(counts: Sequence[tuple[str, int]]) -> list[str]:
    """The names with the largest sums, at most so many that they and "others" fit; largest first."""
    sums: dict[str, int] = {}
    for name, count in counts:
        sums[name] = sums.get(name, 0) + count
    order = sorted(sums, key=lambda name: (-sums[name], name))
    return order if len(order) <= NAMES_MAX + 1 else order[:NAMES_MAX]


def rounded(part: int, whole: int, digits: int = 2) -> float | None:
    """Per cent; None of nothing."""
    return round(100 * part / whole, digits) if whole else None
