"""Connections with TLS: of both sides it is proved who they are, and no login goes to somebody else."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "events" / "sinks"))

from broker_suite import PASSWORD, USER, certificate
from brokers.servers import NatsServer

from zonemta_py.cluster.nats import Nats, NatsRefusal, NoQuorum
from zonemta_py.config import ClusterSection, ConfigError

LOGIN = {"name": "trial", "username": USER, "password": PASSWORD, "system_username": "admin", "replicas": 1}


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    return certificate(tmp_path_factory.mktemp("keys"))


@pytest.fixture(scope="module")
def secured(files: tuple[Path, Path], tmp_path_factory: pytest.TempPathFactory) -> Iterator[NatsServer]:
    if NatsServer.missing():
        pytest.skip(NatsServer.missing())
    server = NatsServer(tmp_path_factory.mktemp("secured"), *files)
    server.start()
    yield server
    server.end()


def section(server: NatsServer, **more: object) -> ClusterSection:
    return ClusterSection.model_validate({**LOGIN, "servers": [server.tls_url], **more})


async def test_it_connects(secured: NatsServer, files: tuple[Path, Path]) -> None:
    nats = await Nats.connect(section(secured, ca_file=files[1], client_certificate=files[0]), "test")
    await nats.make_stream("one", "one.log")
    assert await nats.append("one.log", b"x", 0) == 1
    await nats.close()


async def test_a_certificate_of_nobody_that_is_trusted(secured: NatsServer, files: tuple[Path, Path]) -> None:
    with pytest.raises(NoQuorum, match=r"(?i)certificate"):
        await Nats.connect(section(secured, client_certificate=files[0]), "test", 2)
    with pytest.raises(NoQuorum):
        await Nats.connect(section(secured, ca_file=files[1]), "test", 2)


async def test_a_login_does_not_go_to_a_server_without_tls() -> None:
    heard = b""

    async def listen(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal heard
        writer.write(b'INFO {"server_id":"x","version":"2.15.1","max_payload":1048576,"auth_required":true}\r\n')
        while data := await reader.read(4096):
            heard += data
        writer.close()

    server = await asyncio.start_server(listen, "127.0.0.1", 0)
    url = f"tls://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    for login in ({}, {"username": ""}):
        wanted = ClusterSection.model_validate({**LOGIN, "servers": [url], **login})
        with pytest.raises(NatsRefusal, match="it offers no TLS"):
            await Nats.connect(wanted, "test", 5)
    assert PASSWORD.encode() not in heard
    server.close()


async def test_files_that_are_none(secured: NatsServer, tmp_path: Path) -> None:
    for key in ("ca_file", "client_certificate"):
        (tmp_path / "none.pem").write_text("nothing")
        with pytest.raises(ConfigError, match=rf"cluster\.{key}: .*none\.pem cannot be used"):
            await Nats.connect(section(secured, **{key: tmp_path / "none.pem"}), "test")
