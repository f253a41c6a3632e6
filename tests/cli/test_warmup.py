"""`zonemta warmup` against a real queue: the table, its bar, the days that were."""

import json
from collections.abc import Callable
from typing import Any

import pytest

from tests.cli.conftest import Noon
from zonemta_py.cli.queue.warmup import BAR_CELLS, _row
from zonemta_py.cli.terminal.errors import Exit
from zonemta_py.mail.envelope import Envelope, Recipient
from zonemta_py.mail.reply import Reply
from zonemta_py.queue.api import DEFERRED, DELIVERED, Outcome, Result
from zonemta_py.queue.queue import LocalQueue

BODY = b"Subject: x\r\n\r\nHi\r\n"
COLD = {
    "zones": [{"name": "default", "pool": "p"}],
    "pools": [{"name": "p", "sources": [{"address": "127.0.0.2", "warmup": "gentle"}]}],
    "warmups": [{"name": "gentle", "caps": [4, 10, 20], "least": 2}],
}


async def send(queue: LocalQueue) -> None:
    """Two recipients: one delivered, one deferred."""
    for number, (verdict, code) in enumerate(((DELIVERED, 250), (DEFERRED, 451))):
        envelope = Envelope("ann@example.com", [Recipient(f"r{number}@x.org")], len(BODY))
        envelope.received_ms = queue.core.clock.ms()
        await queue.accept(envelope, BODY)
        (delivery,) = await queue.lease(1, "sender-1")
        await queue.settle(Result(delivery.lease, [Outcome(verdict, Reply(code, "", "said"), "dot", [0])]))
        await queue.core.disk.lines.stable()


def test_where_each_source_stands(served: Callable[..., Any], told: Callable[..., Any]) -> None:
    """Step, cap, what was sent with a bar, shares, today's verdict, the next cap."""
    queue = served(Noon(), **COLD)
    assert "No source that is warming up" in told("warmup").out
    queue.do(send)
    (row,) = json.loads(told("warmup", "--json").out)
    assert (row["source"], row["provider"], row["sent"], row["cap"], row["next"]) == ("127.0.0.2", "x.org", 2, 4, 10)
    out = told("warmup").out
    for words in ("127.0.0.2", "x.org", "gentle", "1 of 3", "2 of 4", "50.0%", "bad: 50.0% deferred", "10"):
        assert words in out
    assert "█" * (BAR_CELLS // 2) in out
    assert "█" * (BAR_CELLS // 2 + 1) not in out


def test_the_days_that_were(served: Callable[..., Any], told: Callable[..., Any]) -> None:
    """Only when asked for."""
    queue = served(Noon(), **COLD)

    async def good_day(queue: LocalQueue) -> None:
        days = queue.core.schedule.policy.warmups.of("127.0.0.2", "google")
        assert days is not None
        today = queue.core.clock.ms()
        days.room(today - 86_400_000)
        days.take(3)
        days.result(delivered=3)
        days.room(today)

    queue.do(good_day)
    assert "Past days" not in told("warmup").out
    out = told("warmup", "--history").out
    assert "2 of 3" in out
    assert "cap 4 sent 3 good" in out


def test_a_source_is_put_on_another_step(served: Callable[..., Any], told: Callable[..., Any]) -> None:
    """Back, forward, or behind the last one; the table and the days that were show it."""
    queue = served(Noon(), **COLD)
    queue.do(send)
    ran = told("warmup", "set", "127.0.0.2", "x.org", "3")
    assert ran.code == Exit.OK
    assert ran.out == "127.0.0.2 at x.org is at step 3 of 3, 20 recipients per day, now\n"
    assert "2 of 20" in told("warmup").out
    assert "at x.org is warm, without a limit, now" in told("warmup", "set", "127.0.0.2", "x.org", "warm").out
    assert "2, no limit" in told("warmup").out
    assert "at step 1 of 3, 4 recipients per day" in told("warmup", "set", "127.0.0.2", "x.org", "1").out
    assert "at google is at step 2 of 3" in told("warmup", "set", "127.0.0.2", "google", "2").out, "in advance"
    (google, site) = json.loads(told("warmup", "--json").out)
    assert (google["provider"], google["cap"], site["provider"], site["cap"]) == ("google", 10, "x.org", 4)
    history = told("warmup", "--history").out
    assert "set to step 3 of 3 by order" in history
    assert "set to warm by order" in history


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (["127.0.0.9", "google", "1"], Exit.DATA, "no source '127.0.0.9' is warming up; use 127.0.0.2"),
        (["127.0.0.2", "gogle", "1"], Exit.DATA, "there is no provider or site 'gogle'; use one that"),
        (["127.0.0.2", "google", "4"], Exit.DATA, "has no step 4; use 1 to 3, or warm"),
        (["127.0.0.2", "google", "0"], Exit.DATA, "has no step 0; use 1 to 3, or warm"),
        (["127.0.0.2", "google", "cold"], Exit.USAGE, "'cold' is not a step; write its number as"),
        (["127.0.0.2", "google", "9" * 5000], Exit.USAGE, "is not a step; write its number"),
        (["127.0.0.2", "google"], Exit.USAGE, "STEP"),
    ],
)
def test_orders_that_are_wrong(
    served: Callable[..., Any], told: Callable[..., Any], arguments: list[str], code: Exit, said: str
) -> None:
    """One sentence with what there is."""
    served(Noon(), **COLD)
    ran = told("warmup", "set", *arguments)
    assert ran.code == code
    assert said in ran.err
    assert len(ran.err.splitlines()) == 1


def test_options_may_stand_before_the_order(served: Callable[..., Any], zonemta: Callable[..., Any]) -> None:
    """zonemta warmup --folder DIR set … is the same as with the option behind it."""
    queue = served(Noon(), **COLD)
    ran = zonemta("warmup", "--folder", queue.config.folder, "set", "127.0.0.2", "google", "2")
    assert ran.code == Exit.OK
    assert "at google is at step 2 of 3" in ran.out


@pytest.mark.parametrize(
    ("state", "cells"),
    [
        ({"step": 2, "sent": 1, "cap": 20, "next": None}, ("3 of 3", "1 of 20", "no limit")),
        ({"step": 3, "sent": 5000, "cap": None, "next": None, "warm": True}, ("warm", "5,000, no limit", "")),
    ],
)
def test_the_last_steps(state: dict[str, Any], cells: tuple[str, str, str]) -> None:
    """Behind the last cap there is no limit."""
    row = {
        "source": "127.0.0.2", "provider": "google", "schedule": "gentle", "steps": 3, "attempts": 0, "deferred": 0.0,
        "blocked": 0.0, "today": "quiet", "warm": False, "history": [], **state,
    }  # fmt: skip
    shown = _row(row)
    assert (shown[3], shown[8]) == (cells[0], cells[2])
    assert str(shown[4]).endswith(cells[1])
