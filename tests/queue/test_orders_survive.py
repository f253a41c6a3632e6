"""Campaigns, requests, the suppression list, forgetting: a crash or a disk in trouble at any instant of an order.

What was answered holds; what was not may be asked for again; every count is what is there; nobody is lost, and nobody
is sent to twice but those whose reply was awaited.
"""

import asyncio
import random
from collections.abc import Callable
from typing import Any, NamedTuple

import pytest

from tests.queue.lives import shared
from zonemta_py.disk.leveldb.store import Store, StoreError
from zonemta_py.mail.envelope import Envelope, Recipient
from zonemta_py.merge.compile import prepare
from zonemta_py.merge.source import TemplateSource, Text
from zonemta_py.queue.api import Delivery, QueueRefusal
from zonemta_py.queue.core import commit
from zonemta_py.queue.lifecycle import leasing as leasing

Make = Callable[..., Any]
TEMPLATE = prepare(
    TemplateSource("t", Text("Hello {{ name }}"), Text("news@src.test"), text=Text("Hi {{ name }}\n"))
).pack()
MERGED, PLAIN = ["ann@x.test", "bob@y.test", "cid@x.test"], ["ann@x.test", "dan@z.test"]
TURNS = (0, 2, 4, 6, 8, 12, 16)
READS = range(1, 13)


def batch(*addresses: str, **more: Any) -> Envelope:
    people = [Recipient(address, values=[address]) for address in addresses]
    return Envelope("", people, columns=["name"], campaign="spring", received_ms=1_700_000_000_000, **more)


async def put(home: Any) -> None:
    await home.queue.ask("campaign-put", name="summer", sender="news@src.test", template=TEMPLATE)


async def give(home: Any) -> None:
    await home.queue.accept(batch("eve@x.test", "fay@y.test", request="campaign spring 7", digest=b"d" * 32), b"")


async def suppress(home: Any) -> None:
    rows = [["ann@x.test", "complaint", "", "", "", "spring"]]
    await home.queue.ask("suppress", rows=rows)


async def unsuppress(home: Any) -> None:
    await home.queue.ask("unsuppress", addresses=["zoe@z.test"])


async def cancel(home: Any) -> None:
    await home.queue.ask("campaign-cancel", name="spring", cause="wrong list")


async def complete(home: Any) -> None:
    await home.queue.ask("campaign-complete", name="spring")


async def forget(home: Any) -> None:
    await home.queue.ask("forget", address="Ann@x.test")


async def lease(home: Any) -> None:
    """Those on the list are removed; what was leased goes back, for a sender that dies has its recipients in doubt."""
    await home.leases()
    home.queue.lost("")


async def sweep(home: Any) -> None:
    """What a canceled campaign has left is removed."""
    while home.queue.campaign_commands.tick():
        await home.rest()


class Case(NamedTuple):
    """before: what is ordered beforehand, and holds. sent: to whom mail goes in the end. figures: the counters then."""

    order: Callable[[Any], Any]
    before: tuple[Callable[[Any], Any], ...]
    sent: list[str]
    figures: dict[str, int]


ALL, WITHOUT_ANN = [*MERGED, *PLAIN], ["bob@y.test", "cid@x.test", "dan@z.test"]
CASES = {
    "put": Case(put, (), ALL, {"accepted": 3, "delivered": 3}),
    "batch": Case(give, (), [*ALL, "eve@x.test", "fay@y.test"], {"accepted": 5, "delivered": 5}),
    "batch, one left out": Case(
        give, (suppress,), [*WITHOUT_ANN, "eve@x.test", "fay@y.test"], {"accepted": 5, "delivered": 4, "removed": 1}
    ),
    "suppress": Case(suppress, (), WITHOUT_ANN, {"delivered": 2, "suppressed": 0, "removed": 1, "complaints": 1}),
    "unsuppress": Case(unsuppress, (), ALL, {"delivered": 3, "suppressed": 0}),
    "cancel": Case(cancel, (), PLAIN, {"delivered": 0, "removed": 3}),
    "sweep": Case(sweep, (cancel,), PLAIN, {"delivered": 0, "removed": 3}),
    "complete": Case(complete, (), ALL, {"delivered": 3, "removed": 0}),
    "forget": Case(forget, (), WITHOUT_ANN, {"delivered": 2, "removed": 1}),
    "removal at the lease": Case(lease, (suppress,), WITHOUT_ANN, {"delivered": 2, "removed": 1}),
    "removal of the canceled": Case(lease, (cancel,), PLAIN, {"delivered": 0, "removed": 3}),
}
ANSWERED = {
    "put": lambda home: home.queue.core.campaigns.by_name["summer"].template,
    "batch": lambda home: home.queue.core.campaigns.tally("spring").accepted == 5,
    "suppress": lambda home: home.queue.suppression.of("ann@x.test"),
    "unsuppress": lambda home: not home.queue.suppression.of("zoe@z.test"),
    "cancel": lambda home: home.queue.core.campaigns.get("spring").canceled_ms,
    "complete": lambda home: home.queue.core.campaigns.get("spring").complete_ms,
}
"""What must be there, whatever happens, as soon as it was answered."""


async def prepared(house: Make, case: Case) -> Any:
    home = await house()
    await home.queue.ask("campaign-put", name="spring", sender="news@src.test", template=TEMPLATE)
    await home.queue.ask("suppress", rows=[["zoe@z.test", "manual"]])
    await home.queue.accept(batch(*MERGED), b"")
    await home.put(*PLAIN)
    for order in case.before:
        await order(home)
    return home


async def insist(home: Any, order: Callable[[Any], Any]) -> None:
    """Asks until it is answered, as any client does."""
    for _ in range(12_000):
        try:
            await order(home)
        except (QueueRefusal, StoreError, ValueError) as error:
            if not ("fenced" in str(error) or "disk" in str(error)):
                raise
            await asyncio.sleep(0.005)
        else:
            return
    raise AssertionError("it is never answered")


async def send_all(home: Any) -> list[str]:
    """Delivers whatever may go; to whom."""
    seen: list[str] = []
    quiet = 0
    while quiet < 2:
        deliveries: list[Delivery] = await home.leases()
        for delivery in deliveries:
            seen += [recipient.address for recipient in delivery.recipients]
            await home.settle(delivery)
        await home.rest()
        quiet = 0 if deliveries else quiet + 1
        if not deliveries and home.queue.core.disk.store.fenced:
            quiet = 0
            await asyncio.sleep(0.005)
    return sorted(seen)


async def finished(home: Any, case: Case) -> None:
    """The order again, then all mail: everybody who is to be sent to is, once, and all counts are right."""
    await insist(home, case.order)
    assert await send_all(home) == sorted(case.sent)
    await insist(home, sweep)
    await home.rest()
    row = await home.queue.ask("campaign", name="spring")
    assert {name: row[name] for name in case.figures} == case.figures
    assert row["waiting"] == 0
    total = await home.sizes()
    assert (total["queued"], total["deferred"], total["held"], total["messages"]) == (0, 0, 0, 0)
    await home.sound()


@pytest.mark.parametrize("power", [False, True])
@pytest.mark.parametrize("name", CASES)
async def test_a_crash_at_any_instant_of_an_order(house: Make, name: str, power: bool) -> None:
    """SIGKILL or a power cut, so many turns of the loop after it was given; what was answered is there at once."""
    case, answered = CASES[name], ANSWERED.get(name)
    for turns in shared(TURNS, power):
        die = random.Random(turns)
        home = await prepared(house, case)
        task = asyncio.ensure_future(case.order(home))
        for _ in range(turns):
            await asyncio.sleep(die.choice((0, 0, 0.001)))
        done = task.done()
        await home.crash(power, die, drop=die.random() < 0.5)
        task.cancel()
        await asyncio.wait([task])
        await home.sound()
        assert not (done and answered) or answered(home), f"{name} was answered after {turns} turns, and is gone"
        await finished(home, case)


def fence_at(store: Store, monkeypatch: pytest.MonkeyPatch, number: int) -> list[int]:
    """Fences the store at its n-th read from now on, for a moment. The list: reads seen."""
    check, seen, loop = store._not_fenced, [0], asyncio.get_running_loop()

    def counted() -> None:
        seen[0] += 1
        if seen[0] == number:
            store.fenced = True
            loop.call_later(0.01, setattr, store, "fenced", False)
        check()

    monkeypatch.setattr(store, "_not_fenced", counted)
    monkeypatch.setattr(commit, "RETRY_S", 0.02)
    monkeypatch.setattr(leasing, "FENCED_S", 0.01)
    return seen


@pytest.mark.parametrize("crash", [False, True])
@pytest.mark.parametrize("name", CASES)
async def test_a_fence_at_any_read_of_an_order(
    house: Make, monkeypatch: pytest.MonkeyPatch, name: str, crash: bool
) -> None:
    """The disk says no for a moment: it is refused for now, or done; nothing is damaged, nothing waits for ever."""
    case, reached = CASES[name], 0
    for number in (reads := shared(READS, crash)):
        home = await prepared(house, case)
        if crash:  # so that all is read from the store again
            await home.crash()
        core = home.queue.core
        seen = fence_at(core.disk.store, monkeypatch, number)
        await insist(home, case.order)
        await finished(home, case)
        reached += seen[0] >= number
        monkeypatch.undo()
        assert not home.damages
        assert not core.disk.quarantine.cases()
    assert reached == len(reads), "the fence hardly ever came"
