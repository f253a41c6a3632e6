"""Damage that is met while mail is sent is said, in the log, a metric, status and standing; its mail goes back."""

from __future__ import annotations

import asyncio
import logging
import os
from pathlib import Path
from typing import Any

import pytest

from tests.delivery.test_injected import Bench, large
from zonemta_py.cli.watch.status import CRITICAL, WARNING, _described, _problems
from zonemta_py.disk import keys
from zonemta_py.mail.envelope import Envelope, Recipient
from zonemta_py.plugin.host import Host


def standing_of(rows: list[dict[str, Any]]) -> dict[str, str]:
    return {row["name"]: row["cause"] for row in rows if row["kind"] == "lost"}


@pytest.mark.parametrize("what", ["body", "metadata"])
async def test_a_damaged_message_is_said_and_ends_at_once(
    what: str, takes: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Its body: its sender is told with 554 at once, not after two days of our own 451. Its metadata, which name its
    sender: the log has its recipients. Either way an operator sees the case until it is acknowledged."""
    server = await takes()
    envelope, body = large("1")
    envelope.size = len(body)
    async with Bench(tmp_path / "spool", server, "smtp", 0, Host.empty()) as bench:
        core = bench.queue.core
        core.stopping = True
        message_id = (await bench.queue.accept(envelope, body)).id
        if what == "body":
            core.disk.store.write([(keys.chunk(message_id, 2), None)], True)
        else:
            core.disk.store.write([(keys.metadata(message_id), b"\xc1")], True)
            core.messages.drop(message_id)
        caplog.clear()
        core.stopping = False
        core.changed()
        await bench.over()
        await asyncio.wait_for(_until(lambda: what != "body" or "x@y.example" in server.people), 60)
        (error,) = (one for one in caplog.records if one.levelno == logging.ERROR and message_id in one.getMessage())
        rows = await bench.queue.ask("standing")
        gauges = (await bench.queue.ask("metrics"))["gauges"]
    (case,) = (path.name for path in (tmp_path / "spool" / "quarantine").iterdir())
    assert f"quarantine/{case}" in error.getMessage()
    assert ("it is returned to its sender" if what == "body" else "it is lost for 1@d.example") in error.getMessage()
    assert "1@d.example" not in server.people
    assert list(standing_of(rows)) == [case]
    assert gauges["zonemta_damage"] == [[[], 1]]
    assert f"quarantine/{case}" in standing_of(rows)[case]


async def test_a_body_that_the_disk_does_not_give_is_held_and_said(
    takes: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """An operator can repair that, so its sender is not told; nor is it tried for two days, unknown to anybody."""
    server = await takes()
    body = b"Subject: x\r\n\r\n" + b"".join(b"%s\r\n" % os.urandom(400).hex().encode() for _ in range(2000))
    envelope = Envelope("x@y.example", [Recipient("1@d.example")], size=len(body))
    async with Bench(tmp_path / "spool", server, "smtp", 0, Host.empty()) as bench:
        core = bench.queue.core
        core.stopping = True
        message_id = (await bench.queue.accept(envelope, body)).id
        file = tmp_path / "spool" / "bodies" / message_id
        file.rename(tmp_path / "whole")
        file.mkdir()  # opens, and does not read: as a bad sector does
        caplog.clear()
        core.stopping = False
        core.changed()
        while (await bench.queue.ask("size"))["total"]["held"] != 1:  # noqa: ASYNC110 - the queue tells nobody
            await asyncio.sleep(0.01)
        (error,) = (one for one in caplog.records if one.levelno == logging.ERROR and message_id in one.getMessage())
        (case,) = standing_of(await bench.queue.ask("standing"))
        file.rmdir()
        (tmp_path / "whole").rename(file)
    assert "it is held; repair the disk" in error.getMessage()
    assert f"quarantine/{case}" in error.getMessage()
    assert not server.people


def test_status_and_nagios_say_it() -> None:
    """Critical, until somebody has acknowledged it."""
    lost = {"kind": "lost", "name": "20260102T030405-messages", "cause": "a message is damaged", "group": "noted"}
    found: dict[str, Any] = {
        "total": {"queued": 0, "leased": 0, "deferred": 0, "held": 0, "messages": 0, "bytes": 0}, "in_doubt": 0,
        "disk": {"free": 1e12, "reserve": 0, "accepting": True}, "copied": "", "standing": [lost], "sinks": [],
        "certificates": [], "plugins": {}, "ending": False, "since_ms": 0, "folder": "/x",
        "configuration": 1, "zones": {},
        "rates": dict.fromkeys(("in", "out", "deferred", "bounced"), 0.0),
        "sessions": {"listeners": {}, "accounts": {}},
        "bounced": 0, "alone": 0,
    }  # fmt: skip
    none = (None, None)
    limits = dict.fromkeys(("queued", "waiting", "in_doubt", "disk", "certificate"), none)
    ((level, sentence),) = _problems(found, limits)
    assert (level, "20260102T030405-messages" in sentence) == (CRITICAL, True)
    gone = {"kind": "source", "name": "192.0.2.1", "cause": "it cannot be used: not here", "group": "resting"}
    ((level, sentence),) = _problems(found | {"standing": [gone]}, limits)
    assert (level, sentence) == (WARNING, "source 192.0.2.1: it cannot be used: not here")
    for count, often in ((1, "once"), (1200, "1,200 times")):
        ((level, sentence),) = _problems(found | {"standing": [], "plugins": {"staging": count}}, limits)
        assert (level, sentence) == (WARNING, f"plugin staging fails ({often} within 5 minutes)")
    said = dict(_described(found | {"total": dict.fromkeys((*found["total"], "deleted", "bounced"), 0)}))
    assert "zonemta resume lost 20260102T030405-messages" in said["damage"]
    assert said["suspended"] == "nothing"


async def _until(true: Any) -> None:
    while not true():  # noqa: ASYNC110 - the server tells nobody
        await asyncio.sleep(0.01)
