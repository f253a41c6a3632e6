"""A limit on connections that several egress paths share: they are used again, count while they are idle, and are
shared."""

import asyncio
from typing import Any, get_args

from tests.queue.test_reload import reload
from zonemta_py.queue.api import RELEASED, OpenConnection
from zonemta_py.zones.throttle import Scope


def test_a_sender_reports_every_dimension_of_limits() -> None:
    """What its open connections were used for is a whole scope: without one, a reload would count them wrong."""
    assert get_args(OpenConnection) == (int, int, *[str] * len(Scope._fields))


async def test_a_shared_limit_leaves_connections_open(house: Any) -> None:
    """An egress path goes on over its connection, which counts meanwhile; one that ends, or is not used, makes room."""
    home = await house(throttles=[{"name": "t", "per": ["campaign"], "connections": 1}])
    for number in range(3):
        await home.put(f"r{number}@x.test", campaign="c")
    await home.put("other@y.test", campaign="c")
    (first,) = await home.leases()
    assert first.idle_s > 0
    await home.settle(first, opened=True)
    (second,) = await home.leases()
    assert second.recipients[0].address.endswith("@x.test"), "its lane has the connection"
    await home.settle(second, opened=False)
    (third,) = await home.leases()
    assert third.idle_s == 0, "its lane has no more mail, and another waits"
    await home.settle(third)
    assert [d.recipients[0].address for d in await home.leases()] == ["other@y.test"]


async def test_a_connection_kept_open_counts_until_it_ends(house: Any) -> None:
    """Idle or not: whoever comes meanwhile waits, and goes when its sender has closed it, however late that is."""
    home = await house(throttles=[{"name": "t", "per": ["campaign"], "connections": 1}])
    await home.put("r@x.test", campaign="c")
    (first,) = await home.leases()
    await home.settle(first, opened=True)
    await home.put("r@y.test", campaign="c")
    await home.move(first.idle_s + 60)
    assert await home.idle()
    home.queue.closed(first.lease)
    (second,) = await home.leases()
    await home.settle(second, kept=False)
    await home.put("s@x.test", campaign="c")
    assert len(await home.leases()) == 1, "the last one was not kept"


async def test_an_egress_path_yields_after_its_turn(house: Any) -> None:
    """While others wait at the limit an egress path has its connection for TURN_S; then they have it, and then it
    again."""
    home = await house(throttles=[{"name": "t", "connections": 1}])
    for number in range(30):
        await home.put(f"r{number}@x.test")
    (delivery,) = await home.leases()
    await home.put("other@y.test")
    seen = []
    for _ in range(12):
        await home.settle(delivery, opened=True)
        await home.move(0.6)
        (delivery,) = await home.leases()
        seen.append(delivery.recipients[0].address.partition("@")[2])
    assert seen == ["x.test"] * 9 + ["y.test"] + ["x.test"] * 2


async def test_who_has_no_connection_left_gives_its_place_back(house: Any) -> None:
    """Its sender's has ended and none may be opened: nothing counts any more."""
    home = await house(
        throttles=[{"name": "t", "connections": 1}, {"name": "n", "new_connections": "2/min", "burst": 2}]
    )
    for number in range(3):
        await home.put(f"r{number}@x.test")
    (first,) = await home.leases()
    await home.settle(first, opened=True)
    (second,) = await home.leases()
    assert not second.may_connect
    await home.settle(second, RELEASED, stage="limit", kept=False)
    (third,) = await home.leases()
    assert third.may_connect


async def test_what_a_lost_sender_has_open_counts_until_it_has_ended(house: Any) -> None:
    """Its leases are others' at once, its connections are not."""
    home = await house(throttles=[{"name": "t", "connections": 1}])
    await home.put("r@x.test")
    assert len(await home.queue.lease(1, "one")) == 1
    home.queue.lost("one")
    assert await home.idle()
    home.queue.over("one")
    assert len(await home.leases()) == 1


async def test_who_falls_silent_and_runs_on_says_what_is_open(house: Any) -> None:
    """His late result names a connection, which counts until he says that it is closed; or there is none."""
    home = await house(throttles=[{"name": "t", "connections": 1}])
    for kept in (True, False):
        await home.put("r@x.test")
        (lease,) = await home.queue.lease(1, "one")
        await home.put("s@y.test")
        home.queue.lost("one", silent=True)
        assert await home.idle()
        await home.settle(lease, kept=kept)
        assert await home.idle() == kept
        home.hang_up()
        home.queue.stays("one")
        (other,) = await home.leases()
        assert other.recipients[0].address == "s@y.test"
        await home.settle(other, kept=False)


async def test_nothing_is_leased_before_the_senders_of_another_queue_have_ended(house: Any) -> None:
    """The queue's process was killed: what its senders have open is not known here."""
    home = await house()
    home.queue.leases.before.add(1)
    await home.put("r@x.test")
    assert await home.idle()
    home.queue.outlived(1)
    assert len(await home.leases()) == 1


async def test_a_connection_that_ends_on_its_way_to_a_lease_is_forgotten(house: Any) -> None:
    """The lease that was to use it is taken back: it counts no more."""
    home = await house(throttles=[{"name": "t", "connections": 1}])
    await home.put("r@x.test")
    await home.put("s@x.test")
    (first,) = await home.leases()
    await home.settle(first)
    (second,) = await home.leases()
    assert second.connection == first.lease
    home.queue.closed(first.lease)
    home.queue.leases.take_back(home.queue.leases.out[second.lease])
    home.queue.core.changed()
    (third,) = await home.leases()
    assert third.connection == 0


async def test_an_idle_connection_is_found_by_the_next_mail(house: Any) -> None:
    """Also if nothing was left on its egress path meanwhile: who else asks first does not get what it cannot use."""
    home = await house(throttles=[{"name": "t", "connections": 1}])
    await home.put("r@x.test")
    (first,) = await home.queue.lease(1, "one")
    await home.settle(first)
    await home.rest()
    zone = home.queue.core.schedule.zones["default"].flow_queues
    assert not zone.by_key
    asked = asyncio.ensure_future(home.queue.lease(1, "two"))
    await home.rest()
    await home.put("s@x.test")
    (second,) = await asyncio.wait_for(home.queue.lease(1, "one"), 60)
    assert second.connection == first.lease
    assert not asked.done()
    asked.cancel()
    await home.settle(second)
    await home.rest()
    assert zone.paths
    home.hang_up()
    assert not zone.paths, "nothing is left of it"


async def test_an_open_connection_is_no_new_one_to_the_next_mail(house: Any) -> None:
    """A limit on new connections is not asked for it, for as long as it stays open, with or without mail."""
    home = await house(throttles=[{"name": "n", "new_connections": "1/h", "burst": 1}])
    paths = home.queue.core.schedule.zones["default"].flow_queues.paths
    await home.put("r@x.test")
    (first,) = await home.leases()
    await home.settle(first, opened=True)
    await home.rest()
    await home.put("s@x.test")
    (second,) = await home.leases()
    assert (first.may_connect, second.may_connect) == (True, False)
    await home.settle(second)
    await home.rest()
    assert paths
    await home.move(second.idle_s + 1)
    await home.rest()
    assert not paths, "nothing is left of it"
    await home.put("t@x.test")
    assert await home.idle()


async def test_a_first_limit_knows_what_is_open_already(house: Any) -> None:
    """Those of earlier senders: idle ones and those being closed as they say, one in use by its lease and its result.
    Mail that it limits waits until they have."""
    home = await house()
    for name in ("r", "s", "t"):
        await home.put(f"{name}@x.test", campaign="c")
    first, second, third = await home.queue.lease(3, "one")
    await home.settle(first)
    home.queue.leases.retire("one")
    reload(home, throttles=[{"name": "t", "per": ["site"], "connections": 3}])
    for name in ("u", "v"):
        await home.put(f"{name}@x.test")
    assert await home.idle(), "it has not said what it has"
    assert "which connections they have" in str(await home.queue.ask("explain", what="x.test"))
    scope = ("default", "", "x.test", "", "", "c")
    home.queue.left_open([(first.lease, 0, *scope), (second.lease, second.lease, *scope)], "one")
    assert await home.idle(), "two leases and one idle connection count"
    second.connection = third.connection = 0  # it says so of whatever it has now
    await home.settle(second, kept=False)
    assert len(await home.leases()) == 1
    result = home.result(third, kept=False)
    result.connection = third.lease  # it is being closed
    await home.queue.settle(result)
    assert await home.idle()
    reload(home, throttles=[{"name": "u", "per": ["campaign"], "connections": 2}])
    await home.put("w@y.test", campaign="c")
    assert len(await home.leases()) == 1, "all that is known counts by the new limit, and nobody need be asked again"


async def test_a_first_limit_waits_for_a_sender_that_says_nothing_until_its_end(house: Any) -> None:
    """Other mail goes meanwhile."""
    home = await house()
    await home.put("r@x.test")
    await home.queue.lease(1, "one")
    home.queue.lost("one")
    reload(home, throttles=[{"name": "t", "only": {"site": "x.test"}, "connections": 2}])
    await home.put("s@y.test")
    (other,) = await home.leases()
    assert other.recipients[0].address == "s@y.test"
    home.queue.over("one")
    assert len(await home.leases()) == 1
