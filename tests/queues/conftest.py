"""One queue, and three that are to be as good as one: each in a folder of its own, with the same clock."""

from collections.abc import AsyncIterator, Callable
from math import inf
from pathlib import Path
from typing import Any

import pytest

from tests.queue import declared
from tests.queue.conftest import Hand, House
from tests.queue.conftest import _patience as _patience
from tests.queue.conftest import folder as folder
from zonemta_py.disk.keys import Ids
from zonemta_py.mail.envelope import Envelope, Notify, Recipient
from zonemta_py.queue.questions.question import given
from zonemta_py.queues.answers import Merged
from zonemta_py.queues.joined.asked import refusal
from zonemta_py.queues.placement import Placement

BODY = b"Subject: hello\r\n\r\nHi\r\n"


class Three:
    """Three houses as one. Orders are carried out by all at once, as the authority and its members do; late: those that
    do it only when they `catch_up`."""

    def __init__(self, houses: list[House], accounts: list[str]) -> None:
        self.houses = dict(enumerate(houses))
        self.placement = Placement(self.houses, accounts)
        self.clock = houses[0].clock
        self.orders: list[tuple[str, dict[str, Any]]] = []
        self.late = set[int]()
        self._lacks = dict[int, list[tuple[int, str, dict[str, Any]]]]()
        """By queue: when each order was given that it lacks, and the order."""
        self.merged = Merged(
            {n: home.queue.ask for n, home in self.houses.items()}, self.order, self.clock.ms, lacks_ms=self.lacks_ms
        )

    def lacks_ms(self, number: int) -> float:
        return self._lacks[number][0][0] if self._lacks.get(number) else inf

    async def catch_up(self) -> None:
        self.late = set()
        for number in list(self._lacks):
            for _, question, arguments in self._lacks.pop(number):
                await self._order(number, question, arguments, True)

    async def ask(self, question: str, **arguments: Any) -> Any:
        found = await self.merged.answer(question, arguments)
        what = declared.fault(found, declared.said(question, not arguments), str(question))
        assert not what, what
        return found

    async def order(self, question: str, arguments: dict[str, Any]) -> dict[int, Any]:
        self.orders.append((question, arguments))
        found, refused, settled = dict[int, Any](), dict[int, ValueError](), dict[str, Any]()
        for number in self.late:
            self._lacks.setdefault(number, []).append((self.clock.ms(), question, arguments))
        for number in self.houses.keys() - self.late:
            try:
                found[number], more = await self._order(number, question, arguments, False)
                settled = settled or more
            except ValueError as error:
                refused[number] = error
        if not found:
            raise refusal(map(str, refused.values()))
        for number in refused:
            try:
                found[number], _ = await self._order(number, question, arguments | settled, True)
            except ValueError:
                continue
        return found

    async def _order(self, number: int, question: str, arguments: dict[str, Any], sure: bool) -> Any:
        with given(sure, repeated=number > 0) as order:
            return await self.houses[number].queue.answer(question, arguments), order.settled

    def of(self, envelope: Envelope) -> House:
        return self.houses[self.placement.order(envelope)[0]]

    async def put_envelope(self, envelope: Envelope, body: bytes = BODY) -> str:
        return await self.of(envelope).put_envelope(envelope, body)

    async def rest(self) -> None:
        for home in self.houses.values():
            await home.rest()

    async def move(self, seconds: float) -> None:
        self.clock.now_s += seconds
        for home in self.houses.values():
            await home.move(0)


class One(Three):
    """One house, asked as it is."""

    def __init__(self, home: House) -> None:
        self.houses, self.clock = {0: home}, home.clock

    async def ask(self, question: str, **arguments: Any) -> Any:
        return await self.houses[0].queue.answer(question, arguments)

    def of(self, envelope: Envelope) -> House:
        return self.houses[0]


@pytest.fixture
async def three_and_one(folder: Path) -> AsyncIterator[Callable[..., Any]]:
    """three_and_one(zones=[…]) → three queues and one, with the same clock."""
    made: list[House] = []

    async def make(**options: Any) -> tuple[Three, One]:
        clock = Hand()
        for number in range(4):
            home = House(folder / f"house{number}", **options)
            home.clock = clock
            made.append(home)
            await home.open()
            home.queue.core.disk.ids = Ids(home.queue.core.disk.ids.last, number % 3)
        accounts = [one["name"] for one in options.get("accounts", [])]
        return Three(made[:3], accounts), One(made[3])

    yield make
    for one in made:
        one.abandon()
        assert one.damages == []


def envelope(*addresses: str, sender: str = "ann@src.test", **more: Any) -> Envelope:
    """Nobody is notified of what becomes of it."""
    return Envelope(sender, [Recipient(address, int(Notify.NEVER)) for address in addresses], len(BODY), **more)
