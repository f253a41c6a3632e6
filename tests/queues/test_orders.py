"""The log of orders: what was given is there after any crash; damage is named; what all queues have goes."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from zonemta_py.mail.reply import Reply
from zonemta_py.queue.api import QueueRefusal
from zonemta_py.queues.authority import Authority
from zonemta_py.queues.orders import GivenOrder, OrderLog
from zonemta_py.wire.channel import Lost

NAMES = st.sampled_from(["suppress", "stop", "lift", "task"])


def give(log: OrderLog, question: str, **arguments: object) -> GivenOrder:
    order = log.write(1_000 + log.last, question, arguments)
    log.given(order)
    return order


@settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=60)
@given(steps=st.lists(st.tuples(st.sampled_from(["give", "settle", "void", "done", "open"]), NAMES), max_size=25))
def test_the_log_is_what_was_given(tmp_path_factory, steps: list[tuple[str, str]]) -> None:  # type: ignore[no-untyped-def]
    path = tmp_path_factory.mktemp("log") / "queues" / "orders"
    log, model, last = OrderLog(path), dict[int, GivenOrder](), 0
    for what, name in steps:
        if what == "give":
            order = give(log, name, rows=[name * 3000], at=last)
            model[order.number], last = order, order.number
        elif what == "settle" and last in model:
            model[last] = log.settle(last, {"kind": "domain"})
        elif what == "void" and last in model:
            log.void(last)
            del model[last]
        elif what == "done" and model:
            log.done(min(model))
            del model[min(model)]
        elif what == "open":
            kept = {number: order for number, order in model.items() if number > log.dropped}
            log = OrderLog(path)
            assert not log.lost
            assert set(kept) <= {
                order.number for order in log.after(0)
            }  # what was done may be there until it is written
        assert log.last == last
        assert [order for order in log.after(0) if order.number in model] == [model[n] for n in sorted(model)]


def test_a_crash_at_any_byte_costs_no_order_that_was_given(tmp_path: Path) -> None:
    """A torn end is the order that nobody has heard of."""
    path = tmp_path / "orders"
    log = OrderLog(path)
    give(log, "stop", kind="zone", name="default")
    before = len(path.read_bytes())
    give(log, "suppress", rows=[["ann@example.com", "manual"]])
    whole = path.read_bytes()
    for cut in range(before, len(whole) + 1):
        path.write_bytes(whole[:cut])
        again = OrderLog(path)
        found = [order.question for order in again.after(0)]
        assert found in (["stop"], ["stop", "suppress"]), cut
        assert not again.lost or cut < len(whole)
        assert give(again, "lift", kind="zone", name="default").number == len(found) + 1


def test_damage_is_named_and_a_copy_kept(tmp_path: Path) -> None:
    path = tmp_path / "orders"
    log = OrderLog(path)
    for number in range(3):
        give(log, "stop", kind="zone", name=f"zone-{number}")
    data = bytearray(path.read_bytes())
    data[data.index(b"zone-1")] ^= 1
    path.write_bytes(data)
    again = OrderLog(path)
    assert len(again.lost) == 1
    assert "damaged at byte" in again.lost[0]
    assert [order.arguments["name"] for order in again.after(0)] == ["zone-0", "zone-2"]
    assert (tmp_path / "orders.damaged").read_bytes() == data


def test_what_all_have_is_dropped_and_its_numbers_are_not_given_again(tmp_path: Path) -> None:
    path = tmp_path / "orders"
    log = OrderLog(path)
    for _ in range(40):
        give(log, "suppress", rows=[["a" * 200_000]])
        log.done(log.last)
    assert path.stat().st_size < 5_000_000
    assert OrderLog(path).last == 40


def test_a_queue_that_is_ahead_moves_the_numbers(tmp_path: Path) -> None:
    """The log was deleted: the next order is none that a queue has carried out."""
    log = OrderLog(tmp_path / "orders")
    log.skip(17)
    assert give(log, "stop", kind="zone", name="x").number == 18


class Queue:
    """As the authority sees one. dies: when it has noted an order, before it answers; once. refuses: unless it is sure
    that another has taken it."""

    def __init__(self, dies: bool = False, refuses: bool = False) -> None:
        self.noted, self.dies, self.refuses = 0, dies, refuses
        self.there = True

    def moment(self, here: float) -> float:
        return here

    async def ask(self, question: str, **asked: Any) -> Any:
        if question == "order-number":
            return self.noted
        if question == "share":
            await asyncio.sleep(0.01)
            return []
        if self.refuses and not asked["sure"]:
            return ["refused", "there is none"]
        self.noted = asked["number"]
        if self.dies:
            self.dies = False
            raise Lost(Reply(451, "4.3.0", "the queue is restarting"))
        return ["done", 1, {}]


async def ordered(tmp_path: Path, *queues: Queue) -> dict[int, Any]:
    authority = Authority(dict(enumerate(queues)), OrderLog(tmp_path / "orders"))
    tasks = authority.start()
    await asyncio.sleep(0.1)
    try:
        return await asyncio.wait_for(authority.order("stop", {"kind": "zone", "name": "bulk"}), 20)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def test_a_queue_that_dies_between_its_note_and_its_answer_holds_up_nothing(tmp_path: Path) -> None:
    """It has carried the order out, leases on, and will never say what came of it: others that refuse must carry it out
    as well."""
    queues = [Queue(), Queue(dies=True), Queue(refuses=True)]
    assert await ordered(tmp_path, *queues) == {0: 1, 2: 1}
    assert [queue.noted for queue in queues] == [1, 1, 1]


async def test_if_only_such_a_queue_has_taken_it_the_others_do(tmp_path: Path) -> None:
    queues = [Queue(dies=True), Queue(refuses=True)]
    assert await ordered(tmp_path, *queues) == {1: 1}
    assert [queue.noted for queue in queues] == [1, 1]


async def test_if_nobody_can_say_what_came_of_it_that_is_said(tmp_path: Path) -> None:
    with pytest.raises(QueueRefusal, match="look whether the order holds"):
        await ordered(tmp_path, Queue(dies=True))
