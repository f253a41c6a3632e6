"""Each operation of the queue, and each rule about it, over a blow that falls while it is being used.

`CASES` has them by name; `COVERED` says which tests of one queue alone (tests/queue/contract, test_conformance.py) each
of them repeats, and `ALONE` why some of those are about one process, and need no cluster.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from itertools import combinations
from typing import Any

from survival.client import Client
from survival.contract.caller import Caller, Reserved
from survival.contract.stage import SLOW_S
from survival.ledger import Ledger
from survival.letters import Letter

Case = Callable[[Caller], Awaitable[None]]
CASES: dict[str, Case] = {}
COVERED: dict[str, tuple[str, ...]] = {}
ALONE = {
    "test_a_result_must_name_every_recipient_once": "what a sender may say to its queue",
    "test_a_clock_that_goes_back_delays_nothing_for_ever": "the machine's clock is set",
}
PEOPLE = [f"p{number:02}" for number in range(8)]
LATER_S = 12


def case(*tests: str) -> Callable[[Case], Case]:
    """tests: of one queue alone, whose rules this one has."""

    def add(one: Case) -> Case:
        CASES[one.__name__] = one
        COVERED[one.__name__] = tests
        return one

    return add


async def full(one: Caller, **more: Any) -> list[str]:
    """The ids of messages to PEOPLE, who get nothing until the domain's stop is lifted."""
    await one.stop()
    return [await one.put(who, **more) for who in PEOPLE]


# -- enqueue and dequeue


@case("test_put_lease_settle", "test_what_is_taken_is_what_was_put", "test_an_empty_queue_has_nothing")
async def mail_comes_as_it_was_put(one: Caller) -> None:
    """Sender, recipients and bytes, of messages put before and in the middle of it; with a null sender, too."""
    assert (found := await one.size()) == {}, found
    assert await one.browse() == []
    await one.put("a", "b")
    await one.put("c", sender="")
    await one.middle()
    await one.together(one.put(who, sender="" if who == "e" else None) for who in ("d", "e", "f"))
    await one.over()
    await one.come(*"abcdef")
    senders = {who.partition("@")[0]: mail.sender for mail in one.arrived() for who in mail.recipients}
    assert senders == dict.fromkeys("abdf", one.sender) | {"c": "", "e": ""}
    assert (found := await one.size()) == {}, found


@case("test_many_at_once", "test_many_at_once_each_take_their_own")
async def letters_by_smtp_come_once(one: Caller) -> None:
    """Many sessions at home: whatever was acknowledged comes, and what was not comes to all of a letter's recipients or
    to none."""

    def kinds_of(number: int) -> tuple[str, ...]:
        return ("x", "gone") if number % 10 == 2 else ("x", "later") if number % 3 == 1 else ("x",)

    def letter(number: int, attempt: int = 0) -> Letter:
        name = f"{number}.{attempt}"
        people = [f"{kind}-{name}@{one.domain}" for kind in kinds_of(number)]
        size = 80_000 if number % 20 == 7 else 900
        head = f"Message-ID: <{name}@letters.test>\r\nDate: Sat, 21 Nov 2026 04:00:00 +0000\r\nFrom: x@letters.test\r\n"
        data = f"{head}Subject: {name}\r\n\r\n" + f"..{name} \r\n" * (size // 12)
        return Letter(name, f"writer-{name}@{one.name}.letters.test", people, data.encode())

    ledger = Ledger(make=lambda name: letter(*map(int, name.split("."))))
    client = Client(one.home.mta.port, ledger, make=letter)
    await client.hand_in(range(15), sessions=4)
    work = asyncio.create_task(client.hand_in(range(15, 60), sessions=4))
    await one.middle()
    await work
    await one.over()
    await one.until_empty()
    for mail in one.arrived():
        ledger.arrived(mail)

    def told() -> bool:
        """Bounces go to their senders by themselves."""
        return all(
            any(to.startswith(f"writer-{number}.") for mail in notices() for to in mail.recipients)
            for number in range(2, 60, 10)
        )

    def notices() -> list[Any]:
        return one.arrived(f"{one.name}.letters.test")

    await one.until(told, lambda: "some senders are not notified")
    for mail in notices():
        ledger.arrived(mail)
    broken = ledger.judge(await one.in_doubt()).broken
    assert not broken, broken


@case("test_a_large_message_comes_back_chunk_by_chunk")
async def a_large_message_comes_whole(one: Caller) -> None:
    """Put once before, and once in the middle."""
    texts = {who: "".join(f"{who} {number}\r\n" for number in range(120_000)) for who in ("before", "middle")}
    await one.stop()
    await one.put("before", text=texts["before"], home=True)
    await one.middle()
    await one.put("middle", text=texts["middle"])
    await one.lift()
    await one.over()
    await one.until(lambda: len(set(one.people())) == 2, lambda: "it does not come")
    await one.until_empty()
    assert all(mail.body.endswith(texts[mail.recipients[0].partition("@")[0]].encode()) for mail in one.arrived())


@case()
async def a_key_is_one_message(one: Caller) -> None:
    """Repeated at each node, before and after: the first receipt, and it comes once."""
    await one.stop()
    keys = [one.key() for _ in range(9)]
    ids = [await one.put(f"k{number}", key=key) for number, key in enumerate(keys[:6])]
    await one.middle()
    ids += await one.together(one.put(f"k{number}", key=keys[number]) for number in range(6, 9))
    assert await one.together(one.put(f"k{number}", key=key) for number, key in enumerate(keys)) == ids
    await one.over()
    assert [await one.put(f"k{number}", key=key) for number, key in enumerate(keys)] == ids
    assert (found := await one.size()) == {"queued": 9}, found
    await one.lift()
    await one.come(*(f"k{number}" for number in range(9)))


@case()
async def the_same_message_twice_is_two(one: Caller) -> None:
    """Without a key: as often as it was put."""
    await one.stop()
    first = [await one.put("twin", home=True) for _ in range(2)]
    await one.middle()
    third = await one.put("twin")
    await one.over()
    assert len({*first, third}) == 3
    await one.lift()
    await one.until(lambda: len(one.people()) >= 3, lambda: "one is lost")
    await one.until_empty()
    assert len(one.people()) == 3 or one.address("twin") in await one.in_doubt()


@case("test_an_aborted_message_leaves_nothing")
async def what_was_not_acknowledged_is_whole_or_not_there(one: Caller) -> None:
    """Connections that break before the dot leave nothing."""
    await one.stop()
    halves = list[asyncio.StreamWriter]()
    for number in range(4):
        _, writer = await asyncio.open_connection("127.0.0.1", one.home.mta.port)
        to = one.address(f"half{number}")
        writer.write(f"EHLO x\r\nMAIL FROM:<a@x.test>\r\nRCPT TO:<{to}>\r\nDATA\r\n".encode())
        writer.write(b"Subject: half\r\n\r\n" + b"half a line\r\n" * 10_000 * (number % 2))
        await writer.drain()
        halves.append(writer)
    for writer in halves[:2]:
        writer.close()
    await one.middle()
    for writer in halves[2:]:
        writer.close()
    await one.put("whole")
    await one.over()
    await one.until_size(queued=1)
    assert await one.browse() == ["whole"]
    await one.lift()
    await one.come("whole")


@case("test_a_lease_has_recipients_of_one_message_up_to_the_limit")
async def recipients_of_a_message_go_in_portions(one: Caller) -> None:
    """At most so many at a time, nobody left out, nobody twice."""
    await one.stop()
    people = [f"r{number}" for number in range(10)]
    await one.put(*people, zone="few")
    await one.middle()
    await one.put("last", zone="few")
    await one.lift()
    await one.over()
    await one.until(lambda: {*people, "last"} <= set(one.people()), lambda: f"only {one.people()} came")
    await one.until_empty()
    assert max(len(mail.recipients) for mail in one.arrived()) <= 4
    doubled = {one.address(who) for who, times in Counter(one.people()).items() if times > 1}
    assert doubled <= await one.in_doubt()


@case("test_what_comes_first_goes_first")
async def what_comes_first_goes_first(one: Caller) -> None:
    """One connection, one queue: in the order in which it was put."""
    await one.stop()
    people = [f"n{number:02}" for number in range(9)]
    for who in people:
        await one.put(who, zone="line", home=True)
    await one.middle()
    await one.lift()
    await one.over()
    await one.come(*people)
    assert list(dict.fromkeys(one.people())) == people


@case("test_destinations_take_turns")
async def those_who_share_a_way_take_turns(one: Caller) -> None:
    """However much one tenant has at the head, the others come after his first."""
    await one.stop()
    for number in range(9):
        await one.put(f"busy{number}", zone="turns", home=True, tenant=f"busy-{one.name}")
    for other in ("a", "b"):
        await one.put(other, zone="turns", home=True, tenant=f"{other}-{one.name}")
    await one.middle()
    await one.over()
    await one.lift()
    await one.come("a", "b", *(f"busy{number}" for number in range(9)))
    assert max(one.people().index(who) for who in "ab") <= 4, one.people()


@case("test_connection_limits_are_exact")
async def no_limit_is_exceeded(one: Caller) -> None:
    """`exceeded` of the command looks at all nodes' journals in the end."""
    people = [f"r{number}" for number in range(50)]
    await one.together(one.put(who, zone="paced") for who in people[:25])
    await one.middle()
    for who in people[25:]:
        await one.put(who, zone="paced")
    await one.over()
    await one.come(*people)


@case("test_every_verdict_does_what_it_says")
async def every_verdict_does_what_it_says(one: Caller) -> None:
    """Delivered, put off and then delivered, refused for now, refused for good, of which the sender hears once."""
    await one.put("ok", "later1", "never", "gone")
    await one.middle()
    await one.put("ok2", "later2", "never2", "gone2")
    await one.over()

    def notices() -> list[Any]:
        return one.arrived(one.sender.partition("@")[2])

    await one.until(lambda: {"ok", "ok2", "later1", "later2"} <= set(one.people()), lambda: "some do not come")
    await one.until(lambda: len(notices()) >= 2, lambda: "the sender is not notified")
    left = await one.browse()
    for _ in range(100):  # what has come may not have its result yet
        if sorted(left) == ["never", "never2"]:
            break
        await asyncio.sleep(0.2)
        left = await one.browse()
    assert sorted(left) == ["never", "never2"]
    assert (await one.task("delete", undo_s=0))["done"] == 2
    assert (found := await one.size()) == {}, found
    doubled = {one.address(who) for who, times in Counter(one.people()).items() if times > 1}
    in_doubt = await one.in_doubt()
    assert doubled <= in_doubt
    assert len(notices()) == 2 or one.sender in in_doubt


@case("test_deferred_mail_comes_when_it_is_due", "test_what_is_deferred_waits_at_least_as_long_as_said")
async def what_was_put_off_keeps_its_attempts(one: Caller) -> None:
    """How often it was tried is not forgotten, nor is it tried before its time."""
    await one.put("never")
    rows: list[dict[str, Any]] = []

    async def tried(times: int) -> bool:
        nonlocal rows
        rows = (await one.get("/v1/recipients", domain=one.domain))["rows"]
        return bool(rows) and rows[0]["attempts"] >= times

    await one.until(lambda: tried(2), lambda: "it is not tried")
    before = rows[0]["attempts"]
    await one.stop()
    await one.middle()
    await one.over()
    await one.until(lambda: tried(before), lambda: f"attempts are forgotten: {rows}")
    assert "not now" in rows[0]["last"]
    await one.lift()
    await one.until(lambda: tried(before + 1), lambda: "it is not tried again")
    assert (await one.task("delete", undo_s=0))["done"] == 1


@case("test_a_lost_sender_leaves_its_mail_in_doubt", "test_what_is_taken_is_given_to_nobody_else")
async def what_was_under_way_is_in_doubt(one: Caller) -> None:
    """By name, and tried again, if its node dies; else it goes on, and nobody else gets it."""

    async def under_way() -> None:
        await one.put("slow1", "slow2", home=True)
        await one.until_size(leased=2)

    await one.middle(under_way)
    await one.over()
    await one.come("slow1", "slow2")
    listed = {one.address("slow1"), one.address("slow2")} & await one.in_doubt()
    assert len(listed) == (2 if one.lost_node else 0)
    if listed:
        ids = [row["id"] for row in (await one.get("/v1/in-doubt"))["rows"] if row["recipient"] in listed]
        await one.order("POST", "/v1/in-doubt/acknowledge", {"ids": ids})
        assert not listed & await one.in_doubt()


@case("test_a_zone_may_hold_what_is_in_doubt")
async def a_zone_may_hold_what_is_in_doubt(one: Caller) -> None:
    """Held for an operator, and not sent before that one says so."""

    async def under_way() -> None:
        await one.put("slow", zone="held", home=True)
        await one.until_size(leased=1)

    await one.middle(under_way)
    await one.over()
    if one.lost_node:
        await one.until_size(held=1)
        assert one.address("slow") in await one.in_doubt()
        before = len(one.people())
        await asyncio.sleep(SLOW_S / 2)
        assert (await one.size(), before <= 1) == ({"held": 1}, True)
        assert (await one.task("release"))["done"] == 1
    await one.come("slow")


# -- time


@case(
    "test_a_delay_lasts_at_least_as_long_as_asked", "test_what_is_delayed_holds_up_nobody",
    "test_a_row_says_until_when_it_is_delayed",
)  # fmt: skip
async def a_delay_lasts_as_long_as_asked(one: Caller) -> None:
    """Wherever it waits; what is not delayed goes; a delay of many days is one."""
    begun = time.time()
    for who, seconds in (("later0", LATER_S), ("days", 25 * 86_400)):
        await one.put(who.replace("later0", "soon"), headers=f"X-Deliver-After: {seconds}\r\n")
    await one.put("now")
    due = {row["recipient"]: row["due_ms"] for row in (await one.get("/v1/recipients", domain=one.domain))["rows"]}
    await one.middle()
    await one.put("now2")
    await one.until(lambda: {"now", "now2"} <= set(one.people()), lambda: "what is not delayed does not come")
    await one.over()
    await one.until(lambda: "soon" in one.people(), lambda: "its time comes, and it does not")
    rows = (await one.get("/v1/recipients", domain=one.domain))["rows"]
    assert [(row["recipient"], row["due_ms"]) for row in rows] == [(one.address("days"), due[one.address("days")])]
    came = next(mail.time for mail in one.arrived() if one.address("soon") in mail.recipients)
    assert came >= begun + LATER_S - 0.1
    assert (await one.task("delete", undo_s=0))["done"] == 1
    assert sorted(set(one.people())) == ["now", "now2", "soon"]


@case("test_a_flush_lets_go_what_is_delayed")
async def a_flush_lets_go_what_is_delayed(one: Caller) -> None:
    """What it was ordered for; the order repeated is the same one."""
    for who in ("a", "b", "c"):
        await one.put(who, headers="X-Deliver-After: 86400\r\n")
    key = one.key()
    where = {"recipient": [one.address("a"), one.address("b")]}
    await one.middle()
    row = await one.task("flush", key, **where)
    assert (row["done"], (await one.task("flush", key, **where))["id"]) == (2, row["id"])
    await one.over()
    await one.until(lambda: {"a", "b"} <= set(one.people()), lambda: "they do not come")
    await one.until_size(deferred=1)
    assert await one.browse() == ["c"]
    assert (await one.task("delete", undo_s=0))["done"] == 1


# -- sizes and browsing


@case("test_sizes_follow_what_happens")
async def sizes_are_right_at_once(one: Caller) -> None:
    """After each acknowledgement, whoever is asked, also right after the blow."""
    await full(one)
    assert (found := await one.size()) == {"queued": len(PEOPLE)}, found
    await one.middle()
    for number in range(8):
        await one.put(f"more{number}")
        assert (found := await one.size()) == {"queued": len(PEOPLE) + number + 1}, found
    assert (await one.task("delete", undo_s=0, recipient=[one.address(who) for who in PEOPLE[:5]]))["done"] == 5
    assert (found := await one.size()) == {"queued": len(PEOPLE) + 3}, found
    await one.over()
    for node in one._stage.nodes.all:
        found = await one.get("/v1/size", at=node, domain=one.domain)
        assert found["queued"] == len(PEOPLE) + 3
    await one.lift()
    await one.come(*PEOPLE[5:], *(f"more{number}" for number in range(8)))
    assert (found := await one.size()) == {}, found


@case("test_browsing_shows_each_once_and_changes_nothing", "test_in_the_order_of_their_coming")
async def browsing_shows_each_once_in_order(one: Caller) -> None:
    """In the order of their coming, page by page, over the blow; each page's cursor holds at every node."""
    await full(one)
    first, after = await one.page(4)
    await one.middle()
    rest = await one.browse(3, after)
    assert first + rest == PEOPLE
    assert await one.browse(5) == PEOPLE
    await one.over()
    for limit in (1, 7, 100):
        assert await one.browse(limit) == PEOPLE
    assert first + await one.browse(2, after) == PEOPLE
    await one.lift()
    await one.come(*PEOPLE)


@case(
    "test_between_two_pages", "test_at_the_same_time", "test_browsing_goes_on_while_mail_comes_goes_and_is_deleted",
    "test_taking_is_not_disturbed_by_browsing",
)  # fmt: skip
async def browsing_goes_on_whatever_happens(one: Caller) -> None:
    """Whoever is there all the time is seen once; what is left may all be taken."""
    await full(one)
    other = f"o.{one.domain}"
    found, after = await one.page(2)
    await one.middle()

    async def browse() -> None:
        cursor = after
        while cursor is not None:
            some, cursor = await one.page(2, cursor)
            found.extend(some)

    async def disturb() -> None:
        for number in range(5):
            await one.put(f"new{number}@{other}")
        gone = [one.address(who) for who in PEOPLE[::3]]
        await one.task("delete", undo_s=0, recipient=gone)
        await one.task("flush", recipient=one.address(PEOPLE[1]))
        await one.task("purge", undo_s=0, domain=other)

    await asyncio.gather(browse(), disturb())
    stays = [who for who in PEOPLE if who not in PEOPLE[::3]]
    assert [who for who in found if who in stays] == stays
    assert len(found) == len(set(found))
    await one.over()
    assert await one.browse() == stays
    await one.lift()
    await one.come(*stays)


@case("test_an_order_changes_no_order")
async def an_order_changes_no_order(one: Caller) -> None:
    """Of those that are listed."""
    await full(one, headers="X-Deliver-After: 3600\r\n")
    some = [one.address(who) for who in PEOPLE[::2]]
    await one.middle()
    for verb, more in (("flush", {}), ("hold", {}), ("release", {}), ("set", {"set": {"priority": 5}})):
        row = await one.task(verb, recipient=some, **more)
        assert row["done"] == len(some), f"{verb}: {row}"
        assert await one.browse(5) == PEOPLE, verb
    await one.over()
    assert await one.browse() == PEOPLE
    await one.task("flush")
    await one.lift()
    await one.come(*PEOPLE)


@case()
async def a_message_is_found_and_its_wait_explained(one: Caller) -> None:
    """Its story from its coming to its end, content and reason to wait, wherever it is asked."""
    await one.stop()
    ident = await one.put("a", home=True)
    await one.middle()
    assert "To a of" in (await one.send("GET", f"/v1/messages/{ident}/content")).response.text
    reasons = (await one.get("/v1/explain", what=one.address("a")))["rows"][0]["reasons"]
    assert any(one.name in reason["cause"] for reason in reasons), reasons
    await one.over()
    assert "To a of" in (await one.send("GET", f"/v1/messages/{ident}/content")).response.text
    await one.lift()
    await one.come("a")

    async def gone() -> bool:  # its last batch may be on its way to the store
        return (await one.send("GET", f"/v1/messages/{ident}/content")).status == 404

    await one.until(gone, lambda: "its content is kept")


# -- deleting and other orders


@case(
    "test_what_is_deleted_is_not_taken_and_nothing_else_is_deleted", "test_a_filter_that_fits_nothing_deletes_nothing"
)
async def what_is_deleted_is_not_sent_and_nothing_else_is(one: Caller) -> None:
    """By recipient, sender, message and domain; the same order repeated is the same one; one that means nobody does
    nothing."""
    ids = await full(one)
    await one.put("other", sender=f"x@src-{one.domain}")
    other = f"d.{one.domain}"
    await one.stop("domain", other)
    await one.put(f"gone@{other}")
    orders = [
        {"recipient": one.address(PEOPLE[0])}, {"sender": f"x@src-{one.domain}"}, {"id": ids[1]}, {"domain": other},
        {"domain": f"nowhere.{one.domain}"},
    ]  # fmt: skip
    pairs = [(order, one.key()) for order in orders]
    await one.middle()
    rows = await one.together(one.task("delete", key, undo_s=0, **order) for order, key in pairs)
    assert [row["done"] for row in rows] == [1, 1, 1, 1, 0]
    await one.over()
    again = [await one.task("delete", key, undo_s=0, **order) for order, key in pairs]
    assert [(row["id"], row["done"]) for row in again] == [(row["id"], row["done"]) for row in rows]
    assert await one.browse() == PEOPLE[2:]
    assert (await one.send("GET", f"/v1/messages/{ids[1]}/content")).status == 404, "its body is gone, too"
    for domain in (one.domain, other):
        await one.lift("domain", domain)
    await one.come(*PEOPLE[2:])
    assert not one.arrived(other)


@case("test_of_several_recipients_only_those_meant_are_deleted")
async def of_several_recipients_only_those_meant_are_deleted(one: Caller) -> None:
    """The others of the same message get it."""
    await one.stop()
    await one.put("a", "b", "c")
    await one.middle()
    assert (await one.task("delete", undo_s=0, recipient=one.address("b")))["done"] == 1
    await one.over()
    assert (found := await one.size()) == {"queued": 2}, found
    await one.lift()
    await one.until(lambda: {"a", "c"} <= set(one.people()), lambda: "the others do not come")
    await one.until_empty()
    assert set(one.people()) == {"a", "c"}


@case(
    "test_a_deletion_does_not_touch_mail_that_comes_later",
    "test_deleting_while_mail_comes_and_goes_takes_what_was_there",
)
async def a_deletion_takes_what_was_there(one: Caller) -> None:
    """What is put after its acknowledgement stays, and nothing of before is sent after it."""
    await full(one)
    await one.middle()
    order = await one.order(
        "POST", "/v1/tasks", {"verb": "delete", "where": {"domain": one.domain}, "undo_s": 0}, one.key()
    )
    for number in range(6):
        await one.put(f"late{number}")
    assert (found := await one.ended(order))["done"] == len(PEOPLE), found
    await one.over()
    await one.lift()
    await one.come(*(f"late{number}" for number in range(6)))


@case("test_what_is_delayed_is_deleted_too")
async def what_is_delayed_is_deleted_too(one: Caller) -> None:
    """It is neither listed then, nor does it come when its time does."""
    await one.stop()
    for number in range(4):
        await one.put(f"soon{number}", headers=f"X-Deliver-After: {LATER_S}\r\n")
    await one.middle()
    assert (await one.task("delete", undo_s=0, recipient=[one.address("soon0"), one.address("soon2")]))["done"] == 2
    assert await one.browse() == ["soon1", "soon3"]
    await one.over()
    await one.lift()
    await one.come("soon1", "soon3")


@case("test_a_purge_leaves_nothing", "test_a_purge_of_one_zone_leaves_the_others")
async def a_purge_leaves_nothing_of_a_zone(one: Caller) -> None:
    """Whatever its state, and the other zones as they were; what is put later goes."""
    await one.stop()
    for number in range(4):
        await one.put(f"p{number}", zone="purged", headers="X-Deliver-After: 3600\r\n" if number % 2 else "")
    await one.put("stays")
    await one.middle()
    assert (await one.task("purge", undo_s=0, zone="purged", domain=one.domain))["done"] == 4
    assert await one.browse() == ["stays"]
    await one.over()
    assert (found := await one.size()) == {"queued": 1}, found
    await one.put("new", zone="purged")
    await one.lift()
    await one.come("stays", "new")


@case("test_what_is_undone_is_as_it_was")
async def what_is_undone_is_as_it_was(one: Caller) -> None:
    """Deleted before, put back in the middle: all of them, once."""
    await full(one)
    row = await one.task("delete")
    assert (found := await one.size()) == {"deleted": len(PEOPLE)}, found
    await one.middle()
    assert (await one.undo(row))["undone"] == len(PEOPLE)
    await one.until_size(queued=len(PEOPLE))  # what is put back is due a moment later
    await one.over()
    assert await one.browse() == PEOPLE
    await one.lift()
    await one.come(*PEOPLE)


@case("test_what_is_held_waits_for_its_release")
async def what_is_held_waits_for_its_release(one: Caller) -> None:
    """Held in the middle, released afterwards."""
    await full(one)
    held = PEOPLE[:5]
    await one.middle()
    assert (await one.task("hold", recipient=[one.address(who) for who in held]))["done"] == 5
    await one.lift()
    await one.over()
    await one.until(lambda: set(one.people()) == set(PEOPLE[5:]), lambda: f"{one.people()} came")
    await one.until_size(held=5)
    assert (await one.task("release"))["done"] == 5
    await one.come(*PEOPLE)


@case("test_tasks_are_listed_the_newest_first")
async def tasks_are_listed_alike_everywhere(one: Caller) -> None:
    """The newest first, each once, however often it was asked for."""
    key = one.key()
    first = await one.task("hold", domain=f"none.{one.domain}")
    await one.middle()
    second = await one.task("release", key, domain=f"none.{one.domain}")
    await one.over()
    assert (await one.task("release", key, domain=f"none.{one.domain}"))["id"] == second["id"]
    for node in one._stage.nodes.all:
        rows = await one.get("/v1/tasks", at=node, limit=1000)
        mine = [row["id"] for row in rows if f"none.{one.domain}" in row["words"]]
        assert mine == [second["id"], first["id"]]


@case("test_an_unknown_question_is_a_value_error")
async def what_makes_no_sense_is_refused(one: Caller) -> None:
    """At once and for good, with a sentence, whoever is down."""
    await one.middle()
    for method, path, said in (
        ("POST", "/v1/tasks", {"verb": "burn", "where": {"all": True}}), ("GET", "/v1/recipients?limits=3", None),
        ("PUT", "/v1/suspensions/nothing/x", {}),
    ):  # fmt: skip
        reply = await one.send(method, path, **({"json": said} if said is not None else {}))
        assert reply.status in (400, 404, 422), f"{path}: {reply.status}"
        assert reply.json["detail"] or reply.json["errors"], path
    await one.over()


@case()
async def orders_hold_on_all_nodes(one: Caller) -> None:
    """A stop, a suppression: given to any node in the middle of it, and heeded by all before and after."""
    await one.middle()
    await one.stop()
    await one.order("POST", "/v1/suppressions", {"rows": [{"address": one.address("nobody"), "kind": "manual"}]})
    await one.together(one.put(f"p{number}", "nobody") for number in range(6))
    await one.over()
    for node in one._stage.nodes.all:
        standing = await one.get("/v1/standing", at=node)
        assert one.domain in [row["name"] for row in (standing["rows"] if isinstance(standing, dict) else standing)]
        assert (await one.get(f"/v1/suppressions/{one.address('nobody')}", at=node))["kind"] == "manual"
    assert not one.people()
    await one.lift()
    people = {f"p{number}" for number in range(6)}
    await one.until(lambda: people <= set(one.people()), lambda: f"only {one.people()} came")
    await one.until_empty()
    assert set(one.people()) == people


# -- campaigns


@case("test_a_campaign_from_its_template_to_its_end")
async def a_campaign_from_its_template_to_its_end(one: Caller) -> None:
    """Put, filled, suspended, resumed, completed; its figures are exact."""
    name = f"spring-{one.name}"
    template = {"from": "News <news@src.test>", "subject": "Hello {{ name }}", "text": "Dear={{ name }}=spring.\n"}
    said = {"sender": "news@src.test", "template": template}
    assert (await one.order("PUT", f"/v1/campaigns/{name}", said))["created"]

    async def batch(first: int, key: str) -> str:
        rows = [[one.address(f"c{number}"), f"N{number}"] for number in range(first, first + 10)]
        body = {"campaign": name, "columns": ["name"], "recipients": rows}
        return str((await one.order("POST", "/v1/inject", body, key))["id"])

    await one.order("POST", f"/v1/campaigns/{name}/suspend", {"cause": "not yet"})
    keys = [one.key() for _ in range(4)]
    ids = [await batch(at * 10, key) for at, key in enumerate(keys[:2])]
    await one.middle()
    ids += await one.together(batch(at * 10, keys[at]) for at in (2, 3))
    assert not (await one.order("PUT", f"/v1/campaigns/{name}", said))["created"]
    await one.over()
    assert await one.together(batch(at * 10, key) for at, key in enumerate(keys)) == ids
    row = await one.get(f"/v1/campaigns/{name}")
    assert (row["state"], row["accepted"], row["waiting"]) == ("paused", 40, 40)
    await one.order("POST", f"/v1/campaigns/{name}/resume", {"cause": "now"})
    await one.order("POST", f"/v1/campaigns/{name}/complete", {})

    async def ended() -> bool:
        nonlocal row
        row = await one.get(f"/v1/campaigns/{name}")
        return bool(row["state"] == "ended")

    await one.until(ended, lambda: f"it does not end: {row}")
    assert (row["accepted"], row["delivered"], row["waiting"], row["removed"]) == (40, 40, 0, 0)
    assert sorted(one.people()) == sorted(f"c{number}" for number in range(40))
    wrong = [
        mail
        for mail in one.arrived()
        if f"Dear=3DN{mail.recipients[0][1:].partition('@')[0]}=3Dspring".encode() not in mail.body
    ]
    assert not wrong, wrong[0]


@case()
async def a_canceled_campaign_sends_nothing_more(one: Caller) -> None:
    """Canceled in the middle, once, though it was asked for again."""
    name = f"summer-{one.name}"
    template = {"from": "News <news@src.test>", "subject": "Hello", "text": "Dear {{ name }},\nsummer.\n"}
    await one.order("PUT", f"/v1/campaigns/{name}", {"sender": "news@src.test", "template": template})
    await one.stop()
    rows = [[one.address(f"c{number}"), f"N{number}"] for number in range(20)]
    body = {"campaign": name, "columns": ["name"], "recipients": rows}
    await one.order("POST", "/v1/inject", body, one.key())
    await one.middle()
    reply = await one.send("POST", f"/v1/campaigns/{name}/cancel", json={"cause": "wrong"})
    assert reply.status == 200 or reply.again, reply.response.text
    await one.over()
    await one.lift()

    async def ended() -> bool:
        nonlocal row
        row = await one.get(f"/v1/campaigns/{name}")
        return bool(row["waiting"] == 0)

    row: dict[str, Any] = {}
    await one.until(ended, lambda: f"it does not end: {row}")
    assert (row["state"], row["accepted"], row["delivered"], row["removed"]) == ("canceled", 20, 0, 20)
    assert one.people() == []
    refused = await one.send("POST", "/v1/inject", key=one.key(), json=body)
    assert (refused.status, "canceled" in refused.response.text) == (409, True) or refused.status == 422


# -- named queues


def numbers(taken: list[Reserved]) -> list[int]:
    return [int(one.body) for one in taken]


def in_order(taken: list[int], wanted: list[int], late: int) -> bool:
    """Whether it is that, but that `late` of them may have come later."""
    if sorted(taken) != sorted(wanted):
        return False
    return any(
        [one for one in taken if one not in without] == [one for one in wanted if one not in without]
        for without in combinations(wanted, min(late, len(wanted)))
    )


@case("test_what_was_pushed_keeps_its_place", "test_what_was_not_tried_goes_again_in_its_place")
async def what_was_pushed_is_taken_in_order(one: Caller) -> None:
    """What is done is done; what was reserved is its holder's, or, if its node has died, in its old place."""
    queue = await one.queue()
    for number in range(8):
        await one.push(queue, f"{number}")
    for _ in range(2):
        taken = await one.reserve(queue)
        assert taken is not None
        assert (await one.ack(queue, taken))[0]
    given, kept = await one.reserve(queue), await one.reserve(queue)
    assert (given, kept) != (None, None)
    assert given is not None
    assert kept is not None
    assert await one.nack(queue, given)
    await one.middle()
    for number in range(8, 12):
        await one.push(queue, f"{number}")
    await one.over()
    done, maybe = await one.ack(queue, kept)
    assert done or maybe or one.lost_node, "a reservation ends with its node only"
    rest = numbers(await one.take_all(queue))
    assert in_order(rest, [2, *([] if done or 3 not in rest else [3]), *range(4, 12)], one.late)


@case("test_the_highest_priority_is_pulled_first")
async def the_highest_priority_is_taken_first(one: Caller) -> None:
    """The oldest within one; whether it was pushed before or in the middle."""
    queue = await one.queue()
    priorities = [0, 5, -3, 5, 9, 0, -9, 3, 5, 0]
    for number, priority in enumerate(priorities[:5]):
        await one.push(queue, f"{number}", priority=priority)
    await one.middle()
    for number, priority in enumerate(priorities[5:], 5):
        await one.push(queue, f"{number}", priority=priority)
    await one.over()
    taken = numbers(await one.take_all(queue))
    assert in_order(taken, sorted(range(10), key=lambda number: (-priorities[number], number)), one.late)


@case("test_who_takes_waits_until_there_is_something")
async def who_takes_waits_until_there_is_something(one: Caller) -> None:
    """Also while it changes its node."""
    queue = await one.queue()
    waiting = asyncio.create_task(one.reserve(queue, 10, 60))
    await asyncio.sleep(0.3)
    await one.middle()
    await one.push(queue, "1")
    taken = await waiting
    assert taken is not None
    done, maybe = await one.ack(queue, taken)
    await one.over()
    rest = numbers(await one.take_all(queue))
    assert rest == [] or not done
    assert done or maybe or rest == [1]


@case()
async def many_workers_take_each_once(one: Caller) -> None:
    """Nobody's work is acknowledged to two, nothing is left, whichever answers are lost."""
    queue = await one.queue()
    pushed = [await one.push(queue, f"{number}") for number in range(6)]
    done, maybe, over = list[str](), set[str](), False

    async def work() -> None:
        while not over:
            taken = await one.reserve(queue, 4, 1)
            if taken is not None:
                sure, unsure = await one.ack(queue, taken)
                if sure:
                    done.append(taken.id)
                elif unsure:
                    maybe.add(taken.id)

    workers = [asyncio.create_task(work()) for _ in range(3)]
    await one.middle()
    for number in range(6, 14):
        pushed.append(await one.push(queue, f"{number}"))
    await one.over()

    async def empty() -> bool:
        return not await one.lengths(queue)

    await one.until(empty, lambda: f"{queue} does not end")
    over = True
    await asyncio.gather(*workers)
    assert len(done) == len(set(done))
    assert {*done, *maybe} == set(pushed)


@case()
async def a_queue_says_how_long_it_is(one: Caller) -> None:
    """What may be taken, is reserved, has its time before it; right after a push, and after the blow."""
    queue = await one.queue()
    for number in range(4):
        await one.push(queue, f"{number}")
    for _ in range(2):
        await one.push(queue, "9", delay=3600)
    assert await one.lengths(queue) == {"ready": 4, "delayed": 2}
    await one.middle()
    await one.push(queue, "4")
    assert await one.lengths(queue) == {"ready": 5, "delayed": 2}
    await one.over()
    taken = await one.reserve(queue)
    assert taken is not None
    assert await one.lengths(queue) == {"ready": 4, "leased": 1, "delayed": 2}
    assert await one.nack(queue, taken, 3600)
    assert await one.lengths(queue) == {"ready": 4, "delayed": 3}
    assert (await one.task("purge", undo_s=0, domain="queue", zone=f"queue/{queue}"))["done"] == 7
    assert await one.lengths(queue) == {}
