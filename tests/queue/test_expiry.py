"""What is parked until its lifetime is over is ended in portions, however much it is; others have their turns."""

import asyncio
from typing import Any

import pytest

from zonemta_py.disk import keys

COUNT = 300


async def parked(house: Any, chosen: bool) -> Any:
    """A queue with mail for a stopped destination. chosen: by an operator, so that it does not age."""
    home = await house(queue={"window": 100}, retry={"life_h": 1})
    home.queue.core.schedule.policy.stop("destination", "x.test", 86_400, "no", chosen=chosen)
    for number in range(COUNT // 10):
        await home.put(*(f"r{number}.{at}@x.test" for at in range(10)), sender="")
    assert await home.idle()
    await home.rest()
    assert len(list(home.queue.core.disk.store.keys(b"parked ", keys.end(b"parked ")))) > COUNT / 2
    await home.move(3601)
    return home


async def test_very_much_ends_in_portions(house: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """In one sweep, and nobody waits for more than one portion."""
    monkeypatch.setattr("zonemta_py.schedule.time.pace.TURN_S", 0.0)
    home = await parked(house, chosen=False)
    ended = list[int]()
    usual = home.queue.maintenance._expiry.end
    monkeypatch.setattr(
        home.queue.maintenance._expiry, "end", lambda *of, **how: [ended.append(len(of[2])), usual(*of, **how)]
    )
    sweeping, turns = asyncio.ensure_future(home.queue.sweep()), 0
    while not sweeping.done():
        turns += 1
        await asyncio.sleep(0)
    await home.rest()
    assert (await home.sizes())["messages"] == 0
    parts = [count for count in ended if count]
    assert sum(count for count in parts if count <= 50) > COUNT / 2
    assert max(parts) <= 100  # what is in the window
    assert turns > len(parts)
    await home.sound()


async def test_what_lives_on_is_passed_by_and_by(house: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """A sweep looks at some of it, the next one at what follows, and after all of it from the beginning again."""
    monkeypatch.setattr("zonemta_py.queue.maintenance.expiry.WALKED_AT_ONCE", 100)
    home = await parked(house, chosen=True)
    expiry, looked = home.queue.maintenance._expiry, set[bytes]()
    usual = expiry._over

    def over(flow_queue: Any, rows: list[tuple[bytes, bytes]], now_ms: int) -> Any:
        looked.update(key for key, _ in rows)
        return usual(flow_queue, rows, now_ms)

    monkeypatch.setattr(expiry, "_over", over)
    counts = list[int]()
    for _ in range(4):
        assert not await home.queue.maintenance.sweep()
        counts.append(len(looked))
    there = set(home.queue.core.disk.store.keys(b"parked ", keys.end(b"parked ")))
    assert counts[:2] == [100, 200]
    assert looked == there
    assert (await home.sizes())["messages"] == COUNT // 10
    await home.sound()
