"""Reports on campaigns that have ended: where they go, what they are made with, how long they are kept."""

from __future__ import annotations

from pydantic import Field

from zonemta_py.config.section import Section
from zonemta_py.config.values import PathBelow


class ReportsSection(Section):
    """Each campaign's report as a page, made by itself when the campaign has ended. This needs Spark and Java
    (docs/CAMPAIGNS.md); a process of its own makes one after the other, at low priority."""

    folder: PathBelow | None = None
    """Folder that the pages are put into; below server.folder, unless it begins with /. Empty: none are made."""
    lake: PathBelow | None = None
    """A lake that is brought up to date for each report, in which the report also finds the campaign before; below
    server.folder, unless it begins with /. Empty: what a report needs is read from archive/ each time, and not kept."""
    again_after_h: float = Field(72, ge=0, le=24 * 90)
    """Hours after a campaign's end at which its report is made once more, if bounces, complaints, unsubscribes, opens
    or clicks have come since; 0: it is not."""
    keep_days: float = Field(365, ge=0)
    """How long pages are kept; 0: for ever."""
    memory_gb: float = Field(2, ge=0.5, le=1024)
    """Memory for Spark while one is made, in GB."""
