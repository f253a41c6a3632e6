"""Suppressed recipients of campaigns: left out, counted once, and long lists in turns."""

import asyncio
from typing import Any

import pytest

from tests.queue.test_suppression import Make, listed, suppress
from tests.reception.conftest import Rounds
from zonemta_py.mail.envelope import Envelope, Recipient
from zonemta_py.merge.compile import prepare
from zonemta_py.merge.source import TemplateSource, Text


async def campaign(home: Any) -> None:
    template = prepare(TemplateSource("t", Text("Hello {{ name }}"), Text("news@src.test"), text=Text("Hi\n"))).pack()
    await home.queue.ask("campaign-put", name="spring", sender="news@src.test", template=template)


def batch(*addresses: str) -> Envelope:
    people = [Recipient(address, values=["Ann"]) for address in addresses]
    return Envelope("", people, columns=["name"], campaign="spring", request=f"campaign spring {addresses}")


async def tally(home: Any, *figures: str) -> tuple[int, ...]:
    await home.rest()
    row = await home.queue.ask("campaign", name="spring")
    return tuple(row[figure] for figure in figures)


@pytest.mark.parametrize("power", [False, True])
async def test_a_campaign_counts_who_is_suppressed(house: Make, power: bool) -> None:
    """Those left out when a batch comes were never accepted; those removed later were. Both are counted, once."""
    home = await house()
    await campaign(home)
    await suppress(home, "a@x.test", "b@x.test")
    assert (await home.queue.accept(batch("a@x.test", "c@x.test", "d@x.test"), b""))[1:] == (2, 1, False)
    assert (await home.queue.accept(batch("b@x.test"), b""))[1:] == (0, 1, False)
    assert (await home.queue.accept(batch("b@x.test"), b""))[1:] == (0, 1, True)
    await suppress(home, "d@x.test")
    (delivery,) = await home.leases()
    assert [one.address for one in delivery.recipients] == ["c@x.test"]
    await home.rest()
    await home.crash(power=power)
    assert await tally(home, "accepted", "removed", "suppressed", "waiting") == (2, 1, 2, 1)
    await home.sound()


async def test_a_complaint_counts_against_its_campaign_once(house: Make) -> None:
    """However often it is reported, and whatever crashes: the bound on complaints goes by it."""
    home = await house()
    await campaign(home)
    await suppress(home, "a@x.test", kind="complaint", campaign="spring")
    await suppress(home, "a@x.test", kind="complaint", campaign="spring")
    await suppress(home, "b@x.test", kind="unsubscribe", campaign="spring")
    await suppress(home, "c@x.test", kind="complaint", campaign="never put")
    assert await tally(home, "complaints") == (1,)
    await home.crash(power=True)
    assert await tally(home, "complaints") == (1,)
    await home.queue.ask("unsuppress", addresses=["a@x.test"])
    await home.crash(drop=True)
    assert await tally(home, "complaints") == (1,)
    assert sorted(await listed(home)) == ["b@x.test", "c@x.test"]
    await home.sound()


async def test_long_lists_are_worked_off_in_turns(house: Make) -> None:
    """Who puts many people on the list at once, takes them off or reads on, stops nobody's mail."""
    home, addresses = await house(), [f"p{number}@x.test" for number in range(40_000)]
    await suppress(home, "first@x.test")
    await home.queue.ask("suppressions", limit=1)
    await home.queue.ask("unsuppress", addresses=["first@x.test"])  # what is read of types once is no part of it
    with Rounds.watched(asyncio.get_running_loop()) as rounds:
        await suppress(home, *addresses)
        assert len((await home.queue.ask("suppressions", limit=10_000))["rows"]) == 10_000
        assert await home.queue.ask("unsuppress", addresses=addresses) == 40_000
    assert rounds.longest < 100_000, "without turns it is twice as many"
