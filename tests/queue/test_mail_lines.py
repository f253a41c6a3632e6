"""Lines about mail: one for each acceptance and each answer, of a real queue."""

import asyncio
import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest

from zonemta_py.logs import mail
from zonemta_py.logs.mail import MailLog
from zonemta_py.logs.privacy import Persons
from zonemta_py.logs.shape import SHAPES
from zonemta_py.queue.api import DEFERRED, DELIVERED, POSTPONED, RELEASED

BODY = b"Subject: hush\r\n\r\nsecret\r\n"


class Lines:
    """Takes what a log writes."""

    def __init__(self, shape: str = "json", people: Persons | None = None, entries: Any = None) -> None:
        self.bytes = b""
        self.log = MailLog(SHAPES[shape], self._put, people, entries)

    def _put(self, lines: bytes) -> bool:
        self.bytes += lines
        return True

    def rows(self) -> list[dict[str, Any]]:
        """Those since the last call; every field is documented."""
        self.log.flush()
        rows = [json.loads(line) for line in self.bytes.splitlines()]
        self.bytes = b""
        assert {name for row in rows for name in row} <= documented() | {"time", "level", "logger", "message", "more"}
        return rows


def documented() -> set[str]:
    """Fields in the table of docs/OPERATING.md."""
    text = (Path(__file__).parents[2] / "docs" / "OPERATING.md").read_text().partition("| field | of which lines")[2]
    rows = [line.split("|")[1] for line in text.partition("\n\n")[0].splitlines() if line.startswith("| `")]
    return {name.strip(" `") for row in rows for name in row.split(",")}


async def test_who_waits_by_our_own_choice_is_told_of_together(house: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """One line however many leases it were: how many, the first of them, and what they have in common."""
    monkeypatch.setattr("zonemta_py.logs.mail.FLUSH_S", 60.0)  # lines are written when the test asks for them
    home, lines = await house(), Lines()
    home.queue.core.mail_log = lines.log
    for message in range(2):
        await home.put(*(f"r{number}@{message}{number}.test" for number in range(4)))
    lines.rows()
    for _ in range(8):
        later = home.result((await home.lease())[0], POSTPONED, delay_s=60)  # else it may be the next one again
        await home.queue.settle(dataclasses.replace(later, remote=""))
    (row,) = lines.rows()
    assert (row["message"], row["recipients"], row["to"].count("@"), row["text"]) == ("postponed", 8, 5, "not tried")
    assert {"id", "recipient"}.isdisjoint(row)
    await home.put("a@one.test", "b@two.test")
    (accepted,) = lines.rows()
    for _ in range(2):
        later = home.result((await home.lease())[0], POSTPONED, delay_s=60)  # else it may be the next one again
        await home.queue.settle(dataclasses.replace(later, remote=""))
    (row,) = lines.rows()
    assert (row["id"], row["recipients"]) == (accepted["id"], 2)


async def test_each_acceptance_and_each_answer_is_a_line(house: Any) -> None:
    """With id, zone, who, verdict, code, class, delay, attempts and size; nothing of the content."""
    home, lines = await house(), Lines()
    home.queue.core.mail_log = lines.log
    message = await home.put(
        "a@one.test", "b@one.test", origin="192.0.2.1", user="shop", body=b"Subject: hush\r\n\r\nsecret\r\n"
    )
    (row,) = lines.rows()
    assert row.pop("time").endswith("Z")
    assert row == {
        "level": "info", "logger": "mail", "message": "accepted", "id": message, "zone": "default",
        "sender": "ann@src.test", "recipients": 2, "to": "a@one.test,b@one.test", "size": row["size"], "by": "ESMTP",
        "client": "192.0.2.1", "user": "shop",
    }  # fmt: skip
    await home.move(3)
    delivery = await home.lease()
    result = home.result(delivery[0], DEFERRED, took_ms=12)
    await home.queue.settle(dataclasses.replace(result, remote="mx.test[192.0.2.9]:25"))
    rows = lines.rows()
    assert [row["recipient"] for row in rows] == ["a@one.test", "b@one.test"]
    assert {row["message"] for row in rows} == {"answered"}
    wanted = {
        "id": message, "zone": "default", "sender": "ann@src.test", "verdict": "deferred", "code": 451,
        "enhanced": "4.2.0", "attempts": 1, "delay_s": 3.0, "took_ms": 12, "remote": "mx.test[192.0.2.9]:25",
        "text": "later",
    }  # fmt: skip
    assert wanted.items() <= rows[0].items()
    assert rows[0]["again_s"] > 0
    assert rows[0]["class"]
    await home.move(rows[0]["again_s"] + 60)
    await home.settle((await home.lease())[0], RELEASED)
    assert lines.rows() == [], "nothing was answered"
    await home.settle((await home.lease())[0], DELIVERED)
    assert [(row["verdict"], row["attempts"]) for row in lines.rows()] == [("delivered", 2)] * 2
    assert b"secret" not in lines.bytes
    assert b"hush" not in lines.bytes


async def test_a_clock_that_is_set_changes_no_delay(house: Any) -> None:
    """Neither in the line nor in the histogram: what counts is the time that passes."""
    home, lines = await house(), Lines()
    home.queue.core.mail_log = lines.log
    await home.put("a@one.test")
    home.clock.set_s = 7200.0
    await home.move(5)
    await home.settle((await home.lease())[0], DEFERRED)
    row = lines.rows()[-1]
    assert row["delay_s"] == 5.0
    assert 0 < row["again_s"] < 3600
    ((_, _, total),) = (await home.queue.ask("metrics"))["histograms"]["zonemta_first_attempt_delay_seconds"]
    assert total == 5.0


async def test_what_ends_without_an_answer_is_a_line_too(house: Any) -> None:
    """In doubt, removed."""
    home, lines = await house(zones=[{"name": "default", "default": True, "in_doubt": "hold"}]), Lines()
    home.queue.core.mail_log = lines.log
    message = await home.put("a@one.test")
    await home.lease()
    home.queue.lost("")
    await home.queue.core.disk.journal.stable()
    await home.queue.core.disk.lines.stable()
    await home.queue.ask("drop", id=message)
    rows = lines.rows()[1:]
    assert [(row["message"], row["to"], row["id"]) for row in rows] == [
        ("in doubt", "a@one.test", message), ("removed", "a@one.test", message),
    ]  # fmt: skip
    assert rows[1]["reason"] == "dropped by an operator"


async def test_plugins_change_and_drop_lines_and_break_nothing() -> None:
    """The hook log_entry has them with all their fields."""

    def entries(entry: dict[str, Any]) -> dict[str, Any] | None:
        if entry["id"] == "2":
            return None
        if entry["id"] == "3":
            raise RuntimeError("a bug")
        entry["level"], entry["more"] = "warning", entry.pop("zone")
        return entry

    lines = Lines(entries=entries, people=Persons.cut())
    for number in "123":
        lines.log.line(0, "accepted", {"id": number, "zone": "z", "sender": "a@b.test"})
    (row,) = lines.rows()
    assert (row["level"], row["message"], row["id"], row["more"], row["sender"]) == (
        "warning", "accepted", "1", "z", "…@b.test",
    )  # fmt: skip


async def test_lines_are_written_soon_by_themselves() -> None:
    lines = Lines("text")
    lines.log.line(0, "accepted", {"id": "1"})
    while not lines.bytes:  # noqa: ASYNC110 (nothing tells of it)
        await asyncio.sleep(0.01)
    assert lines.bytes == b"1970-01-01T00:00:00.000Z INFO mail: accepted id=1\n"


async def test_a_burst_is_written_in_portions_and_in_order(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its lines do not pile up until the next tick; what cannot be made loses itself alone."""
    monkeypatch.setattr(mail, "GATHERED_MAX", 10)
    lines = Lines("text")
    for number in range(25):
        fields = {"id": number} if number != 5 else {5: number}
        lines.log.line(0, "accepted", fields)  # type: ignore[arg-type] # as a bug would
    assert lines.bytes.count(b"\n") == 19, "two portions, but for the one that is wrong"
    lines.log.flush()
    made = [int(line.rpartition(b"=")[2]) for line in lines.bytes.splitlines()]
    assert made == [number for number in range(25) if number != 5]
