"""One sink at work: what is tried again, how long it waits, what goes to dead letters, what is told."""

import asyncio
import errno
import logging
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from zonemta_py.config.services.events import EventSink
from zonemta_py.disk.frame import Record
from zonemta_py.disk.ring.overflow import OverflowQueue
from zonemta_py.events import cursor
from zonemta_py.events import sink as sink_module
from zonemta_py.events.backlog import Backlog
from zonemta_py.events.dead_letters import DeadLetter, DeadLetters
from zonemta_py.events.sink import RingUnreadable, RunningSink, read_state
from zonemta_py.events.sinks.base import Ready, Rejected, SinkDown

MakeReady = Callable[..., Ready]


class Nothing:
    """A journal without records."""

    def __init__(self, seq: int) -> None:
        self.next_seq, self.missed = seq, 0

    def read(self, until_seq: int, most: int) -> list[Record]:
        self.next_seq = max(self.next_seq, until_seq + 1)
        return []

    def close(self) -> None:
        pass


class Client:
    """answers: what comes of each batch, in order; then all are taken."""

    def __init__(self, *answers: Exception) -> None:
        self.answers, self.tried = list(answers), list[list[int]]()
        self.times = list[float]()
        self.opened = 0

    async def open(self) -> None:
        self.opened += 1

    async def send(self, batch: Sequence[Ready]) -> None:
        self.tried.append([one.seq for one in batch])
        self.times.append(asyncio.get_running_loop().time())
        if self.answers:
            raise self.answers.pop(0)

    async def close(self) -> None:
        pass


def made(folder: Path, client: Client, **keys: Any) -> RunningSink:
    settings = EventSink(
        name="s", kind="webhook", url="https://h.test/", **{"batch_s": 0, "retry_s": 0.02, "retry_max_s": 0.05} | keys
    )
    backlog = Backlog(OverflowQueue(folder / "ring"), 0, 0, Nothing, lambda _: ())
    backlog.take(1, 1)  # it has nothing to catch up with
    return RunningSink(settings, client, folder, backlog)


async def worked(sink: RunningSink, ready: MakeReady, count: int) -> None:
    """Until everything is done with."""
    for seq in range(1, count + 1):
        sink.offer(seq, [ready(seq)])
    work = asyncio.ensure_future(sink.run())
    async with asyncio.timeout(60):
        while sink.backlog.cursor < count:  # noqa: ASYNC110
            await asyncio.sleep(0.005)
    sink.stop()
    await work


async def test_a_batch_is_the_same_each_time_it_is_tried(tmp_path: Path, ready: MakeReady) -> None:
    """Also after an error that no client should raise. The connection is opened again."""
    client = Client(SinkDown("away"), ValueError("a mistake"), OSError("broken"))
    await worked(made(tmp_path, client, batch_events=2), ready, 5)
    assert client.tried == [[1, 2], [1, 2], [1, 2], [1, 2], [3, 4], [5]]
    assert client.opened == 4


async def test_what_is_refused_for_good_is_a_dead_letter(tmp_path: Path, ready: MakeReady) -> None:
    sink = made(tmp_path, Client(Rejected("no", [0, 2])))
    await worked(sink, ready, 3)
    assert [(one.ready, one.reason) for one in DeadLetters(tmp_path).read()] == [(ready(1), "no"), (ready(3), "no")]
    row = sink.state(3)
    assert (row["sent"], row["dead"], row["lag_records"], row["state"]) == (1, 2, 0, "ok")


async def test_waits_grow_and_retry_after_counts(tmp_path: Path, ready: MakeReady) -> None:
    downs = [SinkDown("away") for _ in range(4)]
    client = Client(*downs, SinkDown("busy", 0.4))
    await worked(made(tmp_path, client, retry_s=0.02, retry_max_s=10), ready, 1)
    waits = [later - earlier for earlier, later in zip(client.times, client.times[1:], strict=False)]
    least = [0.01, 0.02, 0.04, 0.08, 0.4]
    assert all(wait >= 0.9 * bound for wait, bound in zip(waits, least, strict=True)), waits


async def test_the_cursor_does_not_pass_what_has_not_arrived(tmp_path: Path, ready: MakeReady) -> None:
    client = Client(*[SinkDown("away") for _ in range(1000)])
    sink = made(tmp_path, client)
    for seq in range(1, 4):
        sink.offer(seq, [ready(seq)])
    work = asyncio.ensure_future(sink.run())
    while len(client.tried) < 3:  # noqa: ASYNC110
        await asyncio.sleep(0.005)
    sink.note(3, 0)
    assert cursor.read(tmp_path) == 0
    assert read_state(tmp_path)["state"] == "down"
    assert read_state(tmp_path)["reason"] == "away"
    sink.stop()
    await asyncio.wait_for(work, 60)


async def test_numbers_go_on_after_a_restart(tmp_path: Path, ready: MakeReady) -> None:
    first = made(tmp_path, Client())
    await worked(first, ready, 3)
    first.note(3, 0)
    second = made(tmp_path, Client())
    await worked(second, ready, 2)
    assert second.state(2)["sent"] == 5


async def test_no_login_is_told(tmp_path: Path, ready: MakeReady, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    sink = made(tmp_path, Client(SinkDown("no answer from https://ann:hush@h.test/\nat \x1ball")))
    await worked(sink, ready, 1)
    assert "https://***@h.test/ at all" in caplog.text
    assert "hush" not in caplog.text
    assert [record.getMessage().partition(":")[0] for record in caplog.records] == [
        "event sink 's' is down", "event sink 's' is back",
    ]  # fmt: skip


def test_losses_are_said(tmp_path: Path, ready: MakeReady, caplog: pytest.LogCaptureFixture) -> None:
    """Once, with the command that sends what was dropped."""
    sink = made(tmp_path, Client())
    sink.backlog.queue = OverflowQueue(tmp_path / "ring", records_max=2, page_count=0)
    for seq in range(1, 6):
        sink.offer(seq, [ready(seq)])
        sink.note(seq, 0)
    assert "`zonemta events replay --sink s --since 2026-01-02T03:04:05.678Z`" in caplog.text
    assert len(caplog.records) == 1
    sink.backlog._missed = 7
    sink.note(5, 0)
    assert "the archive no longer has 7 records" in caplog.text


def test_dead_letters_are_bounded(tmp_path: Path, ready: MakeReady) -> None:
    """The oldest go, and are counted; a torn line is left out."""
    kept, gone = DeadLetters(tmp_path, 20_000), 0
    for seq in range(100):
        gone += kept.add([DeadLetter(1, "no", ready(seq, size=300))])
    letters = kept.read()
    assert [one.ready.seq for one in letters] == list(range(gone, 100))
    assert 0 < (tmp_path / "dead.jsonl").stat().st_size <= 20_000
    with (tmp_path / "dead.jsonl").open("ab") as file:
        file.write(b'{"ms": 1, "rea')
    assert kept.read() == letters
    kept.remove({letters[0].ready.id})
    assert kept.read() == letters[1:]


def test_a_torn_line_harms_no_other_dead_letter(tmp_path: Path, ready: MakeReady) -> None:
    kept = DeadLetters(tmp_path, 20_000)
    kept.add([DeadLetter(1, "no", ready(1))])
    with (tmp_path / "dead.jsonl").open("ab") as file:
        file.write(b'{"ms": 1, "rea')
    kept.add([DeadLetter(1, "no", ready(2))])
    assert [one.ready.seq for one in kept.read()] == [1, 2]


def test_dead_letters_that_a_full_disk_cuts_are_not_kept(
    tmp_path: Path, ready: MakeReady, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All or nothing: the feed tries again."""
    kept, write = DeadLetters(tmp_path, 20_000), os.write
    kept.add([DeadLetter(1, "no", ready(1))])
    with monkeypatch.context() as patch:
        room = [100]

        def cut(file: int, data: bytes) -> int:
            done = write(file, data[: room[0]])
            room[0] -= done
            if not done:
                raise OSError(errno.ENOSPC, "No space left on device")
            return done

        patch.setattr(os, "write", cut)
        with pytest.raises(OSError, match="No space left"):
            kept.add([DeadLetter(1, "no", ready(2))])
    kept.add([DeadLetter(1, "no", ready(3))])
    assert [one.ready.seq for one in kept.read()] == [1, 3]


BROKEN = [b"", b"{", b'{"seq": "x"}', b"[]", b'{"seq": 1e999}', b"\xff\xfe"]


@pytest.mark.parametrize("data", BROKEN)
def test_a_damaged_cursor_is_none_and_said(tmp_path: Path, data: bytes, caplog: pytest.LogCaptureFixture) -> None:
    assert cursor.read(tmp_path) is None
    assert caplog.text == ""
    (tmp_path / cursor.NAME).write_bytes(data)
    assert cursor.read(tmp_path) is None
    assert "is damaged, and counts as missing" in caplog.text
    assert cursor.found(tmp_path, tmp_path, 9) == (None, 0)
    assert "begins with what comes next; `zonemta events replay" in caplog.text


def test_a_cursor_that_the_disk_does_not_give_is_an_error(tmp_path: Path) -> None:
    """Else the sink would count as new, and lack what was before."""
    (tmp_path / cursor.NAME).mkdir()
    with pytest.raises(OSError, match="directory"):
        cursor.read(tmp_path)


def test_a_cursor_that_cannot_be_written_is_said(
    tmp_path: Path, ready: MakeReady, caplog: pytest.LogCaptureFixture
) -> None:
    """Once, as an error with its remedy; `zonemta events sinks` shows it; and that it is written again."""
    (tmp_path / cursor.NAME).mkdir()
    sink = made(tmp_path, Client())
    for now_s in (0, 1, 2):
        sink.note(3, now_s)
    (said,) = caplog.records
    assert (said.levelno, "give the folder to the MTA's user" in said.getMessage()) == (logging.ERROR, True)
    assert "a restart may miss events: Is a directory" in read_state(tmp_path)["trouble"]
    (tmp_path / cursor.NAME).rmdir()
    sink.note(3, 3)
    assert (cursor.read(tmp_path), read_state(tmp_path)["trouble"]) == (0, "")
    assert "is written again" in caplog.records[-1].getMessage()


@pytest.mark.parametrize("data", [*BROKEN, b'{"sent": "many", "dropped": [], "missed": null, "dead": {}}'])
def test_a_damaged_state_is_none(tmp_path: Path, data: bytes) -> None:
    (tmp_path / "state.json").write_bytes(data)
    assert made(tmp_path, Client()).state(0)["sent"] == 0


async def test_a_ring_that_stays_unreadable_ends_the_process(
    tmp_path: Path, ready: MakeReady, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next start puts it aside."""

    def broken(*_: object) -> bytes:
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(sink_module, "STUCK_S_MAX", 0.5)
    client = Client()
    backlog = Backlog(OverflowQueue(tmp_path / "ring", records_max=2), 0, 0, Nothing, lambda _: ())
    backlog.take(1, 1)
    settings = EventSink(name="s", kind="webhook", url="https://h.test/", batch_s=0)
    sink = RunningSink(settings, client, tmp_path, backlog)
    for seq in range(1, 60):
        sink.offer(seq, [ready(seq)])
    monkeypatch.setattr(os, "pread", broken)
    with pytest.raises(RingUnreadable):
        await asyncio.wait_for(sink.run(), 60)
    assert backlog.cursor < 10
