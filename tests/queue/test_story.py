"""The story of a message, from the journal and the archive; and how old the queue's mail is, by destination."""

import asyncio
import os
import random
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.queue.flow import drain
from zonemta_py.disk.frame import BLOCK_BYTES, Damage, Record, frame
from zonemta_py.disk.packing import pack
from zonemta_py.journal import search, segments
from zonemta_py.journal.records import Type
from zonemta_py.queue.admin.browse import ages, story
from zonemta_py.queue.api import DEFERRED, HELD, Feedback


async def trace(home: Any, what: str, **more: Any) -> dict[str, Any]:
    await home.rest()
    return dict(await home.queue.ask("trace", what=what, **more))


async def test_the_story_of_a_message(house: Any) -> None:
    """All that happened to it, in order, and nothing of others."""
    home = await house()
    message = await home.put("bob@x.test", sender="ann@src.test")
    other = await home.put("carl@x.test")
    for delivery in await home.leases():
        await home.settle(delivery, DEFERRED)
    await home.move(100_000)
    for delivery in await home.leases():
        await home.settle(delivery, HELD if delivery.id == message else DEFERRED)
    await home.rest()
    await home.queue.ask("release", id=message)
    for delivery in await home.leases():
        await home.settle(delivery)
    told = await trace(home, message)
    expected = ["accepted", "attempt", "deferred", "attempt", "held", "released", "attempt", "delivered", "ended"]
    assert [row["what"] for row in told["rows"]] == expected
    assert (told["kind"], told["ids"], told["next"]) == ("message", [message], None)
    assert told["rows"][0]["sender"] == "ann@src.test"
    assert told["rows"][2]["reply"] == "451 4.2.0 later"
    assert told["rows"][2]["due_ms"] > 0
    assert {row["recipients"][0] for row in told["rows"][:-1]} == {"bob@x.test"}
    assert other not in str(told)


async def test_the_story_of_an_address(house: Any) -> None:
    """Of all messages to it; of those that had others too, only what is about it."""
    home = await house()
    ids = [await home.put("bob@x.test", "dora@y.test"), await home.put("bob@x.test"), await home.put("eve@x.test")]
    await drain(home)
    told = await trace(home, "bob@X.test")
    assert told["ids"] == ids[:2]
    assert {person for row in told["rows"] for person in row["recipients"]} == {"bob@x.test"}
    assert [row["what"] for row in told["rows"]].count("delivered") == 2
    assert (await trace(home, "nobody@x.test"))["rows"] == []


async def test_what_nothing_proves_is_told_of_its_own_recipients_alone(house: Any) -> None:
    """Anybody can write down a Message-ID, and say that somebody complains about it."""
    home = await house()
    message = await home.put("bob@x.test")
    await drain(home)
    said = [("bob@x.test", "key"), ("Bob@X.test", ""), ("eve@x.test", ""), ("", ""), ("eve@x.test", "key")]
    await home.queue.feedback([Feedback("complaint", who, message, genuine=how) for who, how in said])
    told = [row for row in (await trace(home, message))["rows"] if row["what"] == "came back: complaint"]
    assert [(*row["recipients"], row["genuine"]) for row in told] == [
        ("bob@x.test", "key"), ("Bob@X.test", "no"), ("eve@x.test", "key")
    ]  # fmt: skip
    assert not [row for row in (await trace(home, "eve@x.test"))["rows"] if row.get("genuine") == "no"]
    listed = await home.queue.ask("feedback", message=message)
    assert [row["genuine"] for row in listed["rows"]] == ["key", "", "", "key"], "they are among what came back"


async def test_the_process_that_reads_stories_may_be_killed(house: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another takes its place; one that does not answer is killed; and it ends when nobody asks any more."""
    monkeypatch.setattr(story, "KEPT_S", 0.2)
    home = await house()
    message = await home.put("bob@x.test")
    await trace(home, message)
    first = story._reader._process
    assert first is not None
    first.kill()
    first.wait(60)
    assert (await trace(home, message))["ids"] == [message]
    second = story._reader._process
    assert second is not None
    os.kill(second.pid, signal.SIGSTOP)
    monkeypatch.setattr(story, "ANSWER_S", 0.1)
    with pytest.raises(ValueError, match="could not be searched"):
        await trace(home, message)
    monkeypatch.setattr(story, "ANSWER_S", 10.0)
    await trace(home, message)
    third = story._reader._process
    assert third is not None
    assert third not in (first, second)
    await asyncio.wait_for(asyncio.to_thread(third.wait, 10), 60)
    assert story._reader._process is not third


async def test_a_story_goes_on_before_the_file_where_it_ended(house: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """The newest segments first, also those in the archive."""
    monkeypatch.setattr("zonemta_py.queue.admin.browse.story.LOOK_S", 0.0)
    home = await house()
    for _ in range(3):
        await home.put("bob@x.test")
        for delivery in await home.leases():
            await home.settle(delivery)
        await home.queue.ask("rotate")
    found: list[list[str]] = []
    before = ""
    while before is not None:
        page = await trace(home, "bob@x.test", before=before)
        found.append(page["ids"])
        before = page["next"]
    ids = [one for page in found for one in page]
    assert len(found) >= 3
    assert sorted(set(ids), reverse=True) == [one for at, one in enumerate(ids) if one not in ids[:at]]
    assert len(set(ids)) == 3


async def test_what_is_neither_an_id_nor_an_address(house: Any) -> None:
    """One sentence."""
    home = await house()
    with pytest.raises(ValueError, match="'x' is neither a message's id nor an address"):
        await home.queue.ask("trace", what="x")


def test_a_text_is_found_wherever_it_lies(tmp_path: Path) -> None:
    """In records of all sizes, also where a block ends in the midst of it: as by reading them all."""
    die = random.Random(1)
    written: list[Record] = []
    for seq in range(1, 400):
        filling = "x" * die.choice((0, 10, 500, 5_000, 90_000) if seq % 40 == 0 else (0, 10, 500))
        name = f"{die.randrange(20):016x}"
        written.append(Record(seq, seq, int(Type.FINISH), pack([filling, name, filling])))
    data, path = b"", tmp_path / "0000000000000001.journal"
    for record in written:
        data += frame([record], len(data))
    path.write_bytes(data)
    assert [record.seq for record in segments.read_file(path, [])] == [record.seq for record in written]
    for number in range(21):
        text = f"{number:016x}".encode()
        there = [record.seq for record in written if text in record.body]
        assert [record.seq for record in search.records_with(path, text)] == there
    first = search.first_of(path)
    assert first is not None
    assert first.seq == 1


def test_a_text_that_every_record_has_costs_one_reading(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A message to many recipients, each of whom was tried often: each block is taken apart twice at most."""
    path, blocks = tmp_path / "0000000000000001.journal", list[int]()
    path.write_bytes(frame([Record(seq, seq, int(Type.FINISH), b"of one message") for seq in range(20_000)], 0))
    take_apart = search.placed

    def counted(data: bytes, damages: list[Damage]) -> Iterator[tuple[int, Record]]:
        blocks.append(len(data) // BLOCK_BYTES)
        return take_apart(data, damages)

    monkeypatch.setattr(search, "placed", counted)
    assert len(search.records_with(path, b"one message")) == 20_000
    assert len(blocks) <= 2 * (path.stat().st_size // BLOCK_BYTES + 1)


def test_an_empty_file_has_nothing(tmp_path: Path) -> None:
    """A segment that has just begun."""
    (tmp_path / "empty").touch()
    assert search.records_with(tmp_path / "empty", b"x") == []
    assert search.first_of(tmp_path / "empty") is None


async def test_ages_of_a_short_queue_are_those_of_now(house: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is little to count is counted again, so that what was just held is held there."""
    monkeypatch.setattr(ages, "PAGE_S", 60.0)
    home = await house()
    await home.put(*(f"r{number}@x.test" for number in range(100)))
    assert (await home.queue.ask("qshape", states=["held"]))["all"]["total"] == 0
    for delivery in await home.leases():
        await home.settle(delivery, HELD)
    await home.rest()
    await home.move(0.1)
    assert (await home.queue.ask("qshape", states=["held"]))["all"]["total"] == 100


async def test_ages_of_long_ago_are_no_answer(house: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """While a new pass is made, the last one is the answer, and says so; an old one is none, a part of the new is."""
    monkeypatch.setattr(ages, "PAGE_S", 60.0)
    home = await house()
    await home.put("a@x.test")
    assert (await home.queue.ask("qshape"))["counting"] is False
    await home.put("b@x.test")
    monkeypatch.setattr(ages, "PAGE_S", 0.0)
    found = []
    for after_s in (1, ages.OLD_S):
        await home.move(after_s)
        monkeypatch.setattr(ages.Shape, "run", _never)
        found.append(await home.queue.ask("qshape"))
    assert [(one["all"]["total"], one["complete"], one["counting"]) for one in found] == [
        (1, True, True),
        (0, False, True),
    ]


async def _never(_: ages.Shape) -> None:
    await asyncio.Event().wait()


async def test_ages_by_domain_site_and_provider(house: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each recipient in its age, the largest destination first; of one zone, too."""
    monkeypatch.setattr(ages, "PAGE_S", 60.0)
    home = await house()
    await home.put("a@old.test", "b@old.test")
    for delivery in await home.leases():
        await home.settle(delivery, DEFERRED)
    await home.move(3 * 3600)
    await home.put("c@new.test")
    await home.rest()
    shape = await home.queue.ask("qshape")
    assert (shape["complete"], shape["walked"], shape["of"]) == (True, 3, 3)
    assert shape["rows"] == [
        {"name": "old.test", "total": 2, "ages": [0, 0, 0, 0, 0, 0, 2, 0, 0, 0]},
        {"name": "new.test", "total": 1, "ages": [1, 0, 0, 0, 0, 0, 0, 0, 0, 0]},
    ]
    assert shape["all"]["ages"] == [1, 0, 0, 0, 0, 0, 2, 0, 0, 0]
    assert (await home.queue.ask("qshape", by="site", zone="default"))["names"] == 2
    assert (await home.queue.ask("qshape", by="provider"))["rows"][0]["name"] == ""
    with pytest.raises(ValueError, match="ages are counted by domain, site, provider, sender, not by 'age'"):
        await home.queue.ask("qshape", by="age")


async def test_ages_are_the_time_that_has_passed(house: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever the clock was set to since, forward or back, and by whichever the message's id was given out."""
    monkeypatch.setattr(ages, "PAGE_S", 60.0)
    home = await house()
    await home.put("a@x.test")
    for set_s in (3 * 365 * 86_400, -365 * 86_400, 3_600):
        home.clock.set_s = set_s
        await home.move(7 * 60)
        await home.put("b@x.test")
        await home.rest()
    await home.move(60)
    shape = await home.queue.ask("qshape")
    assert shape["all"]["ages"] == [1, 1, 1, 1, 0, 0, 0, 0, 0, 0], "1, 8, 15 and 22 minutes"


async def test_ages_of_states_senders_and_parents(house: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each recipient is in one state, what is delivered now is leased alone; other ages have a pass of their own."""
    monkeypatch.setattr(ages, "PAGE_S", 60.0)
    home = await house()
    await home.put("a@old.test", sender="x@News.example")
    for delivery in await home.leases():
        await home.settle(delivery, DEFERRED)
    await home.put("b@held.test", sender="")
    await home.queue.ask("task", verb="hold", where={"domain": ["held.test"]}, set={}, by="ann", cause="")
    await home.put("c@now.test")
    (lease,) = await home.leases()
    await home.move(120)
    await home.put(*(f"d@{name}.below.deep.test" for name in "abc"), "e@other.deep.test")
    await home.rest()

    async def found(**of: Any) -> dict[str, int]:
        return {row["name"]: row["total"] for row in (await home.queue.ask("qshape", **of))["rows"]}

    assert await found(states=["deferred"]) == {"old.test": 1}
    assert await found(states=["held"]) == {"held.test": 1}
    assert await found(states=["leased"]) == {"now.test": 1}
    assert await found(states=["queued", "held"], by="sender") == {"src.test": 4, "MAILER-DAEMON": 1}
    assert await found(states=["deferred"], by="sender") == {"news.example": 1}
    queued = {f"{name}.below.deep.test": 1 for name in "abc"} | {"other.deep.test": 1}
    assert await found(states=["queued"]) == queued
    assert await found(states=["queued"], subdomains=3) == queued | {".below.deep.test": 3}
    assert await found(states=["queued"], subdomains=2) == queued | {".below.deep.test": 3, ".deep.test": 4}
    shape = await home.queue.ask("qshape", minutes=[1, 2, 3])
    assert (shape["minutes"], shape["all"]["ages"]) == ([1, 2, 3], [4, 0, 3, 0])
    for wrong in ([2, 2], [0, 1], list(range(1, 60))):
        with pytest.raises(ValueError, match="ages are fewer than 50 numbers of minutes"):
            await home.queue.ask("qshape", minutes=wrong)
    with pytest.raises(ValueError, match="what waits is queued, leased, deferred, held, not 'bounced'"):
        await home.queue.ask("qshape", states=["bounced"])
    await home.settle(lease, DEFERRED)
