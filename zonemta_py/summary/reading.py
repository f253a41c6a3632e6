"""What a question reads: the summaries of a span of time, made where they are missing, and in memory where need be."""

from __future__ import annotations

from typing import TYPE_CHECKING

from zonemta_py.summary.file import SegmentSummary, SummaryUnreadable

if TYPE_CHECKING:
    from zonemta_py.summary.shelf import SummaryShelf, Told
    from zonemta_py.summary.views import SegmentCounts


def read(
    shelf: SummaryShelf, since_ms: int, until_ms: int, told: Told = lambda done, total: None,
    views: tuple[str, ...] = ("attempts", "senders", "domains", "replies", "limits"),
) -> list[SegmentSummary | SegmentCounts]:  # fmt: skip
    """Of all segments that may have records of that time. views: those that will be read; a summary in which one is
    damaged is made again. Raises OSError."""
    places = shelf.within(since_ms, until_ms)
    there = {place.path: shelf.holds(place) for place in places}
    for path, summary in there.items():
        if summary is not None and not _whole(summary, views):
            there[path] = None
    unwritten = shelf.make([place for place in places if there[place.path] is None], told)
    found: list[SegmentSummary | SegmentCounts] = []
    for place in places:
        one = there[place.path] or unwritten.get(place.path) or shelf.holds(place)
        if one is not None:
            found.append(one)
    return found


def _whole(summary: SegmentSummary, views: tuple[str, ...]) -> bool:
    try:
        summary.check(views)
    except (SummaryUnreadable, OSError):
        return False
    return True
