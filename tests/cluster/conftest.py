"""Three real NATS servers on loopback, that sync always."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "scripts"))
sys.path.insert(0, str(Path(__file__).resolve().parent))

from nats_servers import ThreeServers, program

from zonemta_py.cluster.nats import Nats
from zonemta_py.config import ClusterSection

_names = iter(range(1_000_000))


@pytest.fixture(scope="module")
def running_servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ThreeServers]:
    if not program():
        pytest.skip("nats-server is not installed; run scripts/prepare --dev")
    three = ThreeServers(tmp_path_factory.mktemp("nats"))
    three.start()
    yield three
    three.end()


@pytest.fixture
def servers(running_servers: ThreeServers) -> Iterator[ThreeServers]:
    """All of them run when a test begins; it may kill and stop them."""
    running_servers.start()
    running_servers.ready()
    yield running_servers
    for server in running_servers.all:
        if server.process is not None:
            server.go_on()


@pytest.fixture
def section(servers: ThreeServers) -> ClusterSection:
    """A cluster of its own for each test."""
    return ClusterSection.model_validate(servers.settings(name=f"t{next(_names)}"))


@pytest.fixture
async def connect(section: ClusterSection) -> AsyncIterator[Callable[..., Awaitable[Nats]]]:
    """Makes a connection, which is closed at the end."""
    made = list[Nats]()

    async def one(name: str = "test", **more: Any) -> Nats:
        made.append(await Nats.connect(section, name, **more))
        return made[-1]

    yield one
    await asyncio.gather(*(nats.close() for nats in made))


@pytest.fixture
async def nats(connect: Callable[..., Awaitable[Nats]]) -> Nats:
    return await connect()
