"""Recovery: whatever instant a crash picks, journal and store agree afterwards, and nothing acknowledged is gone."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from zonemta_py.disk import keys, packing
from zonemta_py.journal import segments
from zonemta_py.journal.records import Type
from zonemta_py.mail.envelope import Envelope, Recipient
from zonemta_py.queue.api import BOUNCED, DEFERRED, HELD, RELEASED, QueueRefusal
from zonemta_py.queue.recovery import start
from zonemta_py.queue.recovery.open_store import REPAIR_MARK

Make = Callable[..., Any]


def history(home: Any, kind: Type) -> list[Any]:
    return [packing.unpack(r.body) for r in segments.read(home.folder / "journal") if r.type == kind]


async def test_a_message_without_its_record_gets_one(house: Make) -> None:
    """The batch is the commit: after a crash behind it the message is there, and recovery writes its record."""
    home = await house()
    await home.put("early@x.test")
    message_id = await home.put("bob@x.test", "cid@y.test")
    await home.crash(drop=True)
    await home.sound()
    (row,) = [row for row in history(home, Type.ENVELOPE) if row[0] == message_id]
    assert sorted(recipient[1] for recipient in row[2]) == ["bob@x.test", "cid@y.test"]
    await home.crash()
    assert len([row for row in history(home, Type.ENVELOPE) if row[0] == message_id]) == 1


@pytest.mark.parametrize("power", [False, True])
async def test_chunks_without_a_message_are_deleted(house: Make, power: bool) -> None:
    """A large message that was on its way when the crash came leaves nothing behind."""
    home = await house()
    incoming = home.queue.begin()
    for _ in range(5):
        await incoming.write(bytes(65_536))
    await home.crash(power)
    await home.rest()
    assert list(home.queue.core.disk.store.keys(b"message ", b"message!")) == []
    await home.sound()


@pytest.mark.parametrize("verdict", [1, DEFERRED, BOUNCED, HELD, RELEASED])
@pytest.mark.parametrize("applied", [False, True])
async def test_a_result_is_final_when_its_record_is(house: Make, verdict: int, applied: bool) -> None:
    """Acknowledged and not yet in the store: applied at the start, once, whatever the verdict."""
    home = await house()
    await home.put("bob@x.test", "cid@x.test")
    (delivery,) = await home.lease()
    await home.settle(delivery, verdict)
    if applied:
        await home.rest()
    for _ in range(3):
        await home.crash(power=not applied)
    assert await home.queue.ask("in-doubt") == []
    total = await home.sizes()
    expected = {
        1: (0, 0, 0, 0),
        DEFERRED: (0, 2, 0, 1),
        BOUNCED: (1, 0, 0, 1),
        HELD: (0, 0, 2, 1),
        RELEASED: (2, 0, 0, 1),
    }
    assert (total["queued"], total["deferred"], total["held"], total["messages"]) == expected[verdict]
    await home.sound()


async def test_what_was_in_doubt_released_and_delivered_is_not_sent_again(house: Make) -> None:
    """All of it since the last position, and the store lacks the end: it is applied to where the release has put the
    recipient."""
    home = await house(zones=[{"name": "z", "in_doubt": "hold"}])
    message_id = await home.put("bob@x.test")
    await home.lease()
    await home.crash()
    assert await home.queue.ask("release", id=message_id) == 1
    (delivery,) = await home.lease()
    home.queue.core.disk.lines._start = lambda: None  # nothing more reaches the store
    await home.settle(delivery)
    await home.crash()
    assert await home.idle()
    assert (await home.sizes())["messages"] == 0
    await home.sound()


async def test_results_are_all_applied_before_anything_is_scheduled(house: Make) -> None:
    """Replaying bounces and deferrals wakes the scheduler; recipients whose results come later must not be leased."""
    home = await house()
    for number in range(60):
        await home.put(f"r{number}@x{number}.test")
    await home.rest()
    deliveries = await home.lease(100)
    assert len(deliveries) == 60
    home.queue.core.disk.lines._start = lambda: None  # nothing more reaches the store
    for number, delivery in enumerate(deliveries):
        await home.settle(delivery, (BOUNCED, DEFERRED, 1)[number % 3])
    await home.crash(power=True)
    total = await home.sizes()
    assert (total["queued"], total["deferred"]) == (20, 20), "the notifications, and the deferred ones"
    await home.rest()
    deliveries = await home.lease(100)
    assert {d.sender for d in deliveries} == {""}
    assert len(home.queue.core.messages) == sum(len(d.recipients) for d in deliveries)


@pytest.mark.parametrize(("policy", "state"), [("retry", "queued"), ("hold", "held")])
async def test_leases_without_a_result_are_in_doubt(house: Make, policy: str, state: str) -> None:
    """Listed with what is done about them, once, over any number of crashes."""
    home = await house(zones=[{"name": "z", "in_doubt": policy}])
    await home.put("bob@x.test")
    await home.put("cid@y.test")
    (delivery,) = await home.lease()
    for _ in range(3):
        await home.crash()
        (row,) = await home.queue.ask("in-doubt")
        assert (row["recipient"], row["action"], row["zone"]) == (delivery.recipients[0].address, policy, "z")
        assert (await home.sizes())[state] == (2 if policy == "retry" else 1)
        await home.sound()
    leased = {r.address for d in await home.lease(5) for r in d.recipients}
    assert leased == ({"bob@x.test", "cid@y.test"} if policy == "retry" else {"cid@y.test"})


@pytest.mark.parametrize("written", [True, False])
async def test_a_lease_that_its_sender_never_heard_of_is_over(
    house: Make, monkeypatch: pytest.MonkeyPatch, written: bool
) -> None:
    """It is taken back and granted again, and then everything is killed: in doubt, and held, once, and counted so.

    written: as it is, and as an older queue left it, which did not say in its journal that a lease was taken back.
    """
    home = await house(zones=[{"name": "z", "in_doubt": "hold"}])
    await home.put("bob@x.test")
    await home.put("cid@y.test")
    kept = home.queue.core.disk.ledger.append
    for one in await home.lease(2):
        lease = home.queue.leases.out[one.lease]
        lease.sent = False
        monkeypatch.setattr(home.queue.core.disk.ledger, "append", kept if written else lambda *_: 0)
        home.queue.leases.take_back(lease)
        monkeypatch.undo()
    (again,) = await home.lease()
    await home.crash(fsck="look")
    total = await home.sizes()
    assert (total["queued"], total["held"]) == ((1, 1) if written else (0, 2))
    doubtful = [row["recipient"] for row in await home.queue.ask("in-doubt")]
    assert again.recipients[0].address in doubtful
    assert len(doubtful) == total["held"]
    await home.sound()


async def test_reading_begins_at_the_position(house: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    """What lies before the last position record is not looked at again."""
    home = await house()
    for number in range(50):
        await home.put(f"r{number}@x.test")
    for _ in range(40):
        (delivery,) = await home.lease()
        await home.settle(delivery)
    await home.rest()
    await home.queue.position()
    await home.put("late@x.test")
    taken: list[Any] = []
    take = start.Suffix.take
    monkeypatch.setattr(start.Suffix, "take", lambda self, record: taken.append(record) or take(self, record))
    await home.crash()
    assert len(taken) < 10
    assert home.queue.core.schedule.zones["default"].fresh.position > keys.fresh_range("default")
    assert sorted(r.address for d in await home.lease(50) for r in d.recipients) == sorted(
        [*(f"r{number}@x.test" for number in range(40, 50)), "late@x.test"]
    )


async def test_a_position_while_large_messages_arrive(house: Make) -> None:
    """One that began before the position and is committed behind it is not lost, and has one envelope record."""
    home = await house(queue={"segment_bytes": 65_536})
    incoming = home.queue.begin()
    await incoming.write(bytes(65_536))
    later = [await home.put(f"r{number}@x.test") for number in range(30)]
    await home.rest()
    await home.queue.position()
    message_id = (await incoming.accept(Envelope("ann@src.test", [Recipient("big@x.test")], 65_537), b"x")).id
    await home.crash(drop=True)
    await home.sound()
    await home.queue.position()
    await home.crash()
    written = [row[0] for row in history(home, Type.ENVELOPE)]
    assert sorted(written) == sorted([message_id, *later])
    seen = [r.address for _ in range(31) for d in await home.lease() for r in d.recipients if not await settle(home, d)]
    assert sorted(seen) == sorted(["big@x.test", *(f"r{number}@x.test" for number in range(30))])
    await home.rest()
    assert [segment.live for segment in home.queue.core.disk.segments._all] == [0] * len(
        home.queue.core.disk.segments._all
    )


async def settle(home: Any, delivery: Any) -> None:
    await home.settle(delivery)


async def test_finished_segments_go_to_the_archive(house: Make) -> None:
    """One that speaks of living mail stays; archive and journal together have every record."""
    home = await house(queue={"segment_bytes": 65_536})
    sent = 0
    for _ in range(8):
        for number in range(120):
            await home.put(f"r{number}@x.test", headers={"subject": "x" * 300})
            sent += 1
        for _ in range(120):
            await home.settle((await home.lease())[0])
        await home.rest()
        await home.queue.position()
    archived = segments.files(home.folder / "archive")
    assert len(archived) >= 3
    assert len(segments.files(home.folder / "journal")) <= 3
    both = [r for f in ("archive", "journal") for r in segments.read(home.folder / f)]
    assert [r.seq for r in both] == list(range(1, both[-1].seq + 1))
    assert sum(r.type == Type.ENVELOPE for r in both) == sum(r.type == Type.FINISH for r in both) == sent
    await home.crash()
    await home.sound()


@pytest.mark.parametrize("count", [1, 2, 5])
async def test_a_journal_that_lost_its_end_is_noticed(house: Make, count: int) -> None:
    """The store knows what was stable; even one record less goes to quarantine and is bridged; mail goes on."""
    home = await house()
    await home.put("bob@x.test")
    (delivery,) = await home.lease()
    await home.settle(delivery, DEFERRED)
    await home.put("cid@x.test")
    await home.rest()
    await home.put("dan@x.test")
    await home.rest()
    copy = home.image()
    home.abandon()
    home.folder = copy
    stable = packing.unpack((store := open_store(copy)).get(keys.STATE))[1]
    store.close()
    (path,) = segments.files(copy / "journal")
    rows = [r for r in segments.read_file(path, []) if r.seq <= stable - count]
    path.write_bytes(segments.frame(rows, 0))
    await home.open()
    assert [place.name.split("-")[1] for place in sorted((copy / "quarantine").iterdir())][:1] == ["journal"]
    await home.sound()
    await home.crash()
    await home.sound()
    assert len(list((home.folder / "quarantine").iterdir())) == 1, "the second start finds nothing wrong"
    await home.move(100_000)
    seen = {r.address for d in await home.lease(5) for r in d.recipients}
    assert seen >= {"bob@x.test", "cid@x.test", "dan@x.test"}


@pytest.mark.parametrize("lost", [0, 1, 2])
@pytest.mark.parametrize("power", [False, True])
async def test_a_repair_that_writes_no_record_is_no_damage_the_next_time(
    house: Make, power: bool, lost: int, capsys: pytest.CaptureFixture[str]
) -> None:
    """Killed right after it, once and again: the store takes no record for stable that the journal does not have."""
    home = await house()
    await home.put("bob@x.test")
    await home.rest()
    await home.crash()  # a start that finds nothing to do: the journal ends with its END, which the store has noted
    copy = home.image()
    home.abandon()
    home.folder = copy
    if lost:
        path = segments.files(copy / "journal")[-1]
        path.write_bytes(segments.frame(list(segments.read_file(path, []))[:-lost], 0))
    else:
        (copy / REPAIR_MARK).write_text("a test")
    await home.open()
    cases = len(list((copy / "quarantine").iterdir()))
    capsys.readouterr()
    for _ in range(3):
        await home.crash(power=power)
        assert len(list((home.folder / "quarantine").iterdir())) == cases
        assert "damage" not in capsys.readouterr().err
    await home.sound()


def open_store(folder: Any) -> Any:
    from zonemta_py.disk.leveldb.store import Store

    return Store(folder / "store")


async def test_a_torn_tail_is_no_damage(house: Make) -> None:
    """Every crash may leave one: it is cut, without a comparison of everything, and without a quarantine."""
    home = await house()
    await home.put("bob@x.test")
    await home.rest()
    copy = home.image()
    home.abandon()
    home.folder = copy
    with segments.files(copy / "journal")[-1].open("ab") as file:
        file.write(b"\x12\x34\x56\x78\xff\x00\x11torn")
    await home.open()
    assert not (copy / "quarantine").exists()
    await home.sound()


@pytest.mark.parametrize("at", range(0, 2000, 97))
async def test_a_flipped_byte_in_the_journal_loses_no_mail(house: Make, at: int) -> None:
    """Named, copied to quarantine, mended; what is queued is still queued, and the next start finds nothing wrong."""
    home = await house()
    for number in range(12):
        await home.put(f"r{number}@x.test")
    await home.rest()
    home.queue.core.disk.ledger.rotate()
    await home.put("last@x.test")
    await home.rest()
    copy = home.image()
    home.abandon()
    home.folder = copy
    path = segments.files(copy / "journal")[0]
    data = bytearray(path.read_bytes())
    data[at % len(data)] ^= 0x55
    path.write_bytes(data)
    await home.open()
    cases = len(list((copy / "quarantine").iterdir()))
    assert cases in (1, 2), "the file, and the one behind it where records at the end are lost"
    await home.sound()
    await home.crash()
    assert len(list((home.folder / "quarantine").iterdir())) == cases
    seen = [r.address for d in await home.lease(20) for r in d.recipients]
    assert len(set(seen)) == len(seen) == 13


async def test_ids_never_repeat_when_the_clock_goes_back(house: Make) -> None:
    """Not even those of messages that are gone."""
    home = await house()
    ids = []
    for _ in range(5):
        ids.append(await home.put("bob@x.test"))
        await home.settle((await home.lease())[0])
        await home.crash()
        home.clock.now_s -= 1000
    assert len(set(ids)) == 5


async def test_a_refused_message_does_not_come_back(house: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its batch may stand in LevelDB's log although the write failed; the client was told 451, so it is deleted."""
    from zonemta_py.disk.leveldb.store import StoreFailed

    home = await house()
    await home.put("before@x.test")
    store = home.queue.core.disk.store
    write, failures = store.write, [True]

    def fail(operations: Any, sync: bool) -> None:
        write(operations, sync)
        if failures and any(key.startswith(b"message ") for key, _ in operations):
            failures.clear()
            store.fenced = True
            raise StoreFailed("No space left on device")

    monkeypatch.setattr(store, "write", fail)
    with pytest.raises(QueueRefusal) as caught:
        await home.put("refused@x.test")
    assert caught.value.reply.code == 452
    with pytest.raises(QueueRefusal):
        await home.put("meanwhile@x.test")
    while home.queue.core.disk.lines.trouble:  # noqa: ASYNC110
        await asyncio.sleep(0.05)
    await home.put("after@x.test")
    await home.sound()
    seen = {r.address for d in await home.lease(20) for r in d.recipients}
    assert seen == {"before@x.test", "after@x.test"}
