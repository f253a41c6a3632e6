"""Events under SIGKILL: who follows the journal of an MTA that is killed again and again sees what a replay shows."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from pathlib import Path

from survival.client import Client
from survival.ledger import Ledger
from survival.rig import RULES, Mta

from zonemta_py.events.derive import events_of
from zonemta_py.events.event import Event
from zonemta_py.journal import segments
from zonemta_py.journal.records import Type
from zonemta_py.journal.tail import JournalTail
from zonemta_py.sink import Sink, SinkOptions
from zonemta_py.wire.blocking_client import QueueGone, ask

LETTERS = 250
SEGMENT_BYTES = 65_536
"""Small, so that segments close, move to the archive and leave the journal all the time."""


async def follow(folder: Path, over: Callable[[], bool]) -> list[Event]:
    """All events of a queue that runs now and then, read in small portions."""
    tail, found, stable = JournalTail(folder), list[Event](), 0
    while True:
        last = over()
        try:
            stable = await asyncio.to_thread(ask, folder, "stable", after=stable, wait_s=0 if last else 1)
        except QueueGone:
            assert not last
        while records := await asyncio.to_thread(tail.read, stable, 50):
            found += [event for record in records for event in events_of(record)]
        if last:
            assert tail.missed == 0
            return found


async def test_what_is_followed_is_what_is_replayed(tmp_path: Path) -> None:
    """Every event once, in order, across four kills; and every message that was acknowledged is told whole."""
    ended = False
    async with Sink(SinkOptions(listen=("127.0.0.1:0",), rules=RULES)) as sink:
        mta = Mta(tmp_path, sink.ports[0], segment_bytes=SEGMENT_BYTES)
        mta.start()
        try:
            await mta.taking()
            following = asyncio.ensure_future(follow(tmp_path, lambda: ended))
            ledger = Ledger()
            handing = asyncio.ensure_future(Client(mta.port, ledger).hand_in(range(LETTERS)))
            for role in ("queue", "sender", "all", "queue"):
                await asyncio.sleep(0.4)
                mta.kill(role)
                if role == "all":
                    mta.dead()
                    mta.start()
            await handing
            await mta.drained()
            ended = True
            found = await following
        finally:
            mta.end()
    records = list(segments.read_files(segments.every_file(tmp_path / "journal", tmp_path / "archive")))
    replayed = [event for record in records for event in events_of(record)]
    assert found == replayed[: len(found)], "the same events with the same places"
    assert len(replayed) - len(found) < 20, "but for what came after the last look"
    kinds = Counter(event.type for event in found)
    assert kinds["accepted"] >= LETTERS
    assert kinds.keys() >= {"queued", "attempted", "delivered", "deferred", "bounced", "finished"}
    ends = Counter(
        (event.data["message"], event.data["recipient"]) for event in found if event.type in ("delivered", "bounced")
    )
    assert set(ends.values()) == {1}, "nobody ends twice"
    assert sum(record.type == Type.SEGMENT for record in records) > 3, "of so many files"
