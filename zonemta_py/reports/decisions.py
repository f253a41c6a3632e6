"""Which reports are due: decided from what the queue says of campaigns and what is known of their reports. Pure.

Times are UNIX ms. A campaign's report is made once when it has ended, and once more later if anything came back since.
A campaign that goes on after its end (what had bounced was queued again) gets another one at its next end.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from zonemta_py.reports.folder import CampaignReport

TRIES_MAX = 12
"""After so many, a person has to look; the last ones are 6 hours apart."""
TRIES_LASTING_MAX = 7
"""What only lacks a program, or was interrupted, is tried for ever: no try counts beyond this one, an hour apart."""
NOW, INTERRUPTED = "it is being made", "it was interrupted"
_FIRST_MS, _LONGEST_MS = 60_000, 6 * 3_600_000


def noticed(known: CampaignReport | None, said: Mapping[str, Any], since_ms: int) -> CampaignReport | None:
    """What is to be noted of a campaign; None: nothing new. said: its row of "campaign-ends". since_ms: what had ended
    before is left alone."""
    ended_ms = said["ended_ms"]
    if known is None:
        if 0 < ended_ms < since_ms:
            return None
        names = ("name", "created_ms", "tenant", "seq", "accepted", "ended_ms")
        return CampaignReport(**{name: said[name] for name in names})
    if ended_ms == known.ended_ms:
        return None
    accepted = said["accepted"]
    return replace(known, ended_ms=ended_ms, accepted=accepted, made=0, tries=0, next_ms=0, trouble="")


def gone(known: CampaignReport, now_ms: int) -> CampaignReport | None:
    """The same of a campaign that the queue has forgotten: so it has ended, though nobody has seen that."""
    return None if known.ended_ms else replace(known, ended_ms=now_ms, accepted=max(1, known.accepted))


def due(row: CampaignReport, returned: int | None, now_ms: int, again_ms: int) -> bool:
    """Whether its report is to be made now. returned: what has come back so far; None: nobody knows any more. again_ms:
    how long after the end it is made again, 0: it is not."""
    if not row.ended_ms or row.tries >= TRIES_MAX or now_ms < row.next_ms:
        return False
    if row.made == 0:
        return row.accepted > 0
    return _again(row, now_ms, again_ms) and (returned is None or returned > row.returned)


def settled(row: CampaignReport, returned: int | None, now_ms: int, again_ms: int) -> CampaignReport | None:
    """What is to be noted once it need not be made again; None: nothing."""
    if _again(row, now_ms, again_ms) and returned is not None and returned <= row.returned:
        return replace(row, made=2)
    return None


def _again(row: CampaignReport, now_ms: int, again_ms: int) -> bool:
    return bool(row.made == 1 and row.ended_ms and again_ms and now_ms >= row.ended_ms + again_ms)


def trying(row: CampaignReport, returned: int | None, now_ms: int) -> CampaignReport:
    """To be noted before a try, so that one that ends the machine is not made at once at every start."""
    tries = row.tries + 1
    wait_ms = min(_LONGEST_MS, _FIRST_MS << min(tries - 1, 16))
    asked = row.asked if returned is None else returned
    return replace(row, tries=tries, next_ms=now_ms + wait_ms, asked=asked, trouble=NOW)


def interrupted(row: CampaignReport) -> CampaignReport | None:
    """What is to be noted at a start; None: nothing."""
    return failed(row, INTERRUPTED, lasting=True) if row.trouble == NOW else None


def failed(row: CampaignReport, trouble: str, lasting: bool) -> CampaignReport:
    """After a try. lasting: it is tried until it succeeds."""
    tries = min(row.tries, TRIES_LASTING_MAX) if lasting else row.tries
    return replace(row, tries=tries, trouble=trouble)


def made(row: CampaignReport, now_ms: int, place: str) -> CampaignReport:
    """Once its page is there. place: the folder."""
    return replace(
        row, made=row.made + 1, made_ms=now_ms, returned=row.asked, tries=0, next_ms=0, trouble="",
        file=row.page_name, place=place,
    )  # fmt: skip


def outdated(row: CampaignReport, now_ms: int, keep_ms: int) -> bool:
    """Whether its page has been kept for long enough. keep_ms 0: never."""
    return bool(keep_ms and row.ended_ms and now_ms > max(row.ended_ms, row.made_ms) + keep_ms)
