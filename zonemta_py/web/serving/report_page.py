"""A campaign's report as a page: for whoever may see the campaign, under a policy by which it draws its plots and does
nothing else.

The page brings its own policy (`pipeline/report/page.py`). This one is sent with it: only the scripts run whose hashes
stand in its head, it may ask for nothing, and it is of no site (sandbox), so that it reaches no session of the
dashboard's. Failures: NoReport, one sentence; OSError.
"""

from __future__ import annotations

import asyncio
import re
from dataclasses import replace
from pathlib import Path

from starlette.responses import FileResponse

from zonemta_py.config import Config
from zonemta_py.reception.scope import KeyScope
from zonemta_py.reports.folder import CampaignReport, ReportShelf

_HASH = re.compile(rb"'sha256-[A-Za-z0-9+/]{43}='")
_HEAD_BYTES = 1024
_POLICY = (
    "default-src 'none'; script-src {}; style-src 'unsafe-inline'; img-src data: blob:; base-uri 'none';"
    " form-action 'none'; frame-ancestors 'none'; sandbox allow-scripts allow-downloads"
)
_HEADERS = {
    "x-frame-options": "DENY",
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "cache-control": "no-store",
}


class NoReport(Exception):
    """Why there is none: one sentence."""


async def known(config: Config, name: str, scope: KeyScope) -> CampaignReport | None:
    """What is known of the report of the campaign, made_ms 0 without a page; None: nothing, or it is not in the scope.
    Raises OSError."""
    found = await asyncio.to_thread(_found, config, name)
    return found[0] if found is not None and _covered(found[0], scope) else None


async def shown(config: Config, name: str, scope: KeyScope) -> FileResponse:
    """The page. Raises NoReport, OSError."""
    found = await asyncio.to_thread(_found, config, name)
    if found is None or not _covered(found[0], scope) or found[1] is None:
        wanted = "is made when it has ended" if config.reports_folder else "is made where [reports] names a folder"
        why = f" ({found[0].trouble})" if found is not None and _covered(found[0], scope) and found[0].trouble else ""
        raise NoReport(
            f"there is no report on the campaign {name!r}{why}; one {wanted}, or by `zonemta campaign report`"
        )
    policy = _POLICY.format(await asyncio.to_thread(_hashes, found[1]))
    return FileResponse(found[1], headers=_HEADERS | {"content-security-policy": policy}, media_type="text/html")


def _found(config: Config, name: str) -> tuple[CampaignReport, Path | None] | None:
    shelf = ReportShelf(config)
    row = shelf.newest(name)
    if row is None:
        return None
    page = shelf.page(row)
    return row if page else replace(row, made_ms=0), page


def _covered(row: CampaignReport, scope: KeyScope) -> bool:
    return not scope.bound or scope.covers(row.tenant, row.name)


def _hashes(path: Path) -> str:
    """Of its scripts, as its head names them."""
    with path.open("rb") as file:
        found = _HASH.findall(file.read(_HEAD_BYTES))
    return b" ".join(found).decode() or "'none'"
