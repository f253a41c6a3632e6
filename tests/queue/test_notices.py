"""Notifications: queued for the sender, once for each recipient, as NOTIFY and RET ask, never for a null sender."""

import email
import email.policy
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from zonemta_py.mail.dsn import Kind
from zonemta_py.mail.envelope import Envelope, Notify
from zonemta_py.mail.notices.wording import Failed, OwnWords
from zonemta_py.mail.reply import Reply
from zonemta_py.queue.api import BOUNCED, DEFERRED, DELIVERED
from zonemta_py.queue.hooks import NoHooks
from zonemta_py.queue.lifecycle.notices import Notices

Make = Callable[..., Any]
LONG = b"Subject: hello\r\nMessage-ID: <1@src.test>\r\n\r\n" + b"the body\r\n" * 20


async def told(home: Any) -> list[Any]:
    """Notifications that are queued, parsed."""
    await home.rest()
    if await home.idle(50):
        return []
    return [email.message_from_bytes(d.body, policy=email.policy.default) for d in await home.lease(50) if not d.sender]


async def fails(home: Any, verdict: int = BOUNCED, *addresses: str, **more: Any) -> Any:
    await home.put(*(addresses or ("bob@x.test",)), body=LONG, **more)
    (delivery,) = await home.lease()
    await home.settle(delivery, verdict)
    return delivery


async def test_a_sender_is_told_what_it_asked_for_and_without_asking_of_failures_only(house: Make) -> None:
    wanted = Notices((await house()).queue.core).wanted
    asked: dict[Kind, tuple[Notify, ...]] = {
        "failed": (Notify.UNSET, Notify.FAILURE, Notify.FAILURE | Notify.DELAY, Notify.SUCCESS | Notify.FAILURE),
        "delayed": (Notify.DELAY, Notify.FAILURE | Notify.DELAY),
        "relayed": (Notify.SUCCESS, Notify.SUCCESS | Notify.FAILURE),
        "delivered": (Notify.SUCCESS, Notify.SUCCESS | Notify.FAILURE),
    }
    every = {one for row in asked.values() for one in row} | {Notify.NEVER}
    for kind, row in asked.items():
        assert {one for one in every if wanted(kind, int(one), {}, 0)} == set(row), kind


async def test_a_bounce_tells_the_sender(house: Make) -> None:
    """Null return path, to the sender, with the status of each recipient that failed; nothing is told twice."""
    home = await house()
    await fails(home, BOUNCED, "bob@x.test", "cid@x.test")
    (notice,) = await told(home)
    status = notice.get_payload(1).as_string()
    assert notice["To"] == "ann@src.test"
    assert "5.1.1" in status
    assert [status.count(f"Final-Recipient: rfc822; {a}") for a in ("bob@x.test", "cid@x.test")] == [1, 1]
    assert "the body" not in notice.as_string()


@pytest.mark.parametrize(("stage", "kind", "named"), [("dot", "", True), ("queue", "protocol", False)])
async def test_nobody_is_said_to_have_said_what_we_say(house: Make, stage: str, kind: str, named: bool) -> None:
    """A message that we cannot send is refused while a server is there that has said nothing of it."""
    home = await house()
    await home.put("bob@x.test", body=LONG)
    (delivery,) = await home.lease()
    await home.settle(delivery, BOUNCED, reply=Reply(554, "5.6.3", "not in 7 bits"), stage=stage, kind=kind)
    (notice,) = await told(home)
    status = notice.get_payload(1).as_string()
    assert ("Remote-MTA: dns; mx.test" in status) == named
    assert f"Diagnostic-Code: {'smtp' if named else 'x-zonemta'}; 554 5.6.3 not in 7 bits" in status
    assert ("mx.test[127.0.0.9]:25 said" in notice.get_payload(0).as_string().replace("=\n", "")) == named


async def test_a_null_sender_is_never_told(house: Make) -> None:
    """Or notifications would answer each other (RFC 5321 4.5.5)."""
    home = await house()
    await fails(home, BOUNCED, sender="")
    assert await told(home) == []
    assert (await home.sizes())["messages"] == 0


async def test_a_notification_that_bounces_tells_nobody(house: Make) -> None:
    """It has no sender."""
    home = await house()
    await fails(home)
    (notice,) = await home.lease()
    await home.settle(notice, BOUNCED)
    await home.sound()
    assert (await home.sizes())["messages"] == 0


@pytest.mark.parametrize(
    ("verdict", "notify", "expected"),
    [
        (BOUNCED, Notify.UNSET, 1),
        (BOUNCED, Notify.FAILURE, 1),
        (BOUNCED, Notify.NEVER, 0),
        (BOUNCED, Notify.SUCCESS, 0),
        (BOUNCED, Notify.DELAY, 0),
        (DELIVERED, Notify.SUCCESS, 0),
        (DELIVERED, Notify.UNSET, 0),
    ],
)
async def test_notify_is_honoured(house: Make, verdict: int, notify: Notify, expected: int) -> None:
    """RFC 3461 4.1: never, success, failure, delay, and what nothing means."""
    home = await house()
    await fails(home, verdict, notify=notify)
    assert len(await told(home)) == expected
    await home.sound()


@pytest.mark.parametrize(("notify", "expected"), [(Notify.SUCCESS, 1), (Notify.FAILURE, 0), (Notify.UNSET, 0)])
async def test_success_is_told_where_the_server_could_not_be_asked_to(
    house: Make, notify: Notify, expected: int
) -> None:
    """`relayed`: the next server does not offer DSN (RFC 3461 5.2.2)."""
    home = await house()
    await home.put("bob@x.test", notify=notify)
    (delivery,) = await home.lease()
    await home.settle(delivery, DELIVERED, relayed=True)
    notices = await told(home)
    assert len(notices) == expected
    assert all("Action: relayed" in notice.as_string() for notice in notices)


@pytest.mark.parametrize(("ret", "whole"), [("FULL", True), ("HDRS", False), (None, False)])
async def test_ret_says_how_much_comes_back(house: Make, ret: str | None, whole: bool) -> None:
    """All of the message, or its header section."""
    home = await house()
    await fails(home, ret=ret)
    (notice,) = await told(home)
    assert ("the body" in notice.as_string()) == whole
    assert "Subject: hello" in notice.as_string()


async def test_a_delay_is_told_once(house: Make) -> None:
    """After delay_notice_h to those who asked for it; not again at the next failure, nor after a crash."""
    home = await house(retry={"delay_notice_h": 1, "schedule_min": [61], "jitter": 0})
    await fails(home, DEFERRED, notify=Notify.DELAY)
    assert await told(home) == []
    await home.move(3700)
    (delivery,) = await home.lease()
    await home.settle(delivery, DEFERRED)
    (notice,) = await told(home)
    assert "Action: delayed" in notice.as_string()
    await home.crash()
    await home.move(3700)
    for delivery in await home.lease(5):
        await home.settle(delivery, DEFERRED if delivery.sender else DELIVERED)
    await home.rest()
    assert (await home.sizes())["messages"] == 1
    await home.sound()


async def test_mail_that_is_too_old_bounces(house: Make) -> None:
    """A temporary failure after life_h is final: 5.4.7, and the sender is told."""
    home = await house(retry={"life_h": 1, "schedule_min": [45], "jitter": 0})
    await fails(home, DEFERRED)
    await home.move(2701)
    (delivery,) = await home.lease()
    await home.settle(delivery, DEFERRED)
    await home.rest()
    assert (await home.sizes())["deferred"] == 1, "its life ends at the hour, so it is tried once more then"
    await home.move(901)
    (delivery,) = await home.lease()
    await home.settle(delivery, DEFERRED)
    (notice,) = await told(home)
    assert "Status: 5.4.7" in notice.as_string()


async def test_parked_mail_of_a_dead_destination_ends_too(house: Make) -> None:
    """What was never tried since its destination is down ends with its life: the sweep finds it."""
    home = await house(retry={"life_h": 1, "down_s": 7200, "down_max_s": 7200})
    await home.put("first@dead.test")
    (delivery,) = await home.lease()
    await home.settle(delivery, DEFERRED, down_s=0, stage="connect")
    await home.put("second@dead.test", "third@dead.test")
    await home.rest()
    await home.queue.sweep()
    assert (await home.sizes())["queued"] == 2
    await home.move(3601)
    await home.queue.sweep()
    await home.rest()
    notices = await told(home)
    text = "".join(notice.as_string() for notice in notices)
    assert [text.count(f"Final-Recipient: rfc822; {who}@dead.test") for who in ("second", "third")] == [1, 1]
    assert "5.4.7" in text
    await home.sound()


async def test_the_reply_is_the_remote_servers(house: Make) -> None:
    """Word by word, with its name."""
    home = await house()
    await home.put("bob@x.test")
    (delivery,) = await home.lease()
    await home.settle(delivery, BOUNCED, reply=Reply(552, "5.2.2", "mailbox of Bob is full"))
    (notice,) = await told(home)
    assert "552 5.2.2 mailbox of Bob is full" in notice.as_string()
    assert "mx.test" in notice.as_string()


class Wording(NoHooks):
    """A plugin that writes to one recipient's sender in its own words."""

    bounces = delays = True
    own = OwnWords("Sorry.\n\nWe.", "help@src.test", "slow")

    async def bounced(self, message_id: str, zone: str, envelope: Envelope, failed: list[Failed]) -> list[Failed]:
        return [replace(one, own=self.own) if one.recipient.address.startswith("bob") else one for one in failed]

    async def delayed(self, message_id: str, zone: str, envelope: Envelope, failed: Failed, first_ms: int) -> Failed:
        return replace(failed, own=self.own)


async def test_who_has_words_of_its_own_has_a_notice_of_its_own(house: Make) -> None:
    """In the plugin's words, From and zone; the others share one as configured. The report for programs is the same."""
    home = await house(hooks=Wording(), zones=[{"name": "default"}, {"name": "slow"}])
    await fails(home, BOUNCED, "bob@x.test", "cid@x.test", "dan@x.test")
    found = [one for one in await home.leases() if not one.sender]
    made = {one.zone: email.message_from_bytes(one.body, policy=email.policy.default) for one in found}
    text = {zone: one.get_payload(0).get_payload(decode=True) for zone, one in made.items()}
    assert set(made) == {"default", "slow"}
    assert [one.sender for one in found] == ["", ""]
    assert text["slow"].startswith(b"Sorry.\r\n\r\nWe.\r\n\r\n")
    assert not text["default"].startswith(b"Sorry.")
    assert [made[zone]["From"].addresses[0].addr_spec.partition("@")[0] for zone in ("slow", "default")] == [
        "help", "mailer-daemon"
    ]  # fmt: skip
    told_of = {zone: one.get_payload(1).as_string().count("Final-Recipient") for zone, one in made.items()}
    assert told_of == {"slow": 1, "default": 2}
    await home.sound()
