"""What `zonemta doctor` says of a cluster, with real servers and nodes that give signs of life."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

from nats_servers import ThreeServers

from zonemta_py.cli.service.cluster_health import CLOCK_S, clocks, findings
from zonemta_py.cli.service.diagnosis import Diagnosis, Level
from zonemta_py.cluster.nats import Nats, NatsError
from zonemta_py.cluster.nodes import NodeMembership
from zonemta_py.config import ClusterSection, Config

Connect = Callable[..., Any]


def config_of(section: ClusterSection, folder: Path, node: str = "a") -> Config:
    section = section.model_copy(update={"node": node})
    return Config.model_validate({"server": {"folder": folder, "hostname": "a.test"}, "cluster": section.model_dump()})


@asynccontextmanager
async def alive(nats: Nats, config: Config, ahead_s: float = 0.0) -> AsyncIterator[None]:
    """A node with a queue, as its agent tells of it."""
    members = NodeMembership(nats, config, config.folder)
    await members.join(1, [])

    async def beat() -> None:
        while True:
            with suppress(NatsError):  # a server that is killed may have led: as the agent does, it tries again
                await members.beat({"clock_ms": int((time.time() + ahead_s) * 1000)})
            await asyncio.sleep(0.5)

    beating = asyncio.create_task(beat())
    try:
        yield
    finally:
        beating.cancel()
        with suppress(asyncio.CancelledError):
            await beating


async def seen(config: Config) -> dict[str, Diagnosis]:
    found = {one.about: one for one in await findings(config)}
    assert all(one.remedy for one in found.values() if one.level in (Level.WARNING, Level.PROBLEM))
    return found


async def test_a_sound_cluster_is_not_complained_of(section: ClusterSection, connect: Connect, tmp_path: Path) -> None:
    config = config_of(section, tmp_path)
    found = await seen(config)
    assert {one.level for one in found.values()} == {Level.OK, Level.NOTE}, found
    assert found["cluster"].words == "no node has joined it yet"
    async with alive(await connect(), config):
        found = await seen(config)
    assert {one.level for about, one in found.items() if "LOG" not in about} <= {Level.OK, Level.NOTE}
    assert found["node a"].words == "its name is its own"
    assert "sync always" in found["NATS"].words


async def test_a_server_that_is_away_is_named(
    section: ClusterSection, servers: ThreeServers, connect: Connect, tmp_path: Path
) -> None:
    """It, and each stream that lacks its copy."""
    config = config_of(section, tmp_path)
    async with alive(await connect(), config):
        servers.all[2].kill()
        found = await seen(config)
        assert found[f"NATS {servers.all[2].url}"].level is Level.WARNING
        assert found[f"NATS {servers.all[0].url}"].level is Level.OK
        bucket = f"KV_zonemta-{section.name}-nodes"
        while bucket not in found or "nats3" not in found[bucket].words:  # until the others notice
            found = await seen(config)
        assert found[bucket].level in (Level.WARNING, Level.PROBLEM)


async def test_too_few_servers_are_a_problem(section: ClusterSection, tmp_path: Path) -> None:
    found = await seen(config_of(section.model_copy(update={"replicas": 5}), tmp_path))
    assert (found["NATS"].level, found["NATS"].remedy) == (Level.PROBLEM, "add servers to it, or lower that")


async def test_another_node_of_the_same_name_is_a_problem(
    section: ClusterSection, connect: Connect, tmp_path: Path
) -> None:
    async with alive(await connect(), config_of(section, tmp_path / "one")):
        found = await seen(config_of(section, tmp_path / "other"))
    assert found["node a"].level is Level.PROBLEM
    assert "another machine, or has another folder" in found["node a"].words


async def test_a_clock_that_is_wrong_is_named(section: ClusterSection, connect: Connect, tmp_path: Path) -> None:
    config = config_of(section, tmp_path)
    async with alive(await connect(), config, ahead_s=30):
        found = await seen(config)
    assert (found["clocks"].level, "a 30." in found["clocks"].words or "a 29." in found["clocks"].words) == (
        Level.WARNING,
        True,
    )


def test_clocks() -> None:
    assert clocks({"a": [None], "b": []}) == []
    assert clocks({"a": [None, -0.2, -0.01], "b": [0.1]})[0].level is Level.OK
    (found,) = clocks({"a": [-0.1], "b": [None, -2 * CLOCK_S], "c": [9.0, 9.1]})
    assert "b 2.0 s behind, c 9.1 s ahead" in found.words


async def test_where_no_server_runs_that_is_all(tmp_path: Path, servers: ThreeServers, section: ClusterSection) -> None:
    for server in servers.all:
        server.kill()
    found = await seen(config_of(section, tmp_path))
    assert found["NATS"].level is Level.PROBLEM
    assert sum(one.level is Level.WARNING for one in found.values()) == 3
