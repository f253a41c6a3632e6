"""What came back is tied to a message: by its token, its Message-ID, its Feedback-ID, or what is enclosed of it."""

from collections.abc import Callable
from hashlib import sha256
from typing import Any

import pytest

from zonemta_py.disk import keys, packing
from zonemta_py.mail.addresses import verp
from zonemta_py.queue.api import Feedback
from zonemta_py.queue.feedback.register import shown

Make = Callable[..., Any]
SECRET, DAY_S = "a secret of twenty or so", 86_400
PATH = {"verp": "ret.src.test", "secret": SECRET, "feedback_id": "{campaign}:{tenant}:{id}:{sender}", "srs_days": 21}
LONG = "somebody.with.a.very.long.name.indeed.and.more@x.test"


@pytest.fixture
async def home(house: Make) -> Any:
    return await house(return_path=PATH)


async def sent(home: Any, *recipients: str, **more: Any) -> str:
    """A message that has been delivered: nothing is left of it but what is remembered."""
    more = {"campaign": "spring", "tenant": "acme", "headers": {"message-id": "<one@src.test>"}} | more
    message_id = await home.put(*(recipients or ("bob@x.test",)), **more)
    for delivery in await home.leases():
        await home.settle(delivery)
    await home.rest()
    assert home.queue.core.disk.store.get(keys.metadata(message_id)) is None
    return str(message_id)


async def heard(home: Any, row: Feedback) -> dict[str, Any]:
    """What was recorded of it."""
    assert await home.queue.feedback([row]) == [True]
    await home.rest()
    key = home.queue.core.disk.store.last(keys.FEEDBACK, keys.end(keys.FEEDBACK))
    return shown(int(key.split()[1]), home.queue.core.disk.store.get(key))


async def test_a_token_ties_first(home: Any) -> None:
    """Whatever the rest says; campaign, tenant and zone are those of the message, which ended long ago."""
    one = await sent(home)
    other = await sent(home, headers={"message-id": "<two@src.test>"}, campaign="autumn")
    row = Feedback("bounce", "bob@x.test", one, "<two@src.test>", genuine="token", campaign="wrong")
    found = await heard(home, row)
    assert (found["tied"], found["message"], found["campaign"], found["tenant"]) == ("token", one, "spring", "acme")
    assert found["zone"] == "default"
    assert other != one


@pytest.mark.parametrize("said", ["<one@src.test>", " <one@src.test> (comment)", "one@src.test"])
async def test_then_its_message_id(home: Any, said: str) -> None:
    """With brackets or without; before its Feedback-ID."""
    one = await sent(home)
    row = Feedback("complaint", "bob@x.test", message_id=said, feedback_id="autumn:acme:18bcfe5680000009:src.test")
    found = await heard(home, row)
    assert (found["tied"], found["message"], found["campaign"]) == ("message-id", one, "spring")


async def test_then_its_feedback_id(home: Any) -> None:
    """As the template made it; what is not of that form ties nothing."""
    one = await sent(home)
    found = await heard(home, Feedback("complaint", message_id="<no@x>", feedback_id=f"spring:acme:{one}:src.test"))
    assert (found["tied"], found["message"], found["campaign"]) == ("feedback-id", one, "spring")
    found = await heard(home, Feedback("complaint", "z@x.test", feedback_id="something else"))
    assert (found["tied"], found["message"]) == ("", "")


async def test_a_feedback_id_without_an_id_ties_the_campaign(house: Make) -> None:
    """One that there is; a forged name is none."""
    home = await house(return_path=PATH | {"feedback_id": "{campaign}:{zone}"})
    await sent(home)
    found = await heard(home, Feedback("complaint", "y@x.test", feedback_id="spring:default"))
    assert (found["tied"], found["message"], found["campaign"]) == ("feedback-id", "", "spring")
    found = await heard(home, Feedback("complaint", "z@x.test", feedback_id="winter:default"))
    assert (found["tied"], found["campaign"]) == ("", "")


async def test_at_last_what_is_enclosed(home: Any) -> None:
    """A signed return path has the recipient too; a number of ours in any field is one only if it is remembered."""
    one = await sent(home)
    path = verp.encode(one, "bob@x.test", "ret.src.test", SECRET, int(home.clock.now_s) // DAY_S)
    found = await heard(home, Feedback("bounce", original={"return-path": f"<{path}>"}))
    assert (found["tied"], found["message"], found["recipient"]) == ("headers", one, "bob@x.test")
    found = await heard(
        home, Feedback("bounce", "y@x.test", original={"x-one": "18bcfe5680000abc", "x-two": f"a={one};"})
    )
    assert (found["tied"], found["message"]) == ("headers", one)
    forged = path.replace("bob", "rob")
    found = await heard(home, Feedback("bounce", "z@x.test", original={"return-path": forged, "x": "18bcfe5680000abc"}))
    assert (found["tied"], found["message"], found["recipient"]) == ("", "", "z@x.test")


async def test_a_hash_in_the_recipients_place_finds_who_is_named(home: Any) -> None:
    """In the report or the enclosed fields; nobody else is taken for the recipient."""
    one = await sent(home, LONG)
    path = verp.encode(one, LONG, "ret.src.test", SECRET, int(home.clock.now_s) // DAY_S)
    mark = verp.decode(path, SECRET, int(home.clock.now_s) // DAY_S, 21).mark
    assert mark
    row = Feedback("bounce", "eve@x.test", one, genuine="token", mark=mark, original={"to": f"Some <{LONG}>"})
    assert (await heard(home, row))["recipient"] == LONG
    row = Feedback("bounce", "eve@x.test", one, genuine="token", mark="a" * 22)
    assert (await heard(home, row))["recipient"] == ""


def mark_of(home: Any, message_id: str, recipient: str) -> str:
    """What a return path says instead of a long recipient."""
    today = int(home.clock.now_s) // DAY_S
    return verp.decode(verp.encode(message_id, recipient, "ret.src.test", SECRET, today), SECRET, today, 21).mark


@pytest.mark.parametrize("recipient", [LONG, f"{'ö' * 9}@x.test", f"Ann.{'o' * 30}@X.test", f"{'a' * 32}@x.test"])
async def test_a_hash_finds_its_recipient_whom_nobody_names(home: Any, recipient: str) -> None:
    """Among those of the message, waiting or ended, also after a crash; as it was given."""
    one = await home.put("bob@x.test", recipient)
    mark = verp._mark(recipient)
    row = Feedback("bounce", "eve@x.test", one, genuine="token", mark=mark.upper())
    assert (await heard(home, row))["recipient"] == recipient
    for delivery in await home.leases():
        await home.settle(delivery)
    await home.crash()
    row = Feedback("unsubscribe", "", one, genuine="token", mark=mark, scope="all", via="mailto")
    assert (await heard(home, row))["recipient"] == recipient


async def test_of_recipients_that_fit_nothing_is_kept(home: Any) -> None:
    await home.put("bob@x.test", f"{'a' * 31}@x.test", "ann_b+c@some-where.test")
    await home.rest()
    assert home.queue.core.disk.store.first(keys.SENT_TO, keys.end(keys.SENT_TO)) is None


@pytest.mark.parametrize("end", ["age", "erasure"])
async def test_whom_a_hash_stands_for_is_forgotten(home: Any, end: str) -> None:
    """With the return path, and when the person is erased."""
    one = await sent(home, LONG)
    mark = mark_of(home, one, LONG)
    if end == "age":
        await home.move(21 * DAY_S + 1)
        await home.queue.sweep()
    else:
        await home.queue.ask("forget", address=LONG.upper())
    await home.rest()
    assert home.queue.core.disk.store.first(keys.SENT_TO, keys.end(keys.SENT_TO)) is None
    assert (await heard(home, Feedback("bounce", "", one, genuine="token", mark=mark)))["recipient"] == ""


async def test_a_merged_message_is_known_by_its_message_id(home: Any) -> None:
    """Which is made from campaign and recipient, and has the id; in mail of versions before, only the campaign is
    found."""
    one = await sent(home)
    made = sha256(b"spring\0bob@x.test").hexdigest()[:32]
    found = await heard(home, Feedback("complaint", "bob@x.test", message_id=f"<{made}@src.test>"))
    assert (found["tied"], found["message"], found["campaign"], found["tenant"]) == ("message-id", "", "spring", "acme")
    row = Feedback("complaint", "bob@x.test", message_id=f"<{made}@src.test>", text="in other words")
    assert await home.queue.feedback([row]) == [False]
    found = await heard(home, Feedback("complaint", "bob@x.test", message_id=f"<{made}.{one}@src.test>"))
    assert (found["tied"], found["message"], found["campaign"], found["tenant"]) == (
        "message-id",
        one,
        "spring",
        "acme",
    )
    found = await heard(home, Feedback("bounce", "bob@x.test", message_id=f"{made}.{'0' * 16}@src.test"))
    assert (found["tied"], found["message"], found["campaign"]) == ("message-id", "", "spring")


async def test_it_is_remembered_as_long_as_a_return_path_holds(home: Any) -> None:
    """Then both keys go; and without a return path there are none."""

    def left() -> int:
        store = home.queue.core.disk.store
        return sum(1 for prefix in (keys.SENT, b"sent-as ") for _ in store.keys(prefix, keys.end(prefix)))

    await sent(home)
    await sent(home, headers={})
    assert left() == 3
    await home.move(20 * DAY_S)
    await home.queue.sweep()
    await home.rest()
    assert left() == 3
    await home.move(1 * DAY_S + 1)
    await home.queue.sweep()
    await home.rest()
    assert left() == 0


async def test_an_enclosed_return_path_holds_for_days_of_its_own(house: Make) -> None:
    """Longer or shorter than one of SRS; the message is remembered as long."""
    home = await house(return_path=PATH | {"verp_days": 30})
    one = await sent(home)
    path = verp.encode(one, "bob@x.test", "ret.src.test", SECRET, int(home.clock.now_s) // DAY_S)
    await home.move(30 * DAY_S)
    await home.queue.sweep()
    found = await heard(home, Feedback("complaint", original={"return-path": path}))
    assert (found["tied"], found["message"], found["recipient"]) == ("headers", one, "bob@x.test")
    assert found["campaign"] == "spring"
    await home.move(DAY_S)
    found = await heard(home, Feedback("bounce", original={"return-path": path}))
    assert (found["tied"], found["message"]) == ("", "")


async def test_nothing_is_remembered_without_a_return_path(house: Make) -> None:
    """Whoever has none pays nothing; a message that still waits is known all the same."""
    home = await house()
    one = await home.put("bob@x.test", campaign="spring", headers={"message-id": "<one@src.test>"})
    await home.rest()
    assert home.queue.core.disk.store.first(keys.SENT, keys.end(b"sent-as ")) is None
    assert (await heard(home, Feedback("bounce", "bob@x.test", one)))["campaign"] == "spring"


@pytest.mark.parametrize(
    ("scope", "reaches"),
    [
        ("campaign", "campaign:acme/spring"),
        ("campaigns", "campaigns:acme"),
        ("all", "tenant:acme"),
        ("list", "list:acme/weekly.example"),
    ],
)
async def test_an_unsubscribe_by_mail_reaches_as_far_as_one_by_a_link(home: Any, scope: str, reaches: str) -> None:
    """Its address has no room for the names of campaign and tenant: they are the message's."""
    one = await sent(home, headers={"message-id": "<one@src.test>", "list-id": "Weekly <weekly.example>"})
    row = Feedback("unsubscribe", "bob@x.test", one, scope=scope, via="mailto", genuine="token")
    assert (await heard(home, row))["scope"] == reaches


async def test_who_leaves_a_list_by_mail_keeps_the_others(home: Any) -> None:
    """By an address in an issue that waits still, or has gone long ago; each message's list is its own, also where they
    came together. Of a message without one, all campaigns are left."""
    for name, lists, reaches in (
        ("bob", "weekly.example", "list:acme/weekly.example"), ("ann", "product.example", "list:acme/product.example"),
        ("cat", "", "campaigns:acme"),
    ):  # fmt: skip
        headers = {"message-id": f"<{name}@src.test>"} | ({"list-id": f"<{lists}>"} if lists else {})
        gone, waits = await sent(home, headers=headers), await home.put("x@x.test", tenant="acme", headers=headers)
        for message in (gone, waits):
            row = Feedback("unsubscribe", f"{name}@x.test", message, scope="list", via="mailto", genuine="token")
            assert (await heard(home, row))["scope"] == reaches
    await home.put("bob@x.test", "ann@x.test", tenant="acme", campaign="w8", headers={"list-id": "<weekly.example>"})
    going = {one.address for delivery in await home.leases() for one in delivery.recipients}
    assert going == {"x@x.test", "ann@x.test"}


async def test_what_a_version_without_lists_remembered(home: Any) -> None:
    """Its rows end earlier; those of messages of no list still do."""
    one = await sent(home)
    key = home.queue.core.disk.store.last(keys.SENT, keys.end(keys.SENT))
    (row,) = packing.unpack(home.queue.core.disk.store.get(key))
    assert row[:3] == ["default", "acme", "spring"]
    assert len(row) == 5
    row = Feedback("unsubscribe", "bob@x.test", one, scope="list", via="mailto", genuine="token")
    assert (await heard(home, row))["scope"] == "campaigns:acme"


@pytest.mark.parametrize(
    ("said", "reaches"),
    [("list", "list:acme/deals.src.test"), ("campaign", "campaign:acme/spring"), ("", "campaigns:acme")],
)
async def test_who_leaves_by_another_way_leaves_what_the_mail_says(home: Any, said: str, reaches: str) -> None:
    """By a mail to the return path, or told by a program, without a scope; the message may have ended."""
    headers = {"message-id": "<one@src.test>", "list-id": "<deals.src.test>"}
    await sent(home, headers=headers, unsubscribe=True, unsubscribe_scope=said)
    row = Feedback("unsubscribe", "bob@x.test", message_id="<one@src.test>", via="http", genuine="key")
    assert (await heard(home, row))["scope"] == reaches
