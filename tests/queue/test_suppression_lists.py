"""The scope of a list: who leaves one newsletter keeps the other, whoever's campaigns its issues are."""

import random
from collections.abc import Callable
from typing import Any

import pytest

from tests.queue.test_suppression_scopes import NEWS, ZONES, entries, gets, suppress
from zonemta_py.disk import packing
from zonemta_py.journal import segments
from zonemta_py.journal.records import Type

Make = Callable[..., Any]
DEALS = {"list-id": "Weekly Deals <weekly.Shop.example>"}
PRODUCTS = {"list-id": "<products.shop.example>"}


async def waiting(home: Any) -> set[str]:
    """Campaigns of the mail that goes now, "" of none."""
    return {delivery.campaign for delivery in await home.leases()}


@pytest.mark.parametrize("power", [None, False, True])
async def test_who_leaves_one_newsletter_keeps_the_other(house: Make, power: bool | None) -> None:
    """Mail of that list goes no more, of whatever campaign, also if it waits; the other list's and receipts do. After
    crashes too."""
    home = await house(zones=ZONES)
    for campaign, headers in (("deals-7", DEALS), ("deals-8", DEALS), ("products-3", PRODUCTS), ("", {})):
        await home.put("ann@x.test", sender="a@usual.test", campaign=campaign or None, headers=headers)
    await suppress(home, "ann@x.test", "unsubscribe", "list:weekly.shop.example")
    if power is not None:
        await home.crash(power=power)
    assert await waiting(home) == {"products-3", ""}
    assert not await gets(home, "ann@x.test", "a@usual.test", campaign="deals-9", headers=DEALS)
    assert await gets(home, "bob@x.test", "a@usual.test", campaign="deals-9", headers=DEALS)
    await home.rest()
    reasons = [
        packing.unpack(record.body)[3]
        for record in segments.read(home.folder / "journal", 0, [], home.folder / "archive")
        if record.type == Type.REMOVED
    ]
    assert reasons == ["suppressed: unsubscribe, scope list:weekly.shop.example"] * 3
    await home.sound()


@pytest.mark.parametrize("scope", ["list:acme/weekly.shop.example", "list:weekly.shop.example"])
async def test_lists_of_the_same_name(house: Make, scope: str) -> None:
    """What one tenant's customers leave is never another's, nor that of none; what waits, and what comes."""
    home = await house(zones=ZONES)
    whose = {"acme": "list:acme/weekly.shop.example", "beta": "list:beta/weekly.shop.example",
             "": "list:weekly.shop.example"}  # fmt: skip
    for tenant in whose:
        await home.put("ann@x.test", sender=NEWS, tenant=tenant or None, headers=DEALS)
    await suppress(home, "ann@x.test", "unsubscribe", scope)
    left = {tenant for tenant, own in whose.items() if own != scope}
    assert {delivery.tenant for delivery in await home.leases()} == left
    assert {one for one in whose if await gets(home, "ann@x.test", NEWS, tenant=one or None, headers=DEALS)} == left


async def test_a_list_is_left_in_its_tenants_case_and_no_other(house: Make) -> None:
    """Names of lists are in lower case, however an operator writes them; those of tenants are as they are."""
    home = await house(zones=ZONES)
    await suppress(home, "ann@x.test", "unsubscribe", "list:Acme/Weekly.Shop.example")
    assert await entries(home, "ann@x.test") == {"list:Acme/weekly.shop.example": "unsubscribe"}
    assert not await gets(home, "ann@x.test", NEWS, tenant="Acme", headers=DEALS)
    assert await gets(home, "ann@x.test", NEWS, tenant="acme", headers=DEALS)
    assert await home.queue.ask("unsuppress", addresses=["ann@x.test"], scope="list:Acme/WEEKLY.shop.example") == 1
    assert await entries(home, "ann@x.test") == {}


@pytest.mark.parametrize("seed", range(4))
async def test_a_crash_between_record_and_store(house: Make, seed: int) -> None:
    """What was answered stands; mail that comes before recovery is over is judged so."""
    die = random.Random(seed)
    home = await house(zones=ZONES)
    await suppress(home, "ann@x.test", "unsubscribe", "list:weekly.shop.example")
    await suppress(home, "bob@x.test", "unsubscribe", "list:weekly.shop.example")
    await home.queue.ask("unsuppress", addresses=["bob@x.test"])
    opening = await home.crash_and_begin(power=die.random() < 0.5, die=die, drop=die.random() < 0.5)
    await home.put("ann@x.test", "bob@x.test", sender=NEWS, headers=DEALS)
    await home.put("ann@x.test", sender=NEWS, headers=PRODUCTS)
    await opening.finish()
    gone = [one.address for delivery in await home.leases() for one in delivery.recipients]
    assert sorted(gone) == ["ann@x.test", "bob@x.test"]
    assert await entries(home, "ann@x.test") == {"list:weekly.shop.example": "unsubscribe"}
    await home.sound()


async def test_all_lists_of_a_tenant_in_pages(house: Make) -> None:
    """By its name and a slash; not those of one whose name begins alike."""
    home = await house(zones=ZONES)
    scopes = ("list:acme/a", "list:acme/b", "list:acme-2/a", "list:acme", "tenant:acme")
    for scope in scopes:
        for name in ("ann", "bob"):
            await suppress(home, f"{name}@x.test", "unsubscribe", scope)
    found, after = list[tuple[str, str]](), ""
    while after is not None:
        page = await home.queue.ask("suppressions", scope="list:acme/", after=after, limit=1)
        found += [(row["scope"], row["address"]) for row in page["rows"]]
        after = page["next"]
    assert found == [(f"list:acme/{name}", f"{who}@x.test") for name in "ab" for who in ("ann", "bob")]
    page = await home.queue.ask("suppressions", scope="list:acme/b")
    assert [row["scope"] for row in page["rows"]] == ["list:acme/b"] * 2


async def test_a_lease_reads_the_message_once(house: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    """What it says of its list, its link and its sender; and not at all while every entry is for all mail."""
    home = await house(zones=ZONES)
    looked: list[str] = []
    messages = home.queue.core.messages
    peek = messages.peek

    def counted(message_id: str) -> Any:
        looked.append(message_id)
        return peek(message_id)

    one = await home.put("ann@x.test", sender=NEWS, headers=DEALS)
    await suppress(home, "bob@x.test", "manual", "all")
    monkeypatch.setattr(messages, "peek", counted)
    (delivery,) = await home.leases()
    assert (delivery.list_name, delivery.list_title, looked) == ("weekly.shop.example", "Weekly Deals", [])
    await home.settle(delivery)
    one = await home.put("ann@x.test", sender=NEWS, headers=DEALS)
    await suppress(home, "ann@x.test", "unsubscribe", "list:weekly.shop.example")
    assert await home.leases() == []
    assert looked == [one]
