"""The election, over real servers."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable

import pytest
from nats_servers import ThreeServers

from zonemta_py.cluster.leader import Leadership
from zonemta_py.cluster.nats import Nats
from zonemta_py.config import ClusterSection, Config

PATIENCE_S = 60.0


class Candidate:
    def __init__(self, nats: Nats, section: ClusterSection, name: str) -> None:
        config = Config(cluster=section.model_copy(update={"node": name}))
        self.name, self.nats, self.heard = name, nats, list[str]()
        self.leadership = Leadership(nats, config, "1f")  # as of copies of one folder
        self.leadership.begins = lambda term: self.heard.append(f"begins {term}")
        self.leadership.ends = lambda: self.heard.append("ends")
        self.task = asyncio.create_task(self.leadership.run())

    @property
    def leads(self) -> bool:
        return self.leadership.until > time.monotonic()

    async def stop(self) -> None:
        self.task.cancel()
        await asyncio.wait({self.task})


@pytest.fixture
async def three(connect: Callable[..., Awaitable[Nats]], section: ClusterSection) -> AsyncIterator[list[Candidate]]:
    made = [Candidate(await connect(), section, name) for name in "abc"]
    yield made
    await asyncio.gather(*(one.stop() for one in made))


async def until(holds: Callable[[], bool]) -> None:
    end = time.monotonic() + PATIENCE_S
    while not holds():
        assert time.monotonic() < end
        await asyncio.sleep(0.05)


async def leader(candidates: list[Candidate]) -> Candidate:
    """Of which there is one only, at any time."""
    end = time.monotonic() + PATIENCE_S
    while time.monotonic() < end:
        leading = [one for one in candidates if one.leads]
        assert len(leading) <= 1
        if leading:
            return leading[0]
        await asyncio.sleep(0.02)
    pytest.fail("nobody leads")


async def test_one_leads_and_all_know(three: list[Candidate]) -> None:
    first = await leader(three)
    assert first.heard == ["begins 1"]
    await until(lambda: {one.leadership.leader for one in three} == {first.name})
    assert first.leadership.term == 1


async def test_one_that_goes_in_order_is_followed(three: list[Candidate]) -> None:
    first = await leader(three)
    await first.stop()
    assert first.heard == ["begins 1", "ends"]
    second = await leader([one for one in three if one is not first])
    assert second.heard == ["begins 2"]


async def test_one_that_is_cut_off_ends_by_itself_and_is_followed(three: list[Candidate]) -> None:
    first = await leader(three)
    await first.nats.close()
    second = await leader([one for one in three if one is not first])
    assert first.heard == ["begins 1", "ends"]
    assert second.heard == ["begins 2"]


async def test_the_lead_survives_each_server(three: list[Candidate], servers: ThreeServers) -> None:
    await leader(three)
    for server in servers.all:
        server.kill()
        await asyncio.sleep(1)
        await leader(three)
        server.start()
    await leader(three)
