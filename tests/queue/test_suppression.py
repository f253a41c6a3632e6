"""The suppression list: nothing is sent to those on it, whenever they were listed, and list and journal agree."""

import asyncio
import hashlib
import random
from collections.abc import Callable
from typing import Any

import pytest

from zonemta_py.disk import keys, packing
from zonemta_py.disk.leveldb.store import Store
from zonemta_py.journal import receipts, segments
from zonemta_py.journal.records import Type
from zonemta_py.mail.addresses.person import person
from zonemta_py.mail.envelope import Envelope, Recipient
from zonemta_py.queue.api import DEFERRED, DELIVERED, HELD, QueueRefusal, Receipt

Make = Callable[..., Any]
BODY = b"Subject: hello\r\n\r\nHi\r\n"


def envelope(*addresses: str, **more: Any) -> Envelope:
    return Envelope(
        more.pop("sender", "ann@src.test"), [Recipient(address) for address in addresses], len(BODY), **more
    )


async def suppress(home: Any, *addresses: str, kind: str = "manual", campaign: str = "") -> dict[str, int]:
    rows = [[address, kind, "because", "evidence 1", "tester", campaign] for address in addresses]
    return dict(await home.queue.ask("suppress", rows=rows))


async def listed(home: Any) -> list[str]:
    return [row["address"] for row in (await home.queue.ask("suppressions"))["rows"]]


def removed(home: Any) -> list[list[Any]]:
    """Bodies of the REMOVED records, id left out; the disk must be at rest."""
    found = []
    for record in segments.read(home.folder / "journal", 0, [], home.folder / "archive"):
        if record.type == Type.REMOVED:
            found.append(packing.unpack(record.body)[1:])
    return found


@pytest.mark.parametrize(
    ("given", "spelling"),
    [
        ("Ann.Lee@Example.COM", "ann.lee@example.com"),
        ("ann@bücher.example.", "ann@xn--bcher-kva.example"),
        ("JOSE\u0301@x.test", "jos\u00e9@x.test"),
        ('"a b"@x.test', '"a b"@x.test'),
        ('"Eve"@x.test', "eve@x.test"),
        ('"e\\ve..x."@x.test', "eve..x.@x.test"),
        ('"\u00dc"@x.test', "\u00fc@x.test"),
        ('"a,b"@x.test', '"a,b"@x.test'),
        ('"a@b"@x.test', '"a@b"@x.test'),
        ('".."@x.test', '".."@x.test'),
        ("ann+tag@x.test", "ann+tag@x.test"),
    ],
)
def test_one_spelling_for_a_person(given: str, spelling: str) -> None:
    """Case, Unicode form and U-labels do not make another person; a tag does. It is its own spelling."""
    assert person(given) == spelling
    assert person(spelling) == spelling


async def test_those_on_the_list_are_left_out_when_mail_comes(house: Make, front: Any) -> None:
    """They are counted in the receipt; the others get their mail; another spelling is the same person."""
    home = await house()
    intake = await front(home)
    assert await suppress(home, "bob@x.test", "DAN@x.test") == {"added": 2, "known": 0}
    receipt = await intake.accept(envelope("Bob@x.test", "cid@x.test", "dan@X.test"), BODY)
    assert receipt[1:] == (1, 2, False)
    (delivery,) = await home.lease()
    assert [one.address for one in delivery.recipients] == ["cid@x.test"]
    await home.settle(delivery)
    await home.rest()
    assert removed(home) == [
        ["default", ["Bob@x.test", "dan@X.test"], "suppressed: manual", {"destination": "", "due": []}]
    ]
    await home.sound()


@pytest.mark.parametrize("power", [False, True])
async def test_a_message_of_which_nobody_is_left_is_taken_and_forgotten(house: Make, front: Any, power: bool) -> None:
    """Its client hears of success, nothing is stored, and the journal has its envelope, also after a crash."""
    home = await house()
    await suppress(home, "bob@x.test", kind="complaint")
    intake = await front(home)
    assert (await intake.accept(envelope("bob@x.test", campaign="spring"), BODY)).id
    receipt = await intake.accept(envelope("bob@x.test"), b"x" * 200_000)
    assert receipt[1:] == (0, 1, False)
    await home.crash(power=power)
    assert (await home.sizes())["messages"] == 0
    assert list(home.queue.core.disk.store.keys(b"message ", b"message!")) == []
    await home.rest()
    first, _ = removed(home)
    assert first[:3] == ["default", ["bob@x.test"], "suppressed: complaint"]
    assert first[3]["envelope"]["campaign"] == "spring"
    await home.sound()


async def test_a_request_of_which_nobody_is_left_is_a_request(house: Make) -> None:
    """It is answered again as it was, after a crash too, though the person may be off the list by then."""
    home = await house()
    await suppress(home, "bob@x.test")
    asked = envelope("bob@x.test", request="key one", digest=hashlib.sha256(b"1").digest())
    first = await home.queue.accept(asked, BODY)
    assert first == Receipt(first.id, 0, 1, False)
    await home.crash(power=True)
    await home.queue.ask("unsuppress", addresses=["bob@x.test"])
    assert await home.queue.accept(asked, BODY) == first._replace(repeated=True)
    assert (await home.sizes())["messages"] == 0


async def test_plain_smtp_clients_hear_of_success(house: Make, front: Any) -> None:
    """`accept` returns an id as always, whoever of the recipients is left out."""
    home = await house()
    await suppress(home, "bob@x.test")
    intake = await front(home)
    assert len((await intake.accept(envelope("bob@x.test", "cid@x.test"), BODY)).id) == 16


async def test_quotes_make_no_other_person(house: Make, front: Any) -> None:
    """Suppressed in one form, left out in the other."""
    home = await house()
    intake = await front(home)
    await suppress(home, '"eve"@x.test', "bob@x.test")
    assert await listed(home) == ["bob@x.test", "eve@x.test"]
    receipt = await intake.accept(envelope("eve@x.test", '"Eve"@x.test', '"bob"@x.test', '"a b"@x.test'), BODY)
    assert receipt[1:] == (1, 3, False)


@pytest.mark.parametrize("state", ["queued", "deferred", "held", "after a crash"])
async def test_who_is_listed_later_is_removed_when_it_is_leased(house: Make, state: str) -> None:
    """Mail that waited already goes to the others only; there is no bounce, and the journal says why."""
    home = await house()
    message_id = await home.put("bob@x.test", "cid@x.test")
    if state in ("deferred", "held"):
        (delivery,) = await home.lease()
        await home.settle(delivery, DEFERRED if state == "deferred" else HELD)
    await suppress(home, "bob@x.test", kind="hard-bounce")
    if state == "deferred":
        await home.move(3600)
    elif state == "held":
        await home.rest()
        await home.queue.ask("release", id=message_id)
    elif state == "after a crash":
        await home.crash()
    (delivery,) = await home.lease()
    assert [one.address for one in delivery.recipients] == ["cid@x.test"]
    await home.settle(delivery)
    await home.rest()
    assert [row[:3] for row in removed(home)] == [["default", ["bob@x.test"], "suppressed: hard-bounce"]]
    assert (await home.sizes())["messages"] == 0
    await home.sound()


async def test_a_message_ends_with_its_last_recipient_removed(house: Make) -> None:
    """Nobody is left at the lease: the message is gone, its limits are given back, and others are served."""
    home = await house(zones=[{"name": "default", "default": True, "connections_per_destination": 1}])
    await home.put("bob@x.test")
    await home.put("cid@x.test")
    await suppress(home, "bob@x.test")
    (delivery,) = await home.lease(5)
    assert [one.address for one in delivery.recipients] == ["cid@x.test"]
    await home.settle(delivery)
    await home.rest()
    assert (await home.sizes())["messages"] == 0
    assert list(home.queue.core.disk.store.keys(b"message ", b"message!")) == []
    await home.sound()


@pytest.mark.parametrize("seed", range(6))
async def test_a_crash_after_a_removal_changes_nothing(house: Make, seed: int) -> None:
    """The record says where the recipient was: replayed, or found done; never sent, never lost count of."""

    die = random.Random(seed)
    home = await house()
    await home.put("bob@x.test", "cid@x.test")
    await home.put("bob@x.test")
    (delivery,) = await home.lease()
    await home.settle(delivery, DEFERRED)
    await suppress(home, "bob@x.test")
    await home.move(3600)
    task = asyncio.ensure_future(home.queue.lease(1))
    for _ in range(die.randint(0, 8)):
        await asyncio.sleep(die.choice((0, 0.002)))
    await home.crash(power=die.random() < 0.5, die=die, drop=die.random() < 0.5)
    task.cancel()
    deliveries = await home.leases()
    assert [[one.address for one in delivery.recipients] for delivery in deliveries] == [["cid@x.test"]]
    for delivery in deliveries:
        await home.settle(delivery)
    await home.rest()
    assert (await home.sizes())["messages"] == 0
    await home.sound()


async def test_notices_go_to_those_who_send(house: Make) -> None:
    """The null sender is exempt: who sends hears what became of it, wherever he stands on the list."""
    home = await house()
    await home.put("bob@x.test", sender="")
    await suppress(home, "bob@x.test")
    receipt = await home.queue.accept(envelope("bob@x.test", sender=""), BODY)
    assert receipt[1:] == (1, 0, False)
    assert sum(len(delivery.recipients) for delivery in await home.leases()) == 2


@pytest.mark.parametrize("power", [False, True])
async def test_list_and_journal_agree_after_a_crash(house: Make, power: bool) -> None:
    """What was answered stands after any crash, and fsck finds store and journal equal."""
    home = await house()
    await suppress(home, "bob@x.test", "cid@x.test")
    await home.queue.ask("unsuppress", addresses=["Bob@X.test"], by="tester")
    await home.crash(power=power)
    assert await listed(home) == ["cid@x.test"]
    row = await home.queue.ask("suppression", address="CID@x.test")
    assert row == {
        "address": "cid@x.test",
        "kind": "manual",
        "since_ms": home.clock.ms(),
        "reason": "because",
        "evidence": "evidence 1",
        "by": "tester",
        "campaign": "",
        "scope": "all",
        "also": [],
        "others": [],
    }
    assert await home.queue.ask("suppression", address="bob@x.test") is None
    await home.sound()


async def test_a_stronger_word_takes_the_place_of_a_weaker_one(house: Make) -> None:
    """A bounce does not hide a complaint, and a complaint is not hidden by a bounce."""
    home = await house()
    assert await suppress(home, "bob@x.test", kind="hard-bounce") == {"added": 1, "known": 0}
    assert await suppress(home, "bob@x.test", kind="complaint") == {"added": 1, "known": 0}
    assert await suppress(home, "bob@x.test", "bob@x.test", kind="hard-bounce") == {"added": 0, "known": 2}
    assert (await home.queue.ask("suppression", address="bob@x.test"))["kind"] == "complaint"


async def test_many_at_once_come_in_pages(house: Make) -> None:
    """A list is read page by page, by address; those of one kind alone if asked for."""
    home = await house()
    addresses = [f"r{number:04d}@x.test" for number in range(2500)]
    assert await suppress(home, *addresses[:2400]) == {"added": 2400, "known": 0}
    assert await suppress(home, *addresses[2400:], kind="unsubscribe") == {"added": 100, "known": 0}
    found, after = [], ""
    while after is not None:
        page = await home.queue.ask("suppressions", after=after, limit=1000)
        found += [row["address"] for row in page["rows"]]
        after = page["next"]
    assert found == addresses
    page = await home.queue.ask("suppressions", kind="unsubscribe", limit=100)
    assert [row["address"] for row in page["rows"]] == addresses[2400:]


@pytest.mark.parametrize(
    ("question", "arguments", "sentence"),
    [
        ("suppress", {"rows": [["bob@x.test", "hated", "", "", ""]]}, "there is no kind 'hated'; use hard-bounce"),
        ("suppress", {"rows": [["bob", "manual", "", "", ""]]}, "'bob' is not an address"),
        ("suppress", {"rows": [["b\n@x.test", "manual", "", "", ""]]}, "is not an address"),
        ("suppress", {"rows": [["*@*", "manual"]]}, "stops everybody; `zonemta suspend zone NAME` stops all mail of a"),
        ("suppress", {"rows": [["b" * 400 + "@x.test", "manual"]]}, "is not an address"),
        ("suppress", {"rows": [[1, 2]]}, "is not an entry"),
        ("unsuppress", {"addresses": ["@"]}, "'@' is not a domain; give one such as @example.com"),
        ("suppression", {"address": ""}, "'' is not an address"),
        ("suppressions", {"kind": "x"}, "there is no kind 'x'"),
        ("forget", {"address": "nobody"}, "'nobody' is not an address"),
    ],
)
async def test_what_makes_no_sense_is_refused_in_one_sentence(
    house: Make, question: str, arguments: dict[str, Any], sentence: str
) -> None:
    """And nothing of it is done, not even the rows that are right."""
    home = await house()
    if "rows" in arguments:
        arguments = {"rows": [["fine@x.test", "manual", "", "", ""], *arguments["rows"]]}
    with pytest.raises(ValueError, match=r"^[^\n]+$") as caught:
        await home.queue.ask(question, **arguments)
    assert sentence in str(caught.value)
    assert await listed(home) == []


async def test_a_store_that_cannot_be_read_refuses_mail(house: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody knows who is on the list then: 451, and the client tries again."""
    home = await house()
    await suppress(home, "bob@x.test")
    monkeypatch.setattr(home.queue.core.disk.store, "fenced", True)
    with pytest.raises(QueueRefusal, match=r"451 4\.3\.0"):
        await home.queue.accept(envelope("bob@x.test"), BODY)
    heard: list[Any] = []
    home.queue.acceptance.admit(envelope("bob@x.test"), [BODY], heard.append)
    assert heard[0].code == 451
    monkeypatch.undo()


async def test_a_person_is_forgotten_wherever_mail_waits(house: Make) -> None:
    """Fresh, deferred, parked, held: all of the person's leaves the queue, in any spelling, and nobody else's."""
    home = await house(queue={"window": 100})
    for number in range(150):  # more than the window holds: some stay unread or parked
        await home.put(f"r{number}@x.test", "Bob@x.test")
    (delivery,) = await home.lease()
    await home.settle(delivery, DEFERRED)
    (delivery,) = await home.lease()
    await home.settle(delivery, HELD)
    await home.rest()
    last, named = receipts.last(home.folder), home.folder / receipts.FOLDER
    assert any(b"Bob@x.test" in path.read_bytes() for path in named.iterdir())
    answer = await home.queue.ask("forget", address="bob@X.test")
    assert answer == {"removed": 150, "under_way": 0, "listed": False, "kept": False}
    assert not any(b"Bob@x.test" in path.read_bytes() for path in named.iterdir())
    assert receipts.last(home.folder) >= last, "damage to the last batch is still seen"
    await home.crash(power=True)
    rows = await home.listed()
    assert len(rows) == 150
    assert not [row for row in rows if row["recipient"].startswith("Bob")]
    await home.sound()


async def test_what_a_sender_has_is_counted_and_found_the_next_time(house: Make) -> None:
    """A message under way cannot be taken back; it is said, and asking again finds what became of it."""
    home = await house()
    await home.put("bob@x.test")
    (delivery,) = await home.lease()
    assert await home.queue.ask("forget", address="bob@x.test") == {
        "removed": 0, "under_way": 1, "listed": False, "kept": False,
    }  # fmt: skip
    await home.settle(delivery, DEFERRED)
    await home.rest()
    assert (await home.queue.ask("forget", address="bob@x.test"))["removed"] == 1
    assert (await home.sizes())["messages"] == 0


async def test_the_list_forgets_too_unless_it_is_to_keep(house: Make) -> None:
    """keep: the bare address stays, as erased; what the entry said before is gone either way."""
    home = await house()
    await suppress(home, "bob@x.test", "cid@x.test", kind="complaint")
    assert (await home.queue.ask("forget", address="bob@x.test"))["listed"]
    await home.queue.ask("forget", address="cid@x.test", keep=True, by="tester")
    assert await listed(home) == ["cid@x.test"]
    row = await home.queue.ask("suppression", address="cid@x.test")
    assert (row["kind"], row["reason"], row["evidence"]) == ("erased", "", "")
    assert (await home.queue.accept(envelope("cid@x.test"), BODY)).suppressed == 1


async def test_doubts_about_a_person_are_forgotten(house: Make, front: Any) -> None:
    """The list of those in doubt names people as well."""
    home = await house()
    await home.put("bob@x.test")
    await home.lease()
    home.queue.lost("")
    await home.rest()
    assert len(await home.queue.ask("in-doubt")) == 1
    await home.queue.ask("forget", address="bob@x.test")
    await home.rest()
    assert await home.queue.ask("in-doubt") == []


async def test_fsck_knows_the_families(house: Make) -> None:
    """An entry that is missing, one too many, keys without an end, ends without a key: found, and mended."""
    home = await house()
    await suppress(home, "bob@x.test", "cid@x.test")
    await home.queue.ask("unsuppress", addresses=["cid@x.test"])
    await home.queue.accept(envelope("dan@x.test", request="one", digest=b"1"), BODY)
    await home.queue.accept(envelope("eve@x.test", request="two", digest=b"2"), BODY)
    await home.rest()
    await home.queue.position()
    home.image()
    home.abandon()
    store = Store(home.folder / "store")
    one, two = store.keys(keys.REQUESTS, keys.end(keys.REQUESTS))
    ends = list(store.keys(keys.REQUEST_ENDS, keys.end(keys.REQUEST_ENDS)))
    mine = next(end for end in ends if end.endswith(one.split(b" ")[-1]))
    value = store.get(keys.suppressed("bob@x.test"))
    store.write([(keys.suppressed("bob@x.test"), None), (keys.suppressed("cid@x.test"), value)], sync=True)
    store.write([(mine, None), (two, None)], sync=True)
    store.close()
    found = sorted(problem.what for problem in home.check(repair=True).problems)
    assert found == [
        "a request that is gone has an end",
        "bob@x.test is listed otherwise than the journal says",
        "cid@x.test is on the suppression list and was taken off it",
        "the key of a request has no end",
    ]
    assert home.check().problems == []
    await home.open()
    assert await listed(home) == ["bob@x.test"]


async def test_nothing_is_looked_up_while_the_list_is_empty(house: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither when mail comes nor when it is leased; and once it is empty again."""
    home = await house()
    await suppress(home, "bob@x.test")
    await home.queue.ask("unsuppress", addresses=["bob@x.test"])
    monkeypatch.setattr(home.queue.suppression, "of", None)
    await home.put("bob@x.test")
    (delivery,) = await home.lease()
    await home.settle(delivery, DELIVERED)


async def test_what_came_after_the_list_grew_is_not_looked_up_twice(
    house: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was looked up when it came: the lease needs no second look."""
    home = await house()
    await suppress(home, "bob@x.test")
    await home.put("cid@x.test")
    monkeypatch.setattr(home.queue.suppression, "of", None)
    assert len(await home.lease()) == 1
