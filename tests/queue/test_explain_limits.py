"""What `explain` says of limits, learned rates, warm-up caps and connections that hold mail back."""

from typing import Any

from tests.queue.test_explain import BUSY, first, look
from zonemta_py.queue.api import DEFERRED


async def test_a_limit(house: Any) -> None:
    """Which one, of what, until when."""
    home = await house(throttles=[{"name": "slow", "per": ["site"], "messages": "1/min"}])
    await home.put("a@x.test")
    await home.put("b@x.test")
    await home.settle((await home.lease())[0])
    await look(home)
    reason = await first(home, "b@x.test")
    assert reason["kind"] == "limit"
    assert "slow" in reason["cause"]
    assert "messages" in reason["cause"]
    assert 0 < reason["until_ms"] - home.clock.ms() <= 60_000


async def test_a_limit_of_the_zone(house: Any) -> None:
    """It is said of the zone's mail although no sender has asked since."""
    home = await house(throttles=[{"name": "all", "per": ["zone"], "messages": "1/min"}])
    await home.put("a@x.test")
    await home.put("b@y.test")
    await home.settle((await home.lease())[0])
    assert (await first(home, "y.test"))["kind"] == "limit"


async def test_connections_of_a_limit_are_in_use(house: Any) -> None:
    """No time can be said then."""
    home = await house(throttles=[{"name": "few", "per": ["tenant"], "connections": 1}])
    await home.put("a@x.test", tenant="shop")
    await home.put("b@x.test", tenant="shop")
    await home.lease()
    await look(home)
    reason = await first(home, "shop")
    assert (reason["kind"], reason["until_ms"]) == ("limit", 0)
    assert "connections" in reason["cause"]


async def test_a_learned_rate(house: Any) -> None:
    """With the answer that lowered it."""
    home = await house()
    lane_of = home.queue.core.schedule
    await home.put("a@x.test")
    flow_queue = next(lane_of.flow_queues())
    policy = lane_of.policy
    for _ in range(5):
        policy.delivered(flow_queue.path)
        await home.move(1)
    policy.slowed(flow_queue.path, "slow-down: 421 too fast", home.clock.ms())
    await look(home)
    reason = await first(home, "x.test")
    assert reason["kind"] == "rate"
    assert "421 too fast" in reason["cause"]
    assert reason["until_ms"] > home.clock.ms()


async def test_resting_then_probing(house: Any) -> None:
    """A destination that cannot be reached rests until a moment; then one delivery tries, the others wait for it."""
    home = await house()
    began_ms = home.clock.ms()
    await home.put("a@x.test")
    await home.put("b@x.test")
    (delivery,) = await home.lease()
    await home.settle(delivery, DEFERRED, down_s=40, stage="connect", reply=BUSY)
    reason = await first(home, "b@x.test")
    assert (reason["kind"], reason["since_ms"], reason["until_ms"]) == ("resting", began_ms, began_ms + 40_000)
    assert "closing" in reason["cause"]
    await home.move(41)
    reason = await first(home, "b@x.test")
    assert (reason["kind"], reason["until_ms"]) == ("probing", 0)
    assert "closing" in reason["cause"]


async def test_a_warm_up_cap(house: Any) -> None:
    """A new address that has sent its share of the day goes on at midnight, UTC."""
    pool = {"name": "p", "sources": [{"address": "127.0.0.2", "warmup": "w"}]}
    home = await house(zones=[{"name": "default", "pool": "p"}], pools=[pool], warmups=[{"name": "w", "caps": [1, 5]}])
    await home.put("a@x.test")
    await home.put("b@x.test")
    await home.settle((await home.lease())[0])
    await look(home)
    reason = await first(home, "b@x.test")
    assert "warm-up: 127.0.0.2 has sent its 1 of today" in reason["cause"]
    assert reason["until_ms"] % 86_400_000 == 0


async def test_concurrency(house: Any) -> None:
    """The destination has as many connections as it has earned."""
    home = await house(learning={"initial": 1})
    await home.put("a@x.test")
    await home.put("b@x.test")
    await home.lease()
    reason = await first(home, "b@x.test")
    assert (reason["kind"], reason["cause"]) == (
        "concurrency",
        "all 1 connections learned for x.test are in use",
    )


async def test_connections_of_the_zone(house: Any) -> None:
    """All are in use, by whomever."""
    home = await house(zones=[{"name": "default", "connections": 1}])
    await home.put("a@x.test")
    await home.put("b@y.test")
    await home.lease()
    reason = await first(home, "y.test")
    assert (reason["kind"], reason["cause"]) == ("connections", "all 1 connections of zone 'default' are in use")
