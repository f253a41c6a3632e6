"""fsck: every kind of inconsistency is found, named and repaired; a second look finds nothing."""

from collections.abc import Callable
from typing import Any

import pytest

from zonemta_py.disk import keys, packing
from zonemta_py.disk.leveldb.store import Store
from zonemta_py.disk.notes import Existence
from zonemta_py.journal import segments
from zonemta_py.queue.api import BOUNCED, DEFERRED, HELD
from zonemta_py.queue.fsck import compare
from zonemta_py.queue.fsck.compare import StoreState

Make = Callable[..., Any]


@pytest.fixture
async def closed(house: Make) -> Any:
    """A house with fresh, deferred, held and parked recipients and a large message, closed; `ids` by address."""
    home = await house(zones=[{"name": "z"}])
    home.ids = {}
    for name, verdict in (("fresh", 0), ("deferred", DEFERRED), ("held", HELD), ("done", BOUNCED)):
        home.ids[name] = await home.put(f"{name}@{name}.test", sender="")
        if verdict:
            (delivery,) = [d for d in await home.lease(10) if d.id == home.ids[name]]
            await home.settle(delivery, verdict)
        else:
            await home.rest()
            await home.settle((await home.lease())[0], 5)
            await home.rest()
            home.queue.core.schedule.zones["z"].active = 10_000
            home.queue.core.schedule.zones["z"].active = 0
    home.ids["two"] = await home.put("one@two.test", "two@two.test", sender="")
    await home.rest()
    await home.queue.position()  # from here on nothing waits to be replayed
    copy = home.image()
    home.abandon()
    home.folder = copy
    assert home.check().problems == []
    yield home
    await home.open()


def change(home: Any, work: Callable[[Store], None]) -> None:
    store = Store(home.folder / "store")
    work(store)
    store.close()


def repaired(home: Any, *expected: str) -> list[Any]:
    """Finds exactly these, repairs, and finds nothing more."""
    problems = home.check().problems
    for part in expected:
        assert any(part in str(problem) for problem in problems), f"{part!r} is not among {problems}"
    assert len(problems) == len(expected), problems
    home.check(repair=True)
    again = home.check().problems
    assert again == [], again
    return problems


def drop(*gone: bytes) -> Callable[[Store], None]:
    return lambda store: store.write([(key, None) for key in gone], sync=True)


def put(key: bytes, value: bytes) -> Callable[[Store], None]:
    return lambda store: store.write([(key, value)], sync=True)


async def test_a_lost_recipient_is_queued_again(closed: Any) -> None:
    """The journal knows it, and that it has not ended; after the repair it is really sent."""
    change(closed, drop(keys.fresh("z", closed.ids["two"], "two@two.test")))
    repaired(closed, "two@two.test is not queued, and has not ended")
    await closed.open()
    seen = {r.address for d in await closed.lease(10) for r in d.recipients}
    assert seen >= {"one@two.test", "two@two.test"}
    closed.abandon()


async def test_a_repaired_recipient_below_the_mark_is_sent(closed: Any) -> None:
    """Also where the low-water mark of the last position has passed it."""
    await closed.open()
    await closed.settle((await closed.lease())[0])
    await closed.rest()
    await closed.queue.position()
    await closed.crash()
    closed.abandon()
    before = closed.check().counts["queued"]
    change(closed, drop(*[key for key in all_keys(closed) if key.startswith(b"delivery-zone ")][:1]))
    closed.check(repair=True)
    assert closed.check().counts["queued"] == before
    await closed.open()
    seen = [r.address for d in await closed.lease(10) for r in d.recipients]
    assert len(seen) == before
    closed.abandon()


def all_keys(home: Any) -> list[bytes]:
    store = Store(home.folder / "store")
    found = list(store.keys(b"", b"\xff"))
    store.close()
    return found


def value_of(home: Any, key: bytes) -> bytes | None:
    store = Store(home.folder / "store")
    value = store.get(key)
    store.close()
    return value


async def test_a_recipient_that_has_ended_goes(closed: Any) -> None:
    """Also one in a second place: held mail stays held; and one whose message is gone."""
    change(closed, put(keys.fresh("z", closed.ids["done"], "done@done.test"), b""))
    change(closed, put(keys.fresh("z", closed.ids["held"], "held@held.test"), b""))
    repaired(closed, "done@done.test has ended", "held@held.test is queued twice")
    left = [key.split() for key in all_keys(closed) if key.split()[-1] in (b"done@done.test", b"held@held.test")]
    assert [key[0] for key in left] == [b"held"]


async def test_wrong_sizes_are_counted_again(closed: Any) -> None:
    """By domain, and in all; a size of nobody goes."""
    change(closed, put(keys.size("z", "two.test"), packing.pack([7, 7, 7])))
    change(closed, put(keys.size("z", "nobody.test"), packing.pack([1, 0, 0])))
    repaired(
        closed, "sizes of two.test in zone z: [7, 7, 7, 0, 0] noted, [2, 0, 0, 0, 0] counted", "sizes of nobody.test"
    )
    assert value_of(closed, keys.size("z", "two.test")) == packing.pack([2, 0, 0, 0, 0])
    assert value_of(closed, keys.size("z", "nobody.test")) is None


async def test_wrong_totals_are_counted_again(closed: Any) -> None:
    """Messages and bytes of the whole queue."""

    def wrong(store: Store) -> None:
        store.write([(keys.STATE, packing.pack(compare.state_of(store)._replace(messages=99)))], sync=True)

    before = value_of(closed, keys.STATE)
    change(closed, wrong)
    repaired(closed, "99 messages")
    after = value_of(closed, keys.STATE)
    assert StoreState(*packing.unpack(after))[2:4] == StoreState(*packing.unpack(before))[2:4]


async def test_a_wrong_number_of_recipients_left(closed: Any) -> None:
    """The message would never end, or too early."""
    existence = keys.existence(closed.ids["two"])
    change(closed, put(existence, Existence(1, 2, 9).value()))
    repaired(closed, "9 recipients left, 2 found")
    assert value_of(closed, existence) == Existence(1, 2, 2).value()


@pytest.mark.parametrize("part", [keys.existence, keys.metadata, lambda message_id: keys.chunk(message_id, 1)])
async def test_a_message_that_lost_a_part_goes_to_quarantine(closed: Any, part: Callable[[str], bytes]) -> None:
    """With a note that names it; the rest stays, counts and all."""
    message_id = closed.ids["two"]
    change(closed, drop(part(message_id)))
    assert any(p.severity == "damage" and p.id == message_id for p in closed.check().problems)
    closed.check(repair=True)
    assert closed.check().problems == []
    assert closed.check().counts["messages lost by damage before"] == 1
    (case,) = (closed.folder / "quarantine").iterdir()
    assert message_id in (case / "note.json").read_text()
    assert len(list(case.iterdir())) == 3


async def test_chunks_of_nobody_are_harmless(closed: Any) -> None:
    """A message that was never committed; those that came since the last position are deleted by every start."""
    change(closed, put(keys.chunk("ff" * 8, 1), b"x"))
    assert closed.check().problems == []
    change(closed, put(keys.chunk("00" * 8, 1), b"x"))
    (problem,) = repaired(closed, "never accepted")
    assert problem.severity == "harmless"


async def test_a_message_without_recipients_is_deleted(closed: Any) -> None:
    """All of it has ended: nothing else would ever delete it."""
    message_id = closed.ids["done"]
    metadata = packing.pack({"sender": "", "size": 0, "received_ms": 0, "chunks": 1})
    for key, value in (
        (keys.existence(message_id), Existence(1, 1, 1).value()),
        (keys.metadata(message_id), metadata),
        (keys.chunk(message_id, 1), b"x"),
    ):
        change(closed, put(key, value))
    repaired(closed, "a message without recipients")
    assert not [key for key in all_keys(closed) if message_id.encode() in key]


async def test_damage_in_the_journal_is_named_and_mended(closed: Any) -> None:
    """File and byte; mail is never dropped for lack of a record."""
    path = segments.files(closed.folder / "journal")[0]
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)
    before = closed.check()
    assert any(problem.id == str(path) for problem in before.problems)
    closed.check(repair=True)
    after = closed.check()
    assert not [p for p in after.problems if "journal" in p.what]
    assert (after.counts["queued"], after.counts["deferred"], after.counts["held"]) == tuple(
        before.counts[name] for name in ("queued", "deferred", "held")
    )
