"""How much is queued, by whatever it is asked, and where each recipient of a message is: exact after any crash."""

import asyncio
import random
from collections import Counter
from typing import Any

import pytest

from tests.queue.test_sites import Directory, site
from zonemta_py.disk import keys, packing
from zonemta_py.queue.admin.browse import zone_domains
from zonemta_py.queue.api import BOUNCED, DEFERRED, DELIVERED, HELD
from zonemta_py.queue.core.locator import placed
from zonemta_py.queue.core.state import FAMILY
from zonemta_py.queue.core.sums.ranking import Ranking
from zonemta_py.schedule.time import pace

DOMAINS, TENANTS, CAMPAIGNS = ("a.test", "b.test", "c.test"), ("", "acme", "umbrella"), ("", "spring", "autumn")
NONE = {"queued": 0, "deferred": 0, "held": 0, "deleted": 0, "bounced": 0, "leased": 0}


async def filled(home: Any, die: random.Random, count: int = 60) -> None:
    """Mail of all kinds, in all states."""
    for number in range(count):
        flow = {"tenant": die.choice(TENANTS), "campaign": die.choice(CAMPAIGNS), "priority": die.choice((0, 5))}
        held = {"hold_until_ms": home.clock.ms() + 3_600_000} if number % 7 == 0 else {}
        await home.put(*(f"u{number}.{at}@{die.choice(DOMAINS)}" for at in range(die.choice((1, 3)))), **flow, **held)
    for delivery in (await home.leases())[: count // 2]:
        await home.settle(delivery, die.choice((DELIVERED, DEFERRED, DEFERRED, BOUNCED, HELD)))
    await home.rest()


async def stored(home: Any) -> dict[str, Counter[str]]:
    """What the keys in the store come to, by what is asked."""
    found: dict[str, Counter[str]] = {by: Counter() for by in ("domain", "tenant", "campaign")}
    for family, state in FAMILY.items():
        for key, value in home.queue.core.disk.store.scan(f"{family} ".encode(), f"{family}!".encode()):
            flow = (packing.unpack(value)[8] if value else "") or "~~"
            _, tenant, campaign = flow.split("~")
            names = {"domain": keys.place(key).recipient.partition("@")[2], "tenant": tenant, "campaign": campaign}
            for by, name in names.items():
                found[by][f"{name} {state}"] += bool(name)
    for lease in home.queue.leases.out.values():  # what is leased counts as that alone
        flow_id = lease.batch.flow_queue.flow_id
        for entry in lease.open:
            state = FAMILY[entry.key.partition(b" ")[0].decode()]
            domain = entry.address.partition("@")[2]
            for by, name in (("domain", domain), ("tenant", flow_id.tenant), ("campaign", flow_id.campaign)):
                found[by][f"{name} {state}"] -= bool(name)
                found[by][f"{name} leased"] += bool(name)
    return found


async def counted(home: Any, by: str, names: tuple[str, ...]) -> Counter[str]:
    found: Counter[str] = Counter()
    for name in filter(None, names):
        for state, count in (await home.queue.ask("size", **{by: name})).items():
            found[f"{name} {state}"] = count
    return +found


async def agree(home: Any) -> None:
    """Every sum is what the store has, every deferred or parked recipient is found by its message, and nothing else."""
    there = await stored(home)
    for by, names in (("domain", (*DOMAINS, "src.test")), ("tenant", TENANTS), ("campaign", CAMPAIGNS)):
        assert await counted(home, by, names) == +there[by]
        page = await home.queue.ask("sizes", by=by)
        rows = {row["name"]: sum(row[state] for state in NONE) for row in page["rows"]}
        assert rows == {name: n for name in names if (n := sum(there[by][f"{name} {state}"] for state in NONE))}
        assert list(rows.values()) == sorted(rows.values(), reverse=True)
        assert (page["next"], page["of"]) == (None, len(rows))
    store = home.queue.core.disk.store
    index = [keys.indexed(key) for key in store.keys(keys.INDEX, keys.end(keys.INDEX))]
    assert sorted(index) == [key for family in keys.PLACED for key in store.keys(family, keys.end(family))]


async def test_every_sum_is_what_the_store_has(house: Any) -> None:
    """By domain, tenant and campaign, whatever becomes of the mail; what is leased is apart."""
    home = await house()
    await filled(home, random.Random(1))
    await agree(home)
    await home.put("u@a.test", tenant="acme", campaign="spring")
    assert await home.leases()
    assert (await home.queue.ask("size"))["total"]["leased"] > 0
    await agree(home)
    assert await home.queue.ask("size", tenant="nobody") == NONE
    await home.sound()


async def test_sums_survive_a_crash(house: Any) -> None:
    """At a random instant, with all that was on its way to the disk lost, or all but a part of it."""
    die = random.Random(2)
    home = await house()
    for power in (False, True):
        await filled(home, die, 25)
        for delivery in (await home.leases())[:9]:
            home.queue.settle_part(home.result(delivery, die.choice((DELIVERED, DEFERRED))))
        await asyncio.sleep(die.random() / 50)
        await home.crash(power, die, drop=True, fsck="look")
        home.queue.start()
        await home.rest()
        await agree(home)


async def old(home: Any) -> Any:
    """The queue as a version without these keys leaves it: what it does not know is as it was, or was never there."""
    store = home.queue.core.disk.store
    flows = [(key, None) for key in store.keys(keys.FLOW_SIZES, keys.end(keys.FLOW_SIZES))]
    index = [key for number, key in enumerate(store.keys(keys.INDEX, keys.end(keys.INDEX))) if number % 3]
    left = b"at 0000000000000001 parked default a.test gone@a.test"
    store.write([*flows, *((key, None) for key in index), (left, b""), (keys.TRACKED, packing.pack([1, True]))], True)
    await home.crash(fsck="look")
    return home.queue


async def test_a_queue_of_an_earlier_version_is_counted_once_and_indexed_meanwhile(
    house: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The counters are right from the start; the index is made in portions, and mail moves on under them."""
    monkeypatch.setattr("zonemta_py.queue.core.locator.PORTION", 7)
    home = await house()
    await filled(home, random.Random(3))
    queue = await old(home)
    assert not queue.core.disk.places.complete
    queue.start()
    for delivery in await home.leases():
        await home.settle(delivery, DEFERRED)
    async with asyncio.timeout(60):
        while not queue.core.disk.places.complete:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
    await home.rest()
    await agree(home)
    await home.crash(fsck="look")
    assert home.queue.core.disk.places.complete
    await agree(home)


async def test_a_crash_while_the_index_is_made_begins_it_again(house: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is complete only when all of it has been read."""
    monkeypatch.setattr("zonemta_py.queue.core.locator.PORTION", 3)
    home = await house()
    await filled(home, random.Random(4))
    queue = await old(home)
    queue.start()
    await asyncio.sleep(0.05)
    assert not queue.core.disk.places.complete
    await home.crash(drop=True, fsck="look")
    assert not home.queue.core.disk.places.complete
    await home.queue.core.disk.places.make(home.queue.core.disk.lines)
    await home.rest()
    await agree(home)


async def test_all_recipients_of_a_message_are_found_by_its_id(house: Any) -> None:
    """Deferred to different times, parked, and none of another message."""
    home = await house()
    message = await home.put("a@a.test", "b@b.test", "c@c.test")
    await home.put("x@a.test")
    for delivery in await home.leases():
        await home.settle(delivery, DEFERRED)
        await home.move(1)
    await home.rest()
    found = [keys.place(key) for key, _ in placed(home.queue.core.disk.store, message)]
    assert {place.recipient for place in found} == {"a@a.test", "b@b.test", "c@c.test"}
    assert {place.family for place in found} == {"deferred"}


async def test_a_provider_has_what_its_domains_have(house: Any) -> None:
    """From the moment at which DNS has said whose they are; a domain that moves away takes its mail with it."""
    resolver = Directory()
    resolver.answers = {"a.test": site("big", "giant", ttl_s=60), "b.test": site("big", "giant"), "c.test": site("own")}
    home = await house(resolver=resolver)
    for domain in DOMAINS:
        await home.put(f"one@{domain}", f"two@{domain}")
    deliveries = await home.leases()
    assert await home.queue.ask("size", provider="giant") == NONE | {"queued": 2, "leased": 2}
    while deliveries:
        for delivery in deliveries:
            await home.settle(delivery, DEFERRED)
        deliveries = await home.leases()
    await home.rest()
    assert await home.queue.ask("size", provider="giant") == NONE | {"deferred": 4}
    resolver.answers["a.test"] = site("elsewhere", "dwarf")
    await home.move(7_200)
    await home.leases()
    await home.rest()
    page = await home.queue.ask("sizes", by="provider")
    assert {row["name"]: row["deferred"] + row["queued"] + row["leased"] for row in page["rows"]} == {
        "giant": 2,
        "dwarf": 2,
    }


async def test_pages_of_sizes_are_disjoint_and_complete(house: Any) -> None:
    """The cursor leads on, and survives that the mail of its last row is gone."""
    home = await house()
    for number in range(12):
        await home.put(*(f"u{at}@d{number}.test" for at in range(1 + number % 3)))
    await home.rest()
    seen: list[str] = []
    after: str | None = ""
    while after is not None:
        page = await home.queue.ask("sizes", by="domain", limit=5, after=after)
        seen += [row["name"] for row in page["rows"]]
        after = page["next"]
    assert sorted(seen) == sorted(f"d{number}.test" for number in range(12))
    in_zone = await home.queue.ask("sizes", by="domain", zone="default")
    assert len(in_zone["rows"]) == 12


async def test_the_domains_of_a_zone_are_kept_in_order(house: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """From the first question on, which has what was seen in its time; exact while mail comes and goes, also before all
    have been seen; and no longer than somebody asks."""
    zones = [{"name": "a", "default": True}, {"name": "b", "sender_domains": ["b.test"]}]
    home, die = await house(zones=zones), random.Random(4)

    async def mail(count: int) -> None:
        for _ in range(count):
            people = (f"u{die.random()}@d{int(60 * die.random() ** 2)}.test" for _ in range(1 + die.randrange(3)))
            await home.put(*people, sender=die.choice(("s@a.test", "s@b.test")))

    async def sizes(zone: str) -> dict[str, Any]:
        return dict(await home.queue.ask("sizes", by="domain", zone=zone, limit=1_000))

    await mail(150)
    monkeypatch.setattr(pace, "AT_ONCE", 1)
    monkeypatch.setattr(pace, "TURN_S", 0.0)
    monkeypatch.setattr(zone_domains, "PAGE_S", 0.0)
    first = await sizes("b")
    assert not first["complete"]
    assert await sizes("nosuch") == {"rows": [], "next": None, "of": 0, "complete": True}
    for _ in range(20):
        await mail(2)
        for delivery in await home.lease(2):
            await home.settle(delivery)
    (order,) = zone_domains._orders[home.queue.core].values()
    await asyncio.wait_for(order.made.wait(), 60)
    await home.rest()
    page = await sizes("b")
    assert page["complete"]
    there = {
        domain: sum(counts) for (zone, domain), counts in home.queue.core.counters.sizes.domains.items() if zone == "b"
    }
    totals = [sum(row[name] for name in NONE) for row in page["rows"]]
    assert totals == sorted(there.values(), reverse=True)
    assert {row["name"]: total for row, total in zip(page["rows"], totals, strict=True)} == there
    home.clock.now_s += zone_domains.KEPT_S
    zone_domains._look(home.queue.core, order)
    assert not home.queue.core.counters.sizes.ranked_in
    await home.sound()


@pytest.mark.parametrize("spread", [3, 40, 4_000])
def test_the_order_of_domains_is_that_of_their_sizes(spread: int) -> None:
    """Whatever comes and goes, however many are equal; pages have each once; a cursor whose name is gone leads on."""
    die, ranking, there = random.Random(spread), Ranking(), Counter[str]()
    for _ in range(20_000):
        name = f"d{int(die.random() ** 3 * spread)}.test"
        count = -1 if there[name] and die.random() < 0.4 else 1
        ranking.add(name, count)
        there[name] += count
    there = +there
    pages, after = list[tuple[int, str]](), None
    while page := ranking.page(7, after):
        pages, after = pages + page, page[-1]
    assert [count for count, _ in pages] == sorted(there.values(), reverse=True)
    assert {name: count for count, name in pages} == there
    assert len(pages) == len(ranking) == len(there)
    (count, name), following = pages[len(pages) // 2], pages[len(pages) // 2 + 1 :]
    ranking.add(name, -count)
    assert ranking.page(len(pages), (count, name)) == following


@pytest.mark.parametrize(
    ("question", "arguments", "said"),
    [
        ("size", {"colour": "red"}, "takes no 'colour'; it takes zone"),
        ("size", {"domain": "a.test", "tenant": "acme"}, "nothing is counted by domain and tenant together"),
        ("sizes", {"by": "sender"}, "nothing is counted by 'sender'; use zone"),
        ("sizes", {"by": "tenant", "zone": "default"}, "counted by domain, not by tenant"),
        ("sizes", {"by": "domain", "after": "x"}, "'x' is not a cursor"),
    ],
)
async def test_what_is_not_counted_is_said(house: Any, question: str, arguments: dict[str, str], said: str) -> None:
    """In one sentence."""
    home = await house()
    with pytest.raises(ValueError, match=said):
        await home.queue.ask(question, **arguments)


async def test_fsck_finds_and_corrects_wrong_sums_and_a_wrong_index(house: Any) -> None:
    """Both are counted again."""
    home = await house()
    await filled(home, random.Random(5))
    store = home.queue.core.disk.store
    index = next(store.keys(keys.INDEX, keys.end(keys.INDEX)))
    store.write([(keys.flow_size("acme~spring"), packing.pack([7, 7, 7])), (index, None)], True)
    home.abandon()
    said = " ".join(problem.what for problem in home.check().problems)
    assert "sizes of tenant 'acme' and campaign 'spring': [7, 7, 7, 0, 0] noted" in said
    assert "1 are missing in the index, 0 gone" in said
    home.check(repair=True)
    assert home.check().problems == []


async def test_sums_of_an_older_version_are_no_mistake(house: Any) -> None:
    """It knew fewer states."""
    home = await house()
    await filled(home, random.Random(5))
    store = home.queue.core.disk.store
    older = [(key, packing.pack(packing.unpack(value)[:4])) for key, value in store.scan(b"size", b"sizf")]
    store.write(older, True)
    assert older
    home.abandon()
    assert home.check().problems == []
    await home.open()
    await agree(home)
