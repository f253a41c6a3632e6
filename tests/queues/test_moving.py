"""Mail and state that go from queue to queue: nothing is lost, nothing is there twice, whatever ends the process that
moves it; and the journal alone says the same of it."""

from collections import Counter
from collections.abc import Callable
from typing import Any

from tests.queue.conftest import house as house
from tests.queue.test_families import contents, lived
from zonemta_py.config import Config
from zonemta_py.disk import keys, packing
from zonemta_py.disk.notes import Note
from zonemta_py.journal import families
from zonemta_py.queue.recovery import offline
from zonemta_py.queues import layout, moving

Make = Callable[..., Any]
WAITING = ("delivery-zone", "deferred", "parked", "held", "deleted", "bounced")


async def stopped(home: Any) -> Config:
    """Its queue has ended, as a drain ends it."""
    await home.rest()
    await home.queue.position()
    await home.rest()
    home.abandon()
    config: Config = home.config
    return config


async def rebalanced(home: Any, config: Config, count: int) -> None:
    """As the supervisor lets it be done."""
    there, wanted = layout.known(config.folder), list(range(count))
    layout.write(config.folder, layout.numbers(config.folder), sorted({*there, *wanted}))
    await moving.rebalance(config, there, wanted, clock=home.clock)
    layout.write(config.folder, wanted)


def stores(config: Config) -> dict[int, dict[str, dict[bytes, bytes]]]:
    return {number: contents(layout.folder_of(config.folder, number)) for number in layout.numbers(config.folder)}


def recipients(rows: dict[str, dict[bytes, bytes]]) -> dict[bytes, Note]:
    """By key, without the number of a record of their own journal."""
    return {key: Note.of(value)._replace(seq=0) for name in WAITING for key, value in rows[name].items()}


def joined(config: Config) -> dict[str, Any]:
    """What there is in all queues together: each recipient once."""
    found: dict[str, Any] = {"recipients": {}, "messages": {}, "sizes": Counter(), "in-doubt": {}}
    found |= {"campaigns": {}, "suppressed": {}, "state": Counter(), "at": set()}
    for rows in stores(config).values():
        mine = recipients(rows)
        assert not mine.keys() & found["recipients"].keys()
        found["recipients"] |= mine
        found["messages"] |= rows["message"]
        found["in-doubt"] |= rows["in-doubt"]
        found["at"] |= rows["at"].keys()
        found["suppressed"] |= rows["suppressed"] | rows["suppressed-in"]
        for name in ("size", "size-flow"):
            for key, value in rows[name].items():
                found["sizes"] += Counter({(key, place): n for place, n in enumerate(packing.unpack(value))})
        for key, value in rows["campaign"].items():
            if key.endswith(b" #"):
                figures = found["campaigns"].setdefault(key, [0] * 15)
                for place, n in enumerate(packing.unpack(value)):
                    figures[place] += n if place not in (8, 9) else 0
        state = packing.unpack(rows["state"][keys.STATE])
        found["state"] += Counter({"messages": state[2], "bytes": state[3]})
    return found


async def sound(home: Any, config: Config) -> None:
    for number in layout.numbers(config.folder):
        report = await offline.check(layout.config_of(config, number), clock=home.clock)
        assert [one for one in report.problems if one.severity != "harmless"] == []


def test_every_family_has_a_row() -> None:
    """What becomes of it, when there are more queues or fewer."""
    assert [one.family for one in moving.FAMILIES if not (one.more and one.fewer)] == []
    assert sorted(one.family for one in moving.FAMILIES) == sorted(one.name for one in families.FAMILIES)


async def test_more_queues_and_fewer(house: Make) -> None:
    """1, 3, 2, 1: all that there was is there, once."""
    home = await lived(house)
    config = await stopped(home)
    before = joined(config)
    for count in (3, 2, 1):
        await rebalanced(home, config, count)
        assert layout.numbers(config.folder) == list(range(count))
        after = joined(config)
        for name, value in before.items():
            assert after[name] == value, (count, name)
        await sound(home, config)
    assert len(layout.gone(config.folder)) == 2
    assert not [key for key in contents(config.folder)["taken"] if b" - " not in key]
