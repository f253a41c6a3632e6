"""What follows from replies: who gets on the suppression list by itself, after how many, and what clears it."""

from collections.abc import Callable
from typing import Any

import pytest

from zonemta_py.disk.leveldb.store import StoreFailed
from zonemta_py.mail.classify import NoRoute
from zonemta_py.mail.reply import Reply
from zonemta_py.queue.api import BOUNCED, DEFERRED, DELIVERED
from zonemta_py.queue.suppression.policy import Statement

Make = Callable[..., Any]
DAY_S = 86_400
UNKNOWN = Reply(550, "5.1.1", "user unknown")
VAGUE = Reply(550, "5.0.0", "user unknown")
FULL = Reply(552, "5.2.2", "mailbox full")
SPAM = Reply(554, "5.7.1", "message looks like spam")


async def tried(home: Any, address: str, verdict: int, reply: Reply | None = None, **more: Any) -> None:
    """One message to somebody, and the answer."""
    await home.put(address, **more)
    await answered(home, {address: reply}, verdict)


async def answered(home: Any, replies: dict[str, Reply | None], verdict: int = BOUNCED) -> None:
    """What waits for these people gets these replies; notices are delivered."""
    while deliveries := await home.leases():
        for delivery in deliveries:
            (recipient,) = delivery.recipients
            reply = replies.get(recipient.address)
            more = {"reply": reply, "stage": "rcpt"} if reply else {}
            await home.settle(delivery, verdict if reply else DELIVERED, opened=delivery.may_connect, **more)
    await settled(home)


async def settled(home: Any) -> None:
    for _ in range(4):
        await home.rest()


async def listed(home: Any) -> dict[str, dict[str, Any]]:
    rows = (await home.queue.ask("suppressions", limit=10_000))["rows"]
    return {f"{row['address']} {row['scope']}".removesuffix(" all"): row for row in rows}


@pytest.fixture
async def home(house: Make) -> Any:
    return await house(suppression={})


async def test_one_agreed_refusal_is_enough(home: Any) -> None:
    await tried(home, "Gone@X.test", BOUNCED, UNKNOWN)
    row = (await listed(home))["gone@x.test"]
    assert (row["kind"], row["by"]) == ("hard-bounce", "policy")
    assert row["reason"] == "the address does not exist: 550 5.1.1 user unknown"


async def test_others_take_three_messages_on_three_days(home: Any) -> None:
    for day in range(3):
        assert "vague@x.test" not in await listed(home), day
        for _ in range(2):  # a second one on the same day is no more evidence
            if "vague@x.test" not in await listed(home):
                await tried(home, "vague@x.test", BOUNCED, VAGUE)
        await home.move(DAY_S)
    assert "vague@x.test" in await listed(home)


async def test_a_delivery_in_between_clears_it(home: Any) -> None:
    for reply in (VAGUE, VAGUE, None, VAGUE, VAGUE):
        await tried(home, "soft@x.test", BOUNCED if reply else DELIVERED, reply)
        await home.move(DAY_S)
    assert await listed(home) == {}
    await tried(home, "soft@x.test", BOUNCED, VAGUE)
    assert "soft@x.test" in await listed(home)


async def test_a_full_mailbox_is_full_for_ten_days(home: Any) -> None:
    """Five messages within five days are not."""
    for _ in range(6):
        await tried(home, "full@x.test", BOUNCED, FULL)
        await home.move(DAY_S)
    assert await listed(home) == {}
    await home.move(5 * DAY_S)
    await tried(home, "full@x.test", BOUNCED, FULL)
    assert "full@x.test" in await listed(home)


async def test_refusals_because_of_us_never_count(home: Any) -> None:
    for _ in range(8):
        await tried(home, "ann@x.test", BOUNCED, SPAM)
        await home.move(3 * DAY_S)
    assert await listed(home) == {}
    assert home.queue.policy.store.pending == 0


async def test_retries_of_one_message_are_one_refusal(home: Any) -> None:
    await home.put("slow@x.test")
    for _ in range(8):
        await home.move(DAY_S / 4)
        for delivery in await home.leases():
            await home.settle(delivery, DEFERRED, reply=Reply(452, "4.2.2", "mailbox full"), stage="rcpt")
    await settled(home)
    (found,) = home.queue.policy.store.portion(b"")[0]
    assert len(found.items) == 1


# -- tenants


async def test_a_tenant_may_have_it_otherwise(house: Make) -> None:
    """An entry of a tenant's scope stops that tenant's mail, by that tenant's refusals alone."""
    tenants = {"one": {"scope": "tenant"}, "off": {"automatic": False}, "late": {"unknown": {"agreed": 2}}}
    home = await house(suppression={"tenants": tenants})
    for tenant in tenants:
        await tried(home, f"{tenant}@x.test", BOUNCED, UNKNOWN, tenant=tenant)
    assert list(await listed(home)) == ["one@x.test tenant:one"]
    await home.move(DAY_S)
    for tenant in ("off", "late"):
        await tried(home, f"{tenant}@x.test", BOUNCED, UNKNOWN, tenant=tenant)
    assert sorted(await listed(home)) == ["late@x.test", "one@x.test tenant:one"]
    await tried(home, "one@x.test", BOUNCED, UNKNOWN, tenant="other")
    assert sorted(await listed(home)) == ["late@x.test", "one@x.test", "one@x.test tenant:one"]


# -- what is heard otherwise


def heard(home: Any, address: str, what: str, message: str, **more: Any) -> None:
    policy, core = home.queue.policy, home.queue.core
    changes = policy.heard(Statement(address, what, message, core.clock.steady_ms(), **more))
    core.disk.lines.submit(changes, lambda _: None, sync=False, keep=True)


async def test_complaints_and_unsubscribes_hold_at_once(house: Make) -> None:
    """Even where replies do not count: the person has said so."""
    home = await house(suppression={"automatic": False})
    heard(home, "angry@x.test", "complaint", "m1", campaign="news")
    heard(home, "tired@x.test", "unsubscribe", "m2", scope="campaign:news")
    heard(home, "gone@x.test", "user-unknown", "m3", agreed=True)
    await settled(home)
    found = await listed(home)
    assert {place: row["kind"] for place, row in found.items()} == {
        "angry@x.test": "complaint",
        "tired@x.test campaign:news": "unsubscribe",
    }


async def test_a_delivery_does_not_clear_what_bounces_later(home: Any) -> None:
    """A server that takes all mail first and bounces it afterwards."""
    for number in range(3):
        await tried(home, "late@x.test", DELIVERED)
        heard(home, "late@x.test", "user-unknown", f"m{number}")
        await settled(home)
        assert ("late@x.test" in await listed(home)) == (number == 2)
        await home.move(DAY_S)


async def test_mail_that_did_not_bounce_clears_it(home: Any) -> None:
    heard(home, "late@x.test", "user-unknown", "m0")
    for _ in range(2):
        await home.move(2 * DAY_S)
        await tried(home, "late@x.test", DELIVERED)
    assert home.queue.policy.store.pending == 0


# -- what is undone


async def test_taking_somebody_off_clears_the_evidence(home: Any) -> None:
    await tried(home, "back@x.test", BOUNCED, UNKNOWN)
    await home.queue.ask("unsuppress", addresses=["back@x.test"])
    await settled(home)
    assert home.queue.policy.store.get("back@x.test") is None
    await tried(home, "back@x.test", BOUNCED, VAGUE)
    assert await listed(home) == {}


async def test_erasing_a_person_erases_the_evidence(home: Any) -> None:
    await tried(home, "ann@x.test", BOUNCED, VAGUE)
    await home.queue.ask("forget", address="ann@x.test")
    await settled(home)
    assert home.queue.core.disk.store.first(b"evidence ", b"evidence!") is None


# -- crashes


@pytest.mark.parametrize("reply", [UNKNOWN, VAGUE])
@pytest.mark.parametrize("drop", [True, False])
async def test_a_crash_loses_no_evidence_and_counts_none_twice(home: Any, reply: Reply, drop: bool) -> None:
    """At the moment when the answer is on stable storage, and nothing more; then after each further step."""
    await home.put("ann@x.test")
    (delivery,) = await home.leases()
    await home.settle(delivery, BOUNCED, reply=reply, stage="rcpt")
    await home.crash(drop=drop)
    await home.crash()
    await settled(home)
    await home.crash()
    await settled(home)
    (found,) = home.queue.policy.store.portion(b"")[0]
    assert len(found.items) == 1
    assert ("ann@x.test" in await listed(home)) == (reply is UNKNOWN)
    assert home.queue.policy.store.pending == (reply is not UNKNOWN)


# -- the guard


async def refuse(home: Any, count: int, delivered: int = 0, domain: str = "x.test", first: int = 0) -> None:
    people = {f"p{first + number}@{domain}": UNKNOWN for number in range(count)}
    for address in (*(f"good{first + number}@{domain}" for number in range(delivered)), *people):
        await home.put(address, sender="")
    await answered(home, dict(people))


def guards(home: Any) -> list[str]:
    return [name for kind, name in home.queue.core.schedule.policy.stops if kind == "guard"]


@pytest.mark.parametrize("people", [19, 20, 21])
async def test_twenty_unknown_users_at_once_suppress_nobody(home: Any, people: int) -> None:
    """Those before the twentieth, too; and not when each of them comes a while after the other."""
    await refuse(home, people)
    assert len(await listed(home)) == (19 if people == 19 else 0)
    assert guards(home) == ([] if people == 19 else ["x.test"])
    await home.move(61)
    await refuse(home, 19, domain="y.test")
    await home.move(61)
    await refuse(home, 19, domain="y.test", first=19)
    assert "y.test" not in guards(home)


async def test_a_few_unknown_among_many_are_a_bad_list_not_a_broken_provider(home: Any) -> None:
    await refuse(home, 25, delivered=300)
    assert guards(home) == []
    assert len(await listed(home)) == 25


async def test_what_is_held_back_takes_another_refusal(home: Any) -> None:
    await refuse(home, 25)
    for _ in range(3):
        await home.move(600)
        home.queue.policy.tick()
    await settled(home)
    assert (guards(home), await listed(home)) == ([], {})
    await home.move(DAY_S)
    await refuse(home, 5)
    assert sorted(await listed(home)) == [f"p{number}@x.test" for number in range(5)]


@pytest.mark.parametrize("order", ["release", "drop"])
async def test_an_operator_releases_what_is_held_back(home: Any, order: str) -> None:
    await refuse(home, 25)
    assert await home.queue.policy.release("x.test", drop=order == "drop") == 25
    await settled(home)
    assert guards(home) == []
    assert len(await listed(home)) == (25 if order == "release" else 0)


async def test_the_guard_survives_a_crash(home: Any) -> None:
    """What was counted too: ten before it, and ten after it."""
    await refuse(home, 10, delivered=5)
    await home.crash()
    await settled(home)
    await refuse(home, 10, first=10)
    assert (guards(home), await listed(home)) == (["x.test"], {})
    await home.crash()
    await settled(home)
    await refuse(home, 3, first=20)
    assert (guards(home), await listed(home)) == (["x.test"], {})


async def test_evidence_that_cannot_be_read_counts_for_nothing(home: Any) -> None:
    """fsck names it, and takes it away."""
    await tried(home, "ann@x.test", BOUNCED, VAGUE)
    home.queue.core.disk.lines.submit([(b"evidence ann@x.test", b"\xc1")], lambda _: None, sync=True, keep=True)
    await settled(home)
    assert home.queue.policy.store.get("ann@x.test") is None
    home.abandon()
    (problem,) = home.check(repair=True).problems
    assert (problem.what, problem.id) == ("evidence about an address cannot be read", "ann@x.test")
    assert home.check().problems == []


async def test_behind_a_smart_host_the_guard_goes_by_domain(house: Make) -> None:
    """It answers for everybody: one domain's refusals are a small share of what it takes."""
    home = await house(suppression={}, zones=[{"name": "default", "default": True, "hosts": ["192.0.2.9"]}])
    await refuse(home, 3, delivered=250)
    await refuse(home, 20, domain="broken.test")
    assert guards(home) == ["broken.test"]
    assert sorted(await listed(home)) == ["p0@x.test", "p1@x.test", "p2@x.test"]


async def test_while_the_disk_has_errors_nothing_that_is_heard_is_lost(
    home: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The store cannot even be read then: evidence, and what clears it, wait for the batch with their answers."""
    await tried(home, "soft@x.test", BOUNCED, VAGUE)
    for address in ("gone@x.test", "soft@x.test"):
        await home.put(address, sender="")
    deliveries = {delivery.recipients[0].address: delivery for delivery in await home.leases()}
    store = home.queue.core.disk.store
    reopen = store.reopen
    monkeypatch.setattr(store, "reopen", lambda: (_ for _ in ()).throw(StoreFailed("still broken")))
    store.fenced = True
    await home.settle(deliveries["gone@x.test"], BOUNCED, reply=UNKNOWN, stage="rcpt")
    await home.settle(deliveries["soft@x.test"])
    monkeypatch.setattr(store, "reopen", reopen)
    await settled(home)
    assert list(await listed(home)) == ["gone@x.test"]
    assert home.queue.policy.store.get("soft@x.test") is None


async def test_the_lake_does_not_suppress_whom_a_guard_holds_back(home: Any) -> None:
    """It has the same replies from the journal; an operator who writes the address down means it."""
    await refuse(home, 20)
    rows = [[f"p{number}@x.test", "hard-bounce", "", "", by, ""] for number, by in enumerate(("zonemta lake", "ann"))]
    assert await home.queue.ask("suppress", rows=rows) == {"added": 1, "known": 1}
    assert list(await listed(home)) == ["p1@x.test"]
    await home.queue.ask("guard-release", name="x.test", drop=True)
    assert await home.queue.ask("suppress", rows=rows) == {"added": 1, "known": 1}


class NoDomain:
    """DNS, where no domain exists."""

    async def site(self, domain: str, now: float) -> Any:
        raise NoRoute(550, "5.1.2", f"domain {domain} does not exist")


async def test_people_of_a_domain_that_does_not_exist_are_suppressed_in_the_end(house: Make) -> None:
    """What the queue itself finds out counts as what a sender does: three messages, over a week."""
    home = await house(suppression={}, resolver=NoDomain())
    for day in (0, 4, 4):
        assert await listed(home) == {}
        await home.move(day * DAY_S)
        await home.put("ann@gone.test", sender="")
        assert await home.leases() == []
        await settled(home)
    row = (await listed(home))["ann@gone.test"]
    assert row["reason"].startswith("the domain no longer accepts mail (3 messages in ")
    assert row["reason"].endswith("550 5.1.2 domain gone.test does not exist")
