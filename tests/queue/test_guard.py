"""The guard: a provider says that people do not exist, in the dialogue or by mail that comes back."""

import random
from collections.abc import Callable
from itertools import count
from typing import Any

import pytest

from tests.queue.lives import seeds
from tests.queue.test_suppression_policy import UNKNOWN, answered, guards, listed, settled
from zonemta_py.mail.classify import NoRoute
from zonemta_py.mail.reply import Reply
from zonemta_py.queue.api import BOUNCED, DEFERRED, Feedback
from zonemta_py.zones.site import Site

Make = Callable[..., Any]
HOUR_S = 3_600


@pytest.fixture
async def home(house: Make) -> Any:
    return await house(suppression={})


async def delivered(home: Any, people: int, domain: str = "x.test") -> None:
    """So many get their mail."""
    names = [f"good{home.clock.ms()}-{number}@{domain}" for number in range(people)]
    if names:
        await home.put(*names, sender="")
        while deliveries := await home.leases():
            for delivery in deliveries:
                await home.settle(delivery, opened=delivery.may_connect)


async def refused(home: Any, people: int, first: int = 0, domain: str = "x.test") -> None:
    """In the dialogue."""
    names = [f"p{first + number}@{domain}" for number in range(people)]
    for name in names:
        await home.put(name, sender="")
    await answered(home, dict.fromkeys(names, UNKNOWN))


async def bounced(home: Any, people: int, first: int = 0, domain: str = "x.test", genuine: str = "token") -> None:
    """By mail that comes back."""
    names = [f"p{first + number}@{domain}" for number in range(people)]
    said = {"code": 550, "enhanced": "5.1.1", "text": "user unknown", "genuine": genuine}
    rows = [Feedback("bounce", name, message=f"{number:016x}", **said) for number, name in enumerate(names)]
    await home.queue.feedback(rows)
    await settled(home)


async def test_a_guard_is_no_reason_why_mail_waits(home: Any) -> None:
    """`explain` says of the domain's mail what holds it."""
    await delivered(home, 5)
    await refused(home, 20)
    assert guards(home) == ["x.test"]
    await home.put("later@x.test")
    (delivery,) = await home.leases()
    await home.settle(delivery, DEFERRED)
    await home.rest()
    found = await home.queue.ask("explain", what="x.test")
    assert found["kind"] == "destination"
    assert [(row["recipient"], row["state"]) for row in found["rows"]] == [("later@x.test", "deferred")]
    assert [reason["kind"] for reason in found["rows"][0]["reasons"]] == ["deferred"]


@pytest.mark.parametrize("way", [refused, bounced])
@pytest.mark.parametrize(("others", "suppressed"), [(0, 0), (100, 0), (10_000, 20)])
async def test_twenty_unknown_people_among_others(home: Any, way: Any, others: int, suppressed: int) -> None:
    """Alone, or a tenth and more of those it has answered about, they suppress nobody; among very many they do."""
    await delivered(home, others)
    await way(home, 20)
    assert len(await listed(home)) == suppressed
    assert guards(home) == ([] if suppressed else ["x.test"])
    assert [row["people"] for row in await home.queue.policy.guards()] == ([] if suppressed else [20])


async def test_twenty_disabled_mailboxes_are_held_back_likewise(home: Any) -> None:
    """One refusal is enough for them too, so the guard is for them too: ten unknown and ten disabled raise it."""
    names = [f"q{number}@x.test" for number in range(10)]
    for name in names:
        await home.put(name, sender="")
    await answered(home, dict.fromkeys(names, Reply(550, "5.2.1", "mailbox disabled")))
    assert (guards(home), len(await listed(home))) == ([], 10)
    await refused(home, 10)
    assert (guards(home), len(await listed(home))) == (["x.test"], 0)


async def test_what_is_so_only_now_raises_no_guard(home: Any) -> None:
    """Twenty are deferred as not receiving mail now: none of them does not exist. Said for good, it counts."""
    names = [f"q{number}@x.test" for number in range(20)]
    for name in names:
        await home.put(name, sender="")
    now = dict.fromkeys(names, Reply(450, "4.2.1", "the mailbox is disabled, not accepting messages"))
    for delivery in await home.leases():
        (recipient,) = delivery.recipients
        await home.settle(delivery, DEFERRED, reply=now[recipient.address], stage="rcpt", opened=delivery.may_connect)
    await settled(home)
    assert {row.items[0].group for row in home.queue.policy.store.portion(b"")[0]} == {"inactive"}
    assert (guards(home), len(await listed(home))) == ([], 0)
    await home.move(100_000)
    await answered(home, dict.fromkeys(names, Reply(550, "5.2.1", "mailbox disabled")))
    assert guards(home) == ["x.test"]


async def test_those_before_are_held_back_also_if_the_last_one_says_nothing_new(home: Any) -> None:
    """Of the last one it was known that day already that the mailbox does not receive mail."""
    await home.put("p19@x.test", sender="")
    (delivery,) = await home.leases()
    now = Reply(450, "4.2.1", "the mailbox is disabled, not accepting messages")
    await home.settle(delivery, DEFERRED, reply=now, stage="rcpt", opened=delivery.may_connect)
    await settled(home)
    await refused(home, 19)
    assert len(await listed(home)) == 19
    await home.put("p19@x.test", sender="")
    await answered(home, {"p19@x.test": Reply(550, "5.2.1", "mailbox disabled")})
    assert (guards(home), await listed(home)) == (["x.test"], {})


async def test_both_ways_count_together(home: Any) -> None:
    """Ten in the dialogue and ten by mail; what is said either way is held back then, and counts once released."""
    await refused(home, 10)
    await bounced(home, 9, first=10)
    assert (guards(home), len(await listed(home))) == ([], 19)
    await bounced(home, 1, first=19)
    assert (guards(home), len(await listed(home))) == (["x.test"], 0)
    await refused(home, 1, first=20)
    await bounced(home, 1, first=21)
    assert len(await listed(home)) == 0
    assert await home.queue.policy.release("x.test") == 22
    await settled(home)
    assert len(await listed(home)) == 22
    await bounced(home, 19, first=30)
    assert guards(home) == []


async def test_what_comes_back_is_compared_with_the_day(home: Any) -> None:
    """Not with the minute: a list with a few per cent of bad addresses is cleaned, hours after its mail has left."""
    await delivered(home, 300)
    await home.move(5 * HOUR_S)
    await bounced(home, 25)
    assert (guards(home), len(await listed(home))) == ([], 25)
    await home.move(29 * HOUR_S)
    await bounced(home, 25, first=25)
    assert (guards(home), len(await listed(home))) == (["x.test"], 25)


async def test_a_bounce_amid_refusals_does_not_weaken_the_guard(home: Any) -> None:
    """A provider that breaks after a good day is noticed by the minute alone."""
    await delivered(home, 1_000)
    await home.move(300)
    await bounced(home, 1, first=50)
    await refused(home, 20)
    assert guards(home) == ["x.test"]
    assert list(await listed(home)) == ["p50@x.test"]


async def test_what_nothing_proves_raises_no_guard(home: Any) -> None:
    """Else anybody could keep the list from being cleaned."""
    await bounced(home, 40, genuine="")
    assert guards(home) == []


async def test_a_crash_forgets_neither_the_minute_nor_the_day(home: Any) -> None:
    await bounced(home, 10)
    await home.crash()
    await settled(home)
    await bounced(home, 10, first=10)
    assert (guards(home), await listed(home)) == (["x.test"], {})
    await delivered(home, 300, domain="y.test")
    await home.move(61)
    home.queue.policy.tick()
    await settled(home)
    await home.crash()
    await bounced(home, 25, domain="y.test")
    assert (guards(home), len(await listed(home))) == (["x.test"], 25)


async def test_a_kill_keeps_how_many_got_mail_beside_what_was_refused(home: Any) -> None:
    """What is applied again after it changes nothing of that."""
    await delivered(home, 250)
    await refused(home, 10)
    await home.put("p10@x.test", sender="")
    (delivery,) = await home.leases()
    await home.settle(delivery, BOUNCED, reply=UNKNOWN, stage="rcpt")
    await home.crash(drop=True)
    await settled(home)
    await refused(home, 9, first=11)
    assert (guards(home), len(await listed(home))) == ([], 20)


class Hosted:
    """All domains but nowhere.test are hosted by one provider; it counts what it is asked."""

    def __init__(self) -> None:
        self.asked = count()

    async def site(self, domain: str, now: float) -> Site:
        next(self.asked)
        if domain == "nowhere.test":
            raise NoRoute(550, "5.1.2", "no such domain")
        return Site("mx.big.test", "big", (("mx", ("192.0.2.9",)),), ((10, "mx"),), 300, False)


@pytest.mark.parametrize("restart", [False, True], ids=["known", "after a start"])
async def test_the_provider_is_that_of_deliveries(house: Make, restart: bool) -> None:
    """Also long after DNS has said so; and once more by DNS where nothing is known of a domain any more."""
    home = await house(suppression={}, resolver=Hosted())
    for number in range(20):
        await home.put(f"ok@d{number}.test", sender="")
    while deliveries := await home.leases():
        for delivery in deliveries:
            await home.settle(delivery)
    await home.move(HOUR_S)
    if restart:
        await home.crash()
    asked = next(home.resolver.asked)
    for number in range(20):
        await bounced(home, 1, domain=f"d{number}.test")
    assert guards(home) == ["big"]
    assert (next(home.resolver.asked) - asked > 1) == restart
    await bounced(home, 1, domain="nowhere.test")
    assert list(await listed(home)) == ["p0@nowhere.test"]


async def test_a_provider_is_known_by_its_own_domains(home: Any) -> None:
    """Those in providers.toml, where no mail has gone yet."""
    await bounced(home, 10, domain="gmail.com")
    await bounced(home, 10, domain="googlemail.com")
    assert guards(home) == ["google"]


async def test_behind_a_smart_host_bounces_go_by_domain(house: Make) -> None:
    zones = [{"name": "default", "default": True, "hosts": ["192.0.2.9"]}]
    home = await house(suppression={}, zones=zones)
    await bounced(home, 10, domain="gmail.com")
    await bounced(home, 19, domain="x.test")
    assert guards(home) == []
    await bounced(home, 1, domain="x.test", first=19)
    assert guards(home) == ["x.test"]


@pytest.mark.parametrize("guarded", ["x.test 127.0.0.2", "x.test"])
async def test_a_guard_of_one_source_holds_back_what_comes_by_mail(house: Make, guarded: str) -> None:
    """Nobody knows which source had sent that mail. One that went up for bounces holds back every source's."""
    zones = [{"name": "default", "default": True, "sources": ["127.0.0.2"]}]
    home = await house(suppression={}, zones=zones)
    first, then = (refused, bounced) if " " in guarded else (bounced, refused)
    await first(home, 20)
    assert guards(home) == [guarded]
    await then(home, 1, first=30)
    assert await listed(home) == {}
    assert await home.queue.policy.release("x.test", drop=True) == 21


async def life(home: Any, seed: int, kills: bool) -> list[Any]:
    """The same life for the same seed; what is on the list, and which guards are up, at its end."""
    die, death = random.Random(seed), random.Random(seed)
    for turn in range(25):
        way, domain = die.choice((refused, bounced)), die.choice(("x.test", "y.test"))
        await delivered(home, die.choice((0, 0, 5)), domain)
        await way(home, die.randrange(1, 4), first=10 * turn, domain=domain)
        if kills and death.random() < 0.4:
            await home.crash(power=death.random() < 0.5, die=death, drop=death.random() < 0.5)
            await settled(home)
        await home.move(die.choice((0, 5, 40, 4_000)))
        home.queue.policy.tick()
        if die.random() < 0.1:
            await home.queue.policy.release(domain, drop=die.random() < 0.5)
            await home.move(1)
        await settled(home)
    return [list(await listed(home)), sorted(guards(home))]


@pytest.mark.parametrize("seed", seeds(2))
async def test_a_killed_queue_holds_back_what_one_that_is_not_does(house: Make, seed: int) -> None:
    """Whatever was delivered: of that a crash may lose a minute, which makes the guard more careful only."""
    terms = {"guard_people": 6, "guard_share": 0, "guard_calm_s": 86_400}
    calm = await life(await house(suppression=terms), seed, kills=False)
    assert await life(await house(suppression=terms), seed, kills=True) == calm
