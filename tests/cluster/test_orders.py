"""The log of orders of a cluster: as that of one machine, over real servers, and only one writes."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from nats_servers import ThreeServers

from zonemta_py.cluster.nats import Nats, NoQuorum
from zonemta_py.cluster.orders import TRIM_EVERY, ClusterOrders
from zonemta_py.config import ClusterSection, Config
from zonemta_py.queues.orders import GivenOrder

Open = Callable[[], Awaitable[ClusterOrders]]
NAMES = st.sampled_from(["suppress", "stop", "lift", "task"])


def config_of(section: ClusterSection) -> Config:
    return Config(cluster=section)


@pytest.fixture
def open_log(nats: Nats, section: ClusterSection) -> Open:
    async def one() -> ClusterOrders:
        return await ClusterOrders.open(nats, config_of(section), asyncio.get_running_loop())

    return one


async def give(log: ClusterOrders, question: str, **arguments: Any) -> GivenOrder:
    order = await asyncio.to_thread(log.write, 1_000 + log.last, question, arguments)
    log.given(order)
    return order


def orders(log: ClusterOrders) -> list[tuple[int, str]]:
    return [(one.number, one.question) for one in log.after(0)]


@settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=8)
@given(steps=st.lists(st.tuples(st.sampled_from(["give", "settle", "void", "done", "open"]), NAMES), max_size=25))
def test_the_log_is_what_was_given(running_servers: ThreeServers, steps: list[tuple[str, str]]) -> None:
    asyncio.run(against_a_model(running_servers, steps))


async def against_a_model(servers: ThreeServers, steps: list[tuple[str, str]]) -> None:
    section = ClusterSection.model_validate(servers.settings(name="model"))
    nats = await Nats.connect(section, "test")
    try:
        await nats.delete_stream("zonemta-model-ORDERS")
        loop = asyncio.get_running_loop()
        log, model, last = await ClusterOrders.open(nats, config_of(section), loop), dict[int, GivenOrder](), 0
        for what, name in steps:
            if what == "give":
                order = await give(log, name, rows=[name * 3000], at=last)
                model[order.number], last = order, order.number
            elif what == "settle" and last in model:
                model[last] = await asyncio.to_thread(log.settle, last, {"kind": "domain"})
            elif what == "void" and last in model:
                await asyncio.to_thread(log.void, last)
                del model[last]
            elif what == "done" and model:
                log.done(min(model))
                del model[min(model)]
            elif what == "open":
                log = await ClusterOrders.open(nats, config_of(section), loop)
                assert not log.lost
            assert log.last == last
            assert [order for order in log.after(0) if order.number in model] == [model[n] for n in sorted(model)]
    finally:
        await nats.close()


async def test_one_that_is_as_large_as_several_messages(open_log: Open) -> None:
    log = await open_log()
    await give(log, "learn", lessons=["x" * 700_000, "y" * 700_000])
    await give(log, "stop")
    again = await open_log()
    assert orders(again) == [(1, "learn"), (2, "stop")]
    found = again.get(1)
    assert found is not None
    assert found.arguments == {"lessons": ["x" * 700_000, "y" * 700_000]}


async def test_a_former_leader_writes_nothing(open_log: Open) -> None:
    first = await open_log()
    await give(first, "stop")
    second = await open_log()
    for _ in range(2):
        with pytest.raises(OSError, match="another node leads the cluster"):
            await asyncio.to_thread(first.write, 0, "lift", {})
        assert first.is_over
    assert not second.is_over
    await give(second, "task")
    with pytest.raises(OSError, match="another node leads the cluster"):
        await asyncio.to_thread(first.void, 1)
    assert orders(second) == orders(await open_log()) == [(1, "stop"), (2, "task")]


async def test_what_all_have_is_purged(open_log: Open, nats: Nats, section: ClusterSection) -> None:
    log = await open_log()
    await give(log, "kept")
    log.skip(5)
    for _ in range(TRIM_EVERY + 10):
        order = await give(log, "stop")
    log.done(order.number - 1)
    log.given(order)
    await give(log, "lift")
    info = await nats.info(f"zonemta-{section.name}-ORDERS")
    assert info.messages <= 3
    again = await open_log()
    assert orders(again) == orders(log) == [(order.number, "stop"), (order.number + 1, "lift")]
    assert (again.dropped, again.last, again.lost) == (order.number - 1, order.number + 1, [])


async def test_one_that_had_no_answer_is_void(open_log: Open, nats: Nats, monkeypatch: pytest.MonkeyPatch) -> None:
    log = await open_log()
    await give(log, "stop")
    append = nats.append

    async def unanswered(*arguments: Any) -> int:
        monkeypatch.setattr(nats, "append", append)
        await append(*arguments)
        raise NoQuorum("no answer")

    monkeypatch.setattr(nats, "append", unanswered)
    with pytest.raises(OSError, match="no answer"):
        await asyncio.to_thread(log.write, 0, "lift", {})
    assert orders(log) == [(1, "stop")]
    assert (await give(log, "task")).number == 3
    assert orders(log) == orders(await open_log()) == [(1, "stop"), (3, "task")]


async def test_a_server_dies(open_log: Open, nats: Nats, servers: ThreeServers, section: ClusterSection) -> None:
    log = await open_log()
    await give(log, "stop")
    servers.named((await nats.info(f"zonemta-{section.name}-ORDERS")).leader).kill()
    await give(log, "lift")
    assert orders(log) == orders(await open_log()) == [(1, "stop"), (2, "lift")]


async def test_what_is_missing_is_named(open_log: Open, nats: Nats, section: ClusterSection) -> None:
    log = await open_log()
    for question in ("stop", "lift", "task"):
        await give(log, question)
    stream = f"zonemta-{section.name}-ORDERS"
    await nats._api(f"STREAM.MSG.DELETE.{stream}", {"seq": 3}, 10)
    again = await open_log()
    assert orders(again) == [(1, "stop"), (3, "task")]
    assert again.lost == [f"stream {stream}: message 3 is missing; orders there are lost"]
    await nats.append(f"zonemta.{section.name}.orders", b"\0nonsense", (await nats.info(stream)).last)
    damaged = await open_log()
    assert len(damaged.lost) == 2
    assert "message 6 is damaged" in damaged.lost[1]
