"""`set` for source, smart host, return path, header, campaign and tenant: of the recipients that are meant, undone."""

from typing import Any

import pytest

from tests.queue.tasks.test_tasks import done, ended
from zonemta_py.mail.headers import split
from zonemta_py.mail.reply import Reply
from zonemta_py.queue import questions
from zonemta_py.queue.api import BOUNCED, DEFERRED, Delivery

CONFIG: dict[str, Any] = {
    "zones": [{"name": "default", "pool": "p"}, {"name": "jobs", "delivery": "pull"}],
    "pools": [
        {"name": "p", "sources": [{"address": "192.0.2.1"}]},
        {"name": "q", "sources": [{"address": "192.0.2.2"}]},
    ],
}
LATER = Reply(450, "4.3.0", "later")


def by_address(deliveries: list[Delivery]) -> dict[str, Delivery]:
    return {recipient.address: one for one in deliveries for recipient in one.recipients}


@pytest.mark.parametrize(
    ("change", "is_now", "was"),
    [
        ({"source": "192.0.2.2"}, lambda one: one.source == "192.0.2.2", lambda one: one.source == "192.0.2.1"),
        ({"host": "relay.test:26"}, lambda one: (one.host, one.port) == ("relay.test", 26), lambda one: one.host == ""),
        ({"tenant": "shop"}, lambda one: one.tenant == "shop", lambda one: one.tenant == ""),
        ({"campaign": "spring"}, lambda one: one.campaign == "spring", lambda one: one.campaign == ""),
        (
            {"sender": "new@src.test"},
            lambda one: one.routing["sender"] == "new@src.test",
            lambda one: "sender" not in one.routing,
        ),
        (
            {"header": {"Reply-To": "x@y.test", "X-Old": None}},
            lambda one: one.routing["header"] == [["Reply-To", "x@y.test"], ["X-Old", None]],
            lambda one: "header" not in one.routing,
        ),
    ],
)
@pytest.mark.parametrize("crash", [False, True])
async def test_it_is_set_for_those_meant_and_undone(
    house: Any, change: Any, is_now: Any, was: Any, crash: bool
) -> None:
    """One of two recipients of a message; deferred or not; over a crash."""
    home = await house(**CONFIG)
    await home.put("a@x.test", "b@x.test")
    await home.put("a@x.test")
    seen = await ended(
        home, await home.queue.ask("task-preview", verb="set", where={"recipient": "a@x.test"}, set=change)
    )
    assert (seen["count"], len(seen["examples"])) == (2, 2)
    row = await ended(home, await home.queue.ask("task-start", id=seen["id"]))
    assert (row["state"], row["done"]) == ("undoable", 2)
    if crash:
        await home.crash(fsck="look")
    await home.move(0.1)
    leased = await home.leases()
    found = by_address(leased)
    assert is_now(found["a@x.test"])
    assert was(found["b@x.test"])
    for one in leased:
        await home.settle(one, DEFERRED, stage="rcpt", reply=LATER, delay_s=10)
    again = await done(home, "set", where={"recipient": "a@x.test"}, set=change)
    assert again["done"] == 2
    await home.queue.ask("task-undo", id=again["id"])
    await ended(home, again, "undone")
    if crash:
        await home.crash(fsck="look")
    await home.sound()


async def test_an_undo_before_it_was_tried(house: Any) -> None:
    home = await house(**CONFIG)
    await home.put("a@x.test")
    row = await done(home, "set", set={"host": "relay.test", "tenant": "shop", "priority": 3})
    assert row["words"] == "set host relay.test:25, tenant shop, priority 3: everything"
    assert (await home.queue.ask(questions.size_of, tenant="shop"))["deferred"] == 1
    await home.queue.ask("task-undo", id=row["id"])
    await ended(home, row, "undone")
    assert sum((await home.queue.ask(questions.size_of, tenant="shop")).values()) == 0
    await home.move(0.1)
    [one] = await home.leases()
    assert (one.host, one.tenant, one.priority, one.routing) == ("", "", 0, {})
    await home.settle(one)
    await home.sound()


async def test_notices_go_to_the_new_return_path(house: Any) -> None:
    home = await house(**CONFIG)
    await home.put("a@x.test", "b@x.test")
    await done(home, "set", where={"recipient": "a@x.test"}, set={"sender": "new@src.test"})
    await home.move(0.1)
    for one in await home.leases():
        await home.settle(one, BOUNCED, stage="rcpt", reply=Reply(550, "5.1.1", "no such user"))
    to = {one.recipients[0].address for one in await home.leases()}
    assert to == {"ann@src.test", "new@src.test"}


async def test_of_whom_it_cannot_be_done(house: Any) -> None:
    """They stay as they are, and are counted."""
    home = await house(**CONFIG)
    await home.put("a@x.test", sender="")
    await home.put("b@x.test")
    seen = await ended(
        home, await home.queue.ask("task-preview", verb="set", where={"all": True}, set={"sender": "<>"})
    )
    assert (seen["count"], seen["suppressed"]) == (1, 1)
    assert seen["remarks"][0].startswith("1 more recipient stays as before")
    row = await done(home, "set", set={"sender": "<>"})
    assert (row["done"], row["suppressed"]) == (1, 1)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"source": "192.0.2.9"}, "no source of the configuration"),
        ({"source": "here"}, "not an IP address"),
        ({"host": "a b"}, "not a host"),
        ({"sender": "no address"}, "cannot be a return path"),
        ({"sender": ""}, "cannot be a return path"),
        ({"header": {"DKIM-Signature": "x"}}, "cannot be set"),
        ({"header": {"Content-Type": "text/html"}}, "cannot be set"),
        ({"header": {"a b": "x"}}, "not the name of a header field"),
        ({"header": {"Subject": "x\r\nBcc: y@z.test"}}, "line"),
        ({"header": {}}, "header is"),
        ({"campaign": "a~b"}, "campaign: 'a~b' is not a valid name"),
        ({"tenant": 5}, "write a text"),
    ],
)
async def test_what_cannot_be_set_is_refused(house: Any, change: dict[str, Any], says: str) -> None:
    home = await house(**CONFIG)
    with pytest.raises(ValueError, match=says):
        await home.queue.ask("task", verb="set", where={"all": True}, set=change)


def test_fields_are_set_before_it_is_signed() -> None:
    from zonemta_py.mail import edits

    headers, _ = split(b"Subject: old\r\nX-Old: 1\r\nX-Old: 2\r\n\r\nbody")
    edits.set_fields(headers, [["subject", "new"], ["X-Old", None], ["Reply-To", "a@b.test"]])
    assert headers.build() == b"subject: new\r\nReply-To: a@b.test\r\n"
