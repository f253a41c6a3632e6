"""A queue that an earlier version left behind a kill: today's MTA opens it and delivers everything that was owed."""

import asyncio
import hashlib
import json
import time
from collections import Counter
from collections.abc import Callable
from email import message_from_bytes, policy
from pathlib import Path
from typing import Any

from survival.rig import PATIENCE_S, Mta

from zonemta_py.mail.envelope import Envelope, Recipient
from zonemta_py.queue.api import Receipt
from zonemta_py.sink import Sink, SinkOptions
from zonemta_py.sink.record import ReceivedMessage
from zonemta_py.wire.client import RemoteQueue

Owed = Counter[tuple[str, str | None]]
FAR_OFF = "later12@default.test"
LEASED_HERE = ("leased", "hold")
"""State and zone of what is in doubt by now, where the zone keeps such mail for an operator."""


def subject(message: ReceivedMessage) -> str | None:
    """None: of a notice."""
    return str(message_from_bytes(message.body, policy=policy.default)["subject"]) if message.sender else None


def came(sink: Sink) -> Owed:
    return Counter((to, subject(message)) for message in sink.messages for to in message.recipients)


def asked() -> Envelope:
    """What a client had asked for already."""
    digest = hashlib.sha256(b"order 4711").digest()
    return Envelope("ann@src.test", [Recipient("asked14@default.test")], request="order 4711", digest=digest)


async def until(found: Callable[[], Owed], owed: Owed) -> None:
    """Until that has come, and nothing else has."""
    end = time.monotonic() + PATIENCE_S
    while (now := found()) != owed:
        assert now <= owed, f"{now - owed} came and is not owed"
        assert time.monotonic() < end, f"{owed - now} has not come"
        await asyncio.sleep(0.05)


async def held(mta: Mta) -> set[str]:
    return {row["id"] for row in (await asyncio.to_thread(mta.ask, "list", state="held"))["rows"]}


async def test_everybody_gets_what_he_is_owed(left: Path) -> None:
    """Not one recipient, suppression, order, key of a request or count is lost, and no message comes twice."""
    told: dict[str, Any] = json.loads((left / "owed.json").read_text())
    async with Sink(SinkOptions(listen=("127.0.0.1:0",), keep=True)) as sink:
        mta = Mta(left / "queue", sink.ports[0], home=left / "home")
        text = (left / "zonemta.toml").read_text().replace("@FOLDER@", str(mta.folder))
        mta.config_file.write_text(text.replace("@PORT@", str(mta.port)).replace("@SINK@", str(sink.ports[0])))
        assert await asyncio.to_thread(mta.fsck) == ""
        mta.start()
        try:
            await _taken_up(mta, told)
            await _delivered(mta, sink, told)
        finally:
            await asyncio.to_thread(mta.end)
        assert await asyncio.to_thread(mta.fsck) == ""


async def _taken_up(mta: Mta, told: dict[str, Any]) -> None:
    """It is a copy, so nothing goes before `adopt`; meanwhile all is there as it was."""
    await mta.taking()
    assert "zonemta queue adopt" in await asyncio.to_thread(mta.ask, "copied")
    listed = (await asyncio.to_thread(mta.ask, "list", limit=1000))["rows"]
    assert {row["recipient"]: row["state"] for row in listed} == {
        to: ("held" if zone == "hold" else "queued") if state == "leased" else state
        for to, _, state, zone in told["rows"]
    }
    doubtful = {row["recipient"] for row in await asyncio.to_thread(mta.ask, "in-doubt")}
    assert {to for to, _, state, _ in told["rows"] if state == "leased"} <= doubtful
    answers = told["answers"]
    suppressed = (await asyncio.to_thread(mta.ask, "suppressions"))["rows"]
    assert [row["address"] for row in suppressed] == answers["suppressions"]
    standing = [[row["kind"], row["name"]] for row in await asyncio.to_thread(mta.ask, "standing")]
    assert standing == answers["standing"]
    campaign = await asyncio.to_thread(mta.ask, "campaign", name="spring")
    assert {name: campaign[name] for name in answers["campaign"]} == answers["campaign"]
    client = await RemoteQueue.connect(mta.folder, "test")
    receipt = await client.accept(asked(), b"x")
    found = next(row["id"] for row in listed if row["subject"] == "asked once")
    assert receipt == Receipt(found, 1, 0, repeated=True)


async def _delivered(mta: Mta, sink: Sink, told: dict[str, Any]) -> None:
    """By itself what may go; the rest when an operator says so."""
    rows = [row for row in told["rows"] if row[0] != FAR_OFF]
    waits = {to for to, _, state, zone in rows if zone == "stopped" or state == "held" or (state, zone) == LEASED_HERE}
    await asyncio.to_thread(mta.ask, "adopt")
    await until(lambda: came(sink), Counter((to, named) for to, named, *_ in rows if to not in waits))
    assert await asyncio.to_thread(mta.ask, "lift", kind="zone", name="stopped")
    for message_id in await held(mta):
        await asyncio.to_thread(mta.ask, "release", id=message_id)
    await until(lambda: came(sink), Counter((to, named) for to, named, *_ in rows))
    (large,) = (message.body for message in sink.messages if subject(message) == "large")
    assert hashlib.sha256(large.partition(b"\r\n\r\n")[2]).hexdigest() == told["large"]
    await _heard(mta)
    # What the sink has taken may have been answered, and not yet settled.
    end = time.monotonic() + PATIENCE_S
    while (left := [row["recipient"] for row in mta.ask("list", limit=1000)["rows"]]) != [FAR_OFF]:
        assert time.monotonic() < end, left
        await asyncio.sleep(0.05)


async def _heard(mta: Mta) -> None:
    """The last results are in the queue too, which is after the sink has them."""
    end = time.monotonic() + PATIENCE_S
    while (await asyncio.to_thread(mta.ask, "size"))["total"]["messages"] > 1:
        assert time.monotonic() < end
        await asyncio.sleep(0.05)
