"""A queue that dies between storing a message and answering for it: the next one tells, and nobody sends it twice."""

import asyncio
from typing import Any

import pytest

from zonemta_py.journal.records import Type
from zonemta_py.mail.envelope import Envelope, Recipient
from zonemta_py.mail.limits import CHUNK_BYTES
from zonemta_py.queue.api import QueueRefusal, Unanswered
from zonemta_py.wire import client
from zonemta_py.wire.server import ClientConnection

BODY = b"Subject: hello\r\n\r\nHi\r\n"


def mail() -> Envelope:
    return Envelope("ann@src.test", [Recipient("bob@x.test")], len(BODY))


async def hand_in(receiver: Any, way: str) -> str:
    """In one frame or in parts; the id."""
    if way == "whole":
        receipt = await receiver.accept(mail(), BODY)
    else:
        incoming = receiver.begin()
        await incoming.write(bytes(CHUNK_BYTES))
        receipt = await incoming.accept(mail(), BODY)
    assert (receipt.accepted, receipt.suppressed) == (1, 0)
    return str(receipt.id)


async def dead(service: Any, monkeypatch: pytest.MonkeyPatch, way: str, stored: bool, told: bool) -> Any:
    """The queue has died with a message in its hands; what waits for its answer."""
    receiver = await service.connect()
    core, reached = service.queue.core, list[str]()
    with monkeypatch.context() as patch:
        patch.setattr(ClientConnection, "_answer", lambda *_: None)
        if not told:  # its ENVELOPE record never reached the disk
            append = core.disk.ledger.append
            patch.setattr(
                core.disk.ledger, "append", lambda kind, *rest: 0 if kind == Type.ENVELOPE else append(kind, *rest)
            )
        with monkeypatch.context() as disk:
            if not stored:
                disk.setattr(core.disk.lines, "submit", lambda *_, **__: reached.append(way))
            waiting = asyncio.ensure_future(hand_in(receiver, way))
            while not stored and not reached:  # noqa: ASYNC110 (nobody says when)
                await asyncio.sleep(0.01)
            while stored and (not core.counters.message_count or core.arriving):  # noqa: ASYNC110 (nobody says when)
                await asyncio.sleep(0.01)
        await service.stop()
    return waiting


@pytest.mark.parametrize("told", [True, False])
@pytest.mark.parametrize("way", ["whole", "parts"])
async def test_what_is_stored_is_answered_with_250(
    service: Any, monkeypatch: pytest.MonkeyPatch, way: str, told: bool
) -> None:
    waiting = await dead(service, monkeypatch, way, stored=True, told=told)
    await asyncio.sleep(0.2)
    assert not waiting.done()
    await service.start()
    found = await asyncio.wait_for(waiting, 60)
    listed = (await service.remotes[0].ask("list"))["rows"]
    assert [row["id"] for row in listed] == [found]


async def test_what_is_not_stored_is_refused(service: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    waiting = await dead(service, monkeypatch, "whole", stored=False, told=True)
    await service.start()
    with pytest.raises(QueueRefusal) as caught:
        await asyncio.wait_for(waiting, 60)
    assert caught.value.reply.code == 451
    assert not isinstance(caught.value, Unanswered)
    assert (await service.remotes[0].ask("list"))["rows"] == []


async def test_without_a_queue_nobody_is_told_anything(service: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client, "ASK_S", 0.3)
    waiting = await dead(service, monkeypatch, "whole", stored=True, told=True)
    with pytest.raises(Unanswered):
        await asyncio.wait_for(waiting, 60)
    await service.start()
