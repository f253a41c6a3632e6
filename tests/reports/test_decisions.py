"""Which reports are due, by what the queue says and what is noted."""

from dataclasses import replace
from typing import Any

import pytest

from zonemta_py.reports import decisions
from zonemta_py.reports.folder import CampaignReport

HOUR = 3_600_000
END = 1_000 * HOUR
ROW = CampaignReport("spring", END - 5 * HOUR, accepted=9, ended_ms=END)
ONCE = replace(ROW, made=1, made_ms=END + 1, returned=3)


def said(**other: Any) -> dict[str, Any]:
    row = {"name": "spring", "created_ms": ROW.created_ms, "tenant": "", "seq": 7, "accepted": 9, "ended_ms": END}
    return row | {"returned": 0} | other


def test_a_campaign_is_noted_while_it_goes_and_when_it_ends() -> None:
    going = decisions.noticed(None, said(ended_ms=0, accepted=2), since_ms=END - HOUR)
    assert going is not None
    assert not decisions.due(going, 0, END + HOUR, 72 * HOUR)
    assert decisions.noticed(going, said(ended_ms=0, accepted=5), 0) is None, "no writing for each recipient"
    ended = decisions.noticed(going, said(), 0)
    assert ended is not None
    assert (ended.accepted, decisions.due(ended, 0, END, 72 * HOUR)) == (9, True)
    assert decisions.noticed(ended, said(returned=4), 0) is None


def test_what_had_ended_before_is_left_alone() -> None:
    assert decisions.noticed(None, said(), since_ms=END + 1) is None
    assert decisions.noticed(None, said(), since_ms=END) is not None


def test_what_the_queue_has_forgotten_has_ended() -> None:
    """Though nobody was there to see it; its report is not forgotten."""
    row = decisions.gone(replace(ROW, ended_ms=0, accepted=0), END + HOUR)
    assert row is not None
    assert decisions.due(row, None, END + HOUR, 0)
    assert decisions.gone(ROW, END + HOUR) is None


def test_nothing_sent_nothing_to_report() -> None:
    assert not decisions.due(replace(ROW, accepted=0), 0, END, 72 * HOUR)


@pytest.mark.parametrize(
    ("returned", "hours", "again", "wanted"),
    [
        (4, 72, 72, True), (4, 71, 72, False), (3, 72, 72, False), (None, 72, 72, True), (None, 71, 72, False),
        (9, 500, 0, False),
    ],
)  # fmt: skip
def test_once_more_if_anything_came_since(returned: int | None, hours: int, again: int, wanted: bool) -> None:
    assert decisions.due(ONCE, returned, END + hours * HOUR, again * HOUR) is wanted


def test_not_again_for_what_comes_later_still() -> None:
    """Whether it is made again is decided once, when its time has come."""
    quiet = decisions.settled(ONCE, 3, END + 72 * HOUR, 72 * HOUR)
    assert quiet is not None
    assert not decisions.due(quiet, 9, END + 99 * HOUR, 72 * HOUR)
    assert decisions.settled(ONCE, 4, END + 72 * HOUR, 72 * HOUR) is None
    twice = decisions.made(decisions.trying(ONCE, 4, END + 72 * HOUR), END + 73 * HOUR, "/pages")
    assert (twice.made, twice.returned) == (2, 4)
    assert not decisions.due(twice, 9, END + 99 * HOUR, 72 * HOUR)


def test_one_that_goes_on_after_its_end_gets_another() -> None:
    open_again = decisions.noticed(replace(ONCE, made=2, file="x.html"), said(ended_ms=0), 0)
    assert open_again is not None
    assert not decisions.due(open_again, 9, END + 99 * HOUR, 72 * HOUR)
    assert open_again.file == "x.html", "which is there until the next one takes its place"
    ended = decisions.noticed(open_again, said(ended_ms=END + 50 * HOUR), 0)
    assert ended is not None
    assert decisions.due(ended, 0, END + 50 * HOUR, 0)


def test_tries_are_further_and_further_apart_and_end() -> None:
    row, now, waits = ROW, END, []
    while decisions.due(row, 0, now, 0):
        row = decisions.failed(decisions.trying(row, 0, now), "no", lasting=False)
        waits.append(row.next_ms - now)
        assert not decisions.due(row, 0, row.next_ms - 1, 0)
        now = row.next_ms
    assert len(waits) == decisions.TRIES_MAX
    assert (waits[0], waits[1], waits[-1]) == (60_000, 120_000, 6 * HOUR)


@pytest.mark.parametrize("why", ["no Java", decisions.INTERRUPTED])
def test_what_lacks_a_program_or_was_interrupted_is_tried_for_ever(why: str) -> None:
    row, now = ROW, END
    for _ in range(50):
        assert decisions.due(row, 0, now, 0)
        begun = decisions.trying(row, 0, now)
        assert decisions.interrupted(row) is None
        cut = why == decisions.INTERRUPTED
        ended = decisions.interrupted(begun) if cut else decisions.failed(begun, why, lasting=True)
        assert ended is not None
        row = ended
        assert (row.trouble, row.next_ms - now <= 3 * HOUR) == (why, True)
        now = row.next_ms


def test_how_long_pages_are_kept() -> None:
    assert decisions.outdated(ONCE, END + 25 * HOUR, 24 * HOUR)
    assert not decisions.outdated(ONCE, END + 24 * HOUR, 24 * HOUR)
    assert not decisions.outdated(ONCE, END + 9_999 * HOUR, 0)
    assert not decisions.outdated(replace(ONCE, ended_ms=0), END + 9_999 * HOUR, 24 * HOUR)
