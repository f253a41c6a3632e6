"""A quota at RCPT, by a plugin's counters: exact over several receivers and queues, with kills in between, and what
goes from queue to queue when their number changes."""

from __future__ import annotations

import asyncio
import random
import re
from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from survival.ledger import Ledger
from survival.rig import Mta, sink

from tests.queue.conftest import house as house
from tests.queues.test_moving import rebalanced, stopped, stores
from zonemta_py.disk import keys
from zonemta_py.queues.placement import Placement

QUOTA = """
from pydantic import BaseModel

from zonemta_py.plugin import Address, Envelope, PluginApi, Refusal, Reject, Session, StoredMessage


class Options(BaseModel):
    recipients: int = 10
    seconds: float = 3600


def setup(api: PluginApi, options: Options) -> None:
    global _api, _options
    _api, _options = api, options


async def smtp_mail_from(address: Address, session: Session) -> None:
    session.notes["sender"] = address.address


async def smtp_rcpt_to(address: Address, session: Session) -> None:
    taken = await _api.store.take(session.notes["sender"], 1, _options.recipients, _options.seconds)
    if taken is None:
        raise Reject(452, "your quota is used up", "4.7.1")
    session.notes.setdefault("taken", []).append(taken)


async def smtp_reset(envelope: Envelope, session: Session) -> None:
    await _give_back(session)


async def message_refused(envelope: Envelope, session: Session, refusal: Refusal) -> None:
    if not refusal.recipient:
        await _give_back(session)


async def message_stored(envelope: Envelope, session: Session, stored: StoredMessage) -> None:
    session.notes.pop("taken", None)


async def _give_back(session: Session) -> None:
    for taken in session.notes.pop("taken", []):
        await _api.store.give_back(taken)
"""
LIMIT = 10
SENDERS = [f"s{number}@src.test" for number in range(6)]


@pytest.fixture
async def mta(tmp_path: Path) -> AsyncIterator[Mta]:
    plugin = tmp_path / "quota.py"
    plugin.write_text(QUOTA)
    plugged = f'[plugins]\nenabled = ["{plugin}"]\ntimeout_s = 20\n[plugins.options.quota]\nrecipients = {LIMIT}\n'
    async with sink(Ledger()) as destination:
        one = Mta(tmp_path / "queue", destination.port, home=tmp_path, queues=2, more=plugged)
        one.start()
        try:
            await one.taking()
            yield one
        finally:
            one.end()


class Wire:
    """A client, line by line."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer

    @classmethod
    async def open(cls, port: int) -> Wire:
        wire = cls(*await asyncio.open_connection("127.0.0.1", port))
        await wire.reply()
        await wire.command("EHLO client.test")
        return wire

    async def command(self, line: str) -> str:
        self._writer.write(f"{line}\r\n".encode())
        return await self.reply()

    async def reply(self) -> str:
        """Raises EOFError."""
        while (line := (await self._reader.readuntil(b"\n")).decode())[3] == "-":
            pass
        return line

    def close(self) -> None:
        self._writer.close()


async def dialogue(mta: Mta, sender: str, end: str) -> int:
    """A transaction with two recipients; how many were stored, or given back by nobody because the process died."""
    connection = await Wire.open(mta.port)
    try:
        await connection.command(f"MAIL FROM:<{sender}>")
        replies = [await connection.command(f"RCPT TO:<r{number}@x{number}.test>") for number in range(2)]
        accepted = sum(reply.startswith("250") for reply in replies)
        if end == "gone" or not accepted:
            return 0
        if end == "RSET":
            await connection.command("RSET")
            return 0
        await connection.command("DATA")
        reply = await connection.command("Subject: x\r\n\r\nx\r\n.")
        return accepted if reply.startswith("250") else 0
    finally:
        connection.close()


async def test_a_quota_is_exact(mta: Mta) -> None:
    """Many clients at once, of whom some give up; then each sender has had its quota, to the last recipient."""
    die, stored = random.Random(1), dict.fromkeys(SENDERS, 0)

    async def client(sender: str) -> None:
        for _ in range(30):
            found = await dialogue(mta, sender, die.choice(["dot", "RSET", "gone"]))
            stored[sender] += found

    await asyncio.gather(*(client(sender) for sender in SENDERS for _ in range(3)))
    for sender in SENDERS:
        for _ in range(100):  # what clients had that were gone is given back in a moment
            if (found := await dialogue(mta, sender, "dot")) == 0 and stored[sender] == LIMIT:
                break
            stored[sender] += found
    assert stored == dict.fromkeys(SENDERS, LIMIT)


async def test_a_quota_outlives_kills(mta: Mta) -> None:
    """Of queues and receivers, again and again: nobody gets more than the quota. What a receiver had taken that was
    killed is lost to its sender; a queue loses nothing."""
    die, stored, lost = random.Random(2), dict.fromkeys(SENDERS, 0), dict.fromkeys(SENDERS, 0)
    over = asyncio.Event()

    async def client(sender: str) -> None:
        while not over.is_set():
            try:
                found = await dialogue(mta, sender, die.choice(["dot", "RSET", "gone"]))
                stored[sender] += found
            except (OSError, EOFError):
                lost[sender] += 2  # it may have been stored, or not
                await asyncio.sleep(0.05)

    clients = [asyncio.ensure_future(client(sender)) for sender in SENDERS for _ in range(2)]
    for role in ("queue", "receiver", "queue", "queue", "receiver", "queue"):
        await asyncio.sleep(0.7)
        assert mta.kill(role, die.random())
    await mta.taking()
    over.set()
    await asyncio.gather(*clients)
    assert max(stored.values()) <= LIMIT
    for sender in SENDERS:
        with suppress(OSError, EOFError):
            for _ in range(50):
                stored[sender] += await dialogue(mta, sender, "dot")
        assert LIMIT - lost[sender] <= stored[sender] <= LIMIT, sender
    assert await unhandled(mta) == []


async def unhandled(mta: Mta) -> list[str]:
    return re.findall("Traceback.*", mta.log.read_text())


async def test_what_is_kept_goes_with_the_number_of_queues(house: Any) -> None:
    """To the queue that has the name from then on, with its end, its window, and what was answered."""
    home = await house()
    names = [f"anna{number}" for number in range(40)]
    windows = {}
    for name in names:
        windows[name] = await home.queue.plugin_store.do("take", "my quota", name, f"t-{name}", [1, 2, 3600])
        await home.queue.plugin_store.do("set", "my quota", name, f"s-{name}", [b"5", None])
    config = await stopped(home)
    whole = stores(config)[0]
    await rebalanced(home, config, 3)
    place = Placement(range(3))
    for number, rows in stores(config).items():
        for key in rows["plugin"]:
            plugin, _, name = keys.plugin_of(key)
            assert place.of_plugin(plugin, name) == number
        done = {key.decode().rpartition("-")[2] for key in rows["plugin-done"]}
        assert done == {keys.plugin_of(key)[2] for key in rows["plugin"]}
        assert done, "each has some of forty"
    await rebalanced(home, config, 1)
    after = stores(config)[0]
    assert (after["plugin"], after["plugin-done"]) == (whole["plugin"], whole["plugin-done"])
    await home.open()
    for name in names:
        store = home.queue.plugin_store
        assert await store.do("take", "my quota", name, f"t-{name}", [1, 2, 3600]) == windows[name]
        assert await store.do("taken", "my quota", name, "", []) == 1
    home.abandon()
