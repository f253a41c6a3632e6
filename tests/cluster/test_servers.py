"""Servers that would lose what they have acknowledged, or are too few, are refused with what to change."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "events" / "sinks"))

from broker_suite import certificate
from nats_servers import SYSTEM_PASSWORD, ThreeServers, program

from zonemta_py.cluster import servers as checked
from zonemta_py.cluster.nats import Nats, NatsRefusal
from zonemta_py.config import ClusterSection, Config

BY_MONITOR = {"system_username": "", "system_password": ""}


@pytest.fixture(scope="module")
def lazy_servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ThreeServers]:
    """At the default, but for the first."""
    if not program():
        pytest.skip("nats-server is not installed; run scripts/prepare --dev")
    three = ThreeServers(tmp_path_factory.mktemp("lazy"), sync="")
    three.all[0].sync = "always"
    three.start()
    yield three
    three.end()


async def check(section: ClusterSection) -> None:
    nats = await Nats.connect(section, "test")
    try:
        await checked.check(nats, Config(cluster=section))
    finally:
        await nats.close()


def section_of(three: ThreeServers, way: str, **more: object) -> ClusterSection:
    by_monitor = {**BY_MONITOR, "monitor": [one.monitor for one in three.all]} if way == "monitor" else {}
    return ClusterSection.model_validate(three.settings(**by_monitor, **more))


@pytest.mark.parametrize("way", ["system", "monitor"])
async def test_they_sync_always(servers: ThreeServers, way: str) -> None:
    await check(section_of(servers, way))


@pytest.mark.parametrize("way", ["system", "monitor"])
async def test_two_of_them_do_not(lazy_servers: ThreeServers, way: str) -> None:
    with pytest.raises(NatsRefusal) as caught:
        await check(section_of(lazy_servers, way))
    assert sorted(str(caught.value).splitlines()) == [
        f"NATS server {name} does not sync always, so that what it has acknowledged may be lost; write `jetstream"
        " { sync_interval: always }` in its configuration, and start it again"
        for name in ("nats2", "nats3")
    ]


@pytest.mark.parametrize("way", ["system", "monitor"])
async def test_they_are_too_few(servers: ThreeServers, way: str) -> None:
    with pytest.raises(
        NatsRefusal, match=r"^cluster\.replicas is 5, and NATS has 3 servers with JetStream \(nats1, na"
    ):
        await check(section_of(servers, way, replicas=5))


@pytest.mark.parametrize("way", ["system", "monitor"])
async def test_one_that_is_away_is_warned_of(servers: ThreeServers, way: str, caplog: pytest.LogCaptureFixture) -> None:
    servers.all[1].kill()
    await check(section_of(servers, way))
    assert "NATS server nats2 does not answer, so it is not known whether it syncs always" in caplog.text


async def test_who_asks_is_not_of_the_system_account(servers: ThreeServers) -> None:
    section = section_of(servers, "system")
    section = section.model_copy(update={"system_username": section.username, "system_password": section.password})
    with pytest.raises(NatsRefusal, match=r"let cluster\.system_username be a user of their system account \(\$SYS\)"):
        await check(section)
    wrong = section_of(servers, "system").model_copy(update={"system_password": SYSTEM_PASSWORD[1:]})
    with pytest.raises(NatsRefusal, match=r"compare cluster\.system_username and system_password with it"):
        await check(wrong)


async def test_nobody_is_at_a_monitoring_address(servers: ThreeServers, unused_tcp_port: int) -> None:
    section = section_of(servers, "monitor").model_copy(update={"monitor": [f"http://127.0.0.1:{unused_tcp_port}"]})
    with pytest.raises(
        NatsRefusal, match=r"does not tell how its server is set \(.*connection refused.*\); correct it"
    ):
        await check(section)


async def test_the_account_has_no_jetstream(servers: ThreeServers) -> None:
    section = section_of(servers, "system")
    section = section.model_copy(update={"username": "admin", "password": SYSTEM_PASSWORD})
    with pytest.raises(NatsRefusal, match="jetstream: enabled in that of the account"):
        await check(section)


def test_the_configuration_in_the_papers_is_one(tmp_path: Path, running_servers: ThreeServers) -> None:
    paper = (Path(__file__).parents[2] / "docs" / "OPERATING.md").read_text()
    (text,) = re.findall(r"^```text\n(server_name.*?)^```$", paper, re.MULTILINE | re.DOTALL)
    file, _ = certificate(tmp_path)
    text = re.sub(r"/etc/nats/\w+\.pem", str(file), text).replace("/var/lib/nats", str(tmp_path))
    (tmp_path / "nats.conf").write_text(text)
    ran = subprocess.run([program(), "-t", "-c", str(tmp_path / "nats.conf")], capture_output=True, text=True)
    assert ran.returncode == 0, ran.stderr


def test_a_single_server_is_as_many_as_one_replica(tmp_path: Path) -> None:
    alone = checked.parsed({"config": {"sync_always": True}}, "nats")
    assert checked.verdict([alone], 1) == ([], frozenset())
    (fault,) = checked.verdict([alone], 3)[0]
    assert fault == (
        "cluster.replicas is 3, and NATS has 1 server with JetStream (nats); add servers to it, or lower that"
    )


def test_one_without_jetstream_says_nothing() -> None:
    """It may pass messages on."""
    with_it = [checked.Server(name, True, True, 3, frozenset({"a", "b", "c"})) for name in "abc"]
    assert checked.verdict([*with_it, checked.parsed({"disabled": True}, "leaf")], 3) == ([], frozenset())
