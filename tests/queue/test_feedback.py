"""What comes back is recorded once, before it is answered, and known as long as its return path holds."""

import asyncio
import random
from collections.abc import Callable
from typing import Any

import pytest

from zonemta_py.disk import keys, packing
from zonemta_py.disk.leveldb.trouble import DISK_ERROR
from zonemta_py.journal import segments
from zonemta_py.journal.records import Type
from zonemta_py.journal.records.people import FeedbackRecord
from zonemta_py.queue.api import Feedback, QueueRefusal

Make = Callable[..., Any]
ID, DAY_S = "18bcfe5680000001", 86_400


def bounce(recipient: str = "bob@x.test", **more: Any) -> Feedback:
    row = {"message": ID, "code": 550, "enhanced": "5.1.1", "text": "no such user", "genuine": "token", "via": "smtp"}
    return Feedback("bounce", recipient, **(row | more))


def recorded(home: Any) -> list[FeedbackRecord]:
    """What the journal has on the disk."""
    rows = segments.read(home.folder / "journal", 0, [])
    return [FeedbackRecord.of(packing.unpack(row.body)) for row in rows if row.type == Type.FEEDBACK]


def left(home: Any) -> list[bytes]:
    """Every key of feedback that the store has."""
    store = home.queue.core.disk.store
    return [key for prefix in (keys.FEEDBACK, keys.FEEDBACK_OF) for key in store.keys(prefix, keys.end(prefix))]


async def test_it_is_recorded_before_it_is_answered_and_only_once(house: Make, front: Any) -> None:
    """Here and over the socket: each row has its answer, also where one call has the same one twice."""
    home = await house()
    intake = await front(home)
    rows = [bounce(), bounce("cid@x.test"), bounce("BOB@X.test", text="said otherwise", via="http")]
    assert await intake.feedback(rows) == [True, True, False]
    assert [row.recipient for row in recorded(home)] == ["bob@x.test", "cid@x.test"]
    assert recorded(home)[0][:2] == ("bounce", "bob@x.test")
    assert recorded(home)[0].text == "no such user"
    assert await intake.feedback(rows) == [False, False, False]
    assert await intake.feedback([]) == []
    assert len(recorded(home)) == 2
    await home.sound()


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (bounce(), Feedback("complaint", "bob@x.test", ID)),
        (bounce(), bounce(message="18bcfe5680000002")),
        (
            Feedback("unsubscribe", "b@x.test", ID, scope="all"),
            Feedback("unsubscribe", "b@x.test", ID, scope="campaigns"),
        ),
        (Feedback("click", "b@x.test", ID, text="https://a"), Feedback("click", "b@x.test", ID, text="https://b")),
        (Feedback("other", raw=b"one"), Feedback("other", raw=b"two")),
        (Feedback("other", "b@x.test", ID, raw=b"one"), Feedback("other", "b@x.test", ID, raw=b"two")),
        (bounce(genuine=""), bounce()),  # nobody keeps a proof out by saying the same before
        (Feedback("complaint", name="7"), Feedback("complaint", name="7", genuine="dkim")),
        (Feedback("bounce", "b@x.test", name="1"), Feedback("bounce", "b@x.test", name="2")),
    ],
)
async def test_what_differs_is_recorded_twice(house: Make, one: Feedback, other: Feedback) -> None:
    """By message, recipient and kind; a link, a scope; where nothing is known of these, by all that was said."""
    home = await house()
    assert await home.queue.feedback([one, other, one, other]) == [True, True, False, False]


async def test_a_name_makes_it_the_same_whatever_it_says(house: Make) -> None:
    """A provider's number of the event; and the message's recipient still does."""
    home = await house()
    other = Feedback("bounce", name="event 7", text="x", genuine="key")
    assert await home.queue.feedback([bounce(name="event 7"), other]) == [True, False]
    assert await home.queue.feedback([bounce(name="event 8")]) == [False]


@pytest.mark.parametrize("power", [False, True], ids=["killed", "power cut"])
@pytest.mark.parametrize("drop", [False, True], ids=["written", "cut off"])
async def test_a_crash_forgets_nothing_and_counts_nothing_twice(house: Make, power: bool, drop: bool) -> None:
    """At whatever instant: what was answered is recorded, and known; what was not is taken again."""
    home, die, answered = await house(), random.Random(7), set[str]()
    for turn in range(4):
        rows = [bounce(f"r{turn}-{number}@x.test") for number in range(20)]
        tasks = [asyncio.ensure_future(home.queue.feedback([row])) for row in rows]
        for _ in range(die.randrange(40)):
            await asyncio.sleep(0)
        answered |= {row.recipient for row, task in zip(rows, tasks, strict=True) if task.done()}
        await home.crash(power=power, die=die, drop=drop, fsck="look" if turn % 2 else "")
        for task in tasks:
            task.cancel()
        known = {row.recipient for row in recorded(home)}
        assert answered <= known
        again = await home.queue.feedback(rows)
        assert again == [row.recipient not in known for row in rows]
        answered |= {row.recipient for row in rows}
    people = [row.recipient for row in recorded(home)]
    assert len(people) == len(set(people)) == 80
    await home.sound()


async def test_a_lost_store_is_made_again_from_the_journal(house: Make) -> None:
    """What is known would otherwise be counted twice."""
    home = await house()
    assert await home.queue.feedback([bounce(), bounce("cid@x.test")]) == [True, True]
    await home.rest()
    before = left(home)
    assert len(before) == 4
    home.queue.core.disk.store.write([(key, None) for key in before], True)
    home.abandon()
    found = home.check(repair=True).problems
    assert [one.what for one in found] == ["4 keys of feedback are missing that the journal has"]
    await home.begin()
    assert left(home) == before


async def test_it_is_known_as_long_as_a_return_path_holds(house: Make) -> None:
    """Then both are forgotten, in the order in which they came."""
    home = await house(return_path={"srs_days": 3})
    await home.queue.feedback([bounce()])
    await home.move(2 * DAY_S)
    await home.queue.feedback([bounce("cid@x.test", name="event 7")])
    await home.queue.sweep()
    await home.rest()
    assert await home.queue.feedback([bounce()]) == [False]
    await home.move(DAY_S + 1)
    await home.queue.sweep()
    await home.rest()
    assert len(left(home)) == 3
    assert await home.queue.feedback([bounce(), bounce("cid@x.test")]) == [True, False]


async def test_nothing_is_taken_while_the_disk_has_errors(house: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is refused for now, and taken afterwards: nothing is answered that is not stored."""
    home = await house()
    lines = home.queue.core.disk.lines
    monkeypatch.setattr(lines, "trouble", DISK_ERROR)
    with pytest.raises(QueueRefusal, match="451"):
        await home.queue.feedback([bounce()])
    monkeypatch.undo()
    assert await home.queue.feedback([bounce()]) == [True]


@pytest.mark.parametrize(
    ("row", "said"),
    [
        (Feedback("slander"), "there is no kind of feedback 'slander'"),
        (bounce(message="7"), "'7' is not a message's id"),
        (bounce(genuine="hope"), "cannot be genuine by 'hope'"),
        (bounce(via="pigeon"), "come via 'pigeon'"),
        (bounce(reporter=7), "reporter of feedback is 7"),
    ],
)
async def test_what_cannot_be_is_said(house: Make, front: Any, row: Feedback, said: str) -> None:
    """One sentence, and nothing of the call is recorded."""
    home = await house()
    intake = await front(home)
    with pytest.raises(ValueError, match=said):
        await intake.feedback([bounce(), row])
    assert recorded(home) == []


async def test_what_a_bounce_quotes_is_judged_by_our_rules(house: Make) -> None:
    """Class and rule are in the record, as if the reply had come in the dialogue; of other kinds there are none."""
    home = await house()
    await home.queue.feedback([bounce(), Feedback("complaint", "bob@x.test", ID, text="550 5.1.1 no such user")])
    first, second = recorded(home)
    assert (first.reply_class, first.agreed, first.tied) == ("user-unknown", True, "token")
    assert first.rule
    assert (second.reply_class, second.rule, second.agreed) == ("", "", False)


async def test_what_nobody_understood_is_kept_in_so_many_files(house: Make) -> None:
    """The oldest make room; each is there before it is answered, and gone with its row, or with whom it names."""
    home = await house(return_path={"unread": 3, "srs_days": 3})
    rows = [Feedback("other", raw=b"number %d " % number + b"x" * 70_000) for number in range(5)]
    for row in rows:
        assert await home.queue.feedback([row]) == [True]
    await home.rest()
    files = list((home.folder / "feedback").glob("*.eml"))
    assert sorted(path.read_bytes()[:8] for path in files) == [b"number 2", b"number 3", b"number 4"]
    assert {path.stat().st_size for path in files} == {65_536}
    assert await home.queue.feedback([rows[4]]) == [False]
    page = await home.queue.ask("feedback", unread=True)
    assert [row["raw_bytes"] for row in page["rows"]] == [65_536] * 3
    await home.queue.feedback([Feedback("other", raw=b"<Bob@x.test> says")])
    await home.queue.ask("forget", address="bob@x.test")
    assert not any(b"Bob" in path.read_bytes() for path in (home.folder / "feedback").glob("*.eml"))
    await home.move(4 * DAY_S)
    await home.queue.sweep()
    assert list((home.folder / "feedback").iterdir()) == []


async def test_an_operator_decides_what_may_be_a_wish(house: Make) -> None:
    """What is taken has unsubscribed, as by its mail's own link; what is not is deleted. Twice is once."""
    home = await house(suppression={}, links={"enabled": True, "url": "https://l.test", "secrets": ["x" * 32]})
    one = await home.put("ann@x.test", campaign="spring")
    wish = {"form": "wish", "raw": b"take me off, would you?", "via": "smtp"}
    await home.queue.feedback([
        Feedback("other", "ann@x.test", one, genuine="token", **wish), Feedback("other", "bob@x.test", **wish),
        Feedback("other", "eve@x.test", raw=b"hm"),
    ])  # fmt: skip
    eve, bob, ann = (row["seq"] for row in (await home.queue.ask("feedback", unread=True))["rows"])
    assert [row["seq"] for row in (await home.queue.ask("feedback", wishes=True))["rows"]] == [bob, ann]
    assert await home.queue.ask("feedback-leave", numbers=[ann, eve, 999]) == 1
    assert await home.queue.ask("feedback-leave", numbers=[ann]) == 0
    assert await home.queue.ask("feedback-forget", numbers=[bob]) == 1
    assert (await home.queue.ask("feedback", wishes=True))["rows"] == []
    for _ in range(4):
        await home.rest()
    rows = (await home.queue.ask("suppressions", limit=10))["rows"]
    assert [(row["address"], row["kind"], row["scope"]) for row in rows] == [("ann@x.test", "unsubscribe", "campaigns")]
