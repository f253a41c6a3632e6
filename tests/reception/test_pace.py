"""The time a client may take, lines of log that strangers cause, and turns."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

from zonemta_py.reception.connection_limits import Turns
from zonemta_py.reception.log_throttle import CLIENT_LINES, KIND_LINES, LogThrottle
from zonemta_py.reception.login import FREE_TRIES, delay_s
from zonemta_py.reception.smtp.pace import ClientPace


def test_bytes_of_a_message_buy_time_but_never_more_than_the_limit() -> None:
    """At the least rate the client stays as late as it was; above it, it gains; our own time does not count."""
    pace = ClientPace(10, 100, now=0)
    assert pace.late_at == 10
    pace.receive(500, now=5)
    assert pace.late_at == 15
    pace.receive(1_000_000, now=6)
    assert pace.late_at == 16
    pace.stop(now=10)
    pace.go_on(now=100)
    assert pace.late_at == 106
    pace.ask(now=101)
    assert pace.late_at == 111


def test_the_log_says_what_goes_on_and_how_much_it_left_out(caplog: Any) -> None:
    """A few lines about each client, some about all, and a count with the next one."""
    now = [0.0]
    notes = LogThrottle(logging.getLogger("test"), lambda: now[0])
    for number in range(1_000):
        notes.warn("login", f"192.0.2.{number % 100}" if number > 500 else "2001:db8::1", "line %d", number)
    assert len(caplog.messages) == KIND_LINES
    assert caplog.messages[CLIENT_LINES - 1] == f"line {CLIENT_LINES - 1}"
    assert caplog.messages[CLIENT_LINES] == f"line 501 (and {501 - CLIENT_LINES} similar lines before)"
    now[0] = 61
    notes.warn("login", "192.0.2.1", "again")
    assert caplog.messages[-1].startswith("again (and 4")
    notes.warn("relay", "192.0.2.1", "other")
    assert caplog.messages[-1] == "other"


def test_refusals_come_later_and_later_but_not_for_ever() -> None:
    """The first ones come at once."""
    delays = [delay_s(times, 15) for times in range(1, 40)]
    assert delays[: FREE_TRIES - 1] == [0] * (FREE_TRIES - 1)
    assert delays == sorted(delays)
    assert 0 < delays[FREE_TRIES - 1] < 1
    assert delays[-1] == 15


async def test_turns_are_taken_in_order_whatever_one_of_them_raises() -> None:
    """And one that asks for another turn goes to the end."""
    turns, taken = Turns(), list[str]()

    def twice() -> None:
        taken.append("twice")
        if taken.count("twice") < 2:
            turns.wait(twice)

    def wrong() -> None:
        raise ZeroDivisionError

    asyncio.get_running_loop().set_exception_handler(lambda *_: taken.append("wrong"))
    for one in (twice, wrong, lambda: taken.append("last")):
        turns.wait(one)
    for _ in range(10):
        await asyncio.sleep(0)
    assert taken == ["twice", "wrong", "last", "twice"]
