"""What every sink at a message broker must do, tried with the real server: one suite, a class for each kind."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import pytest
import trustme
from brokers.servers import PASSWORD, USER, WEAK_USER, Server
from ports import free_port

from zonemta_py.config.services.events import EventSink
from zonemta_py.events.sinks.base import Ready, SinkClient, SinkDown

SOURCE = "urn:zonemta:test"
EVERYTHING_S = 120.0


class Came(NamedTuple):
    """An event as a consumer of the broker sees it. where: routing key, subject or stream."""

    where: str
    id: str
    body: bytes


def event(seq: int, message: int = 1, type: str = "delivered", zone: str = "default") -> Ready:
    subject = f"message{message}"
    cloud = {"specversion": "1.0", "id": f"queue-{seq}-0", "type": f"zonemta.{type}", "data": {"zone": zone}}
    return Ready(seq, 0, f"queue-{seq}-0", type, subject, 1_700_000_000_000 + seq, json.dumps(cloud).encode())


def certificate(folder: Path) -> tuple[Path, Path]:
    """(key and certificate of the server, certificate of the authority)."""
    authority = trustme.CA()
    file, trusted = folder / "server.pem", folder / "authority.pem"
    made = authority.issue_cert("127.0.0.1", "localhost")
    made.private_key_and_cert_chain_pem.write_to_path(str(file))
    authority.cert_pem.write_to_path(str(trusted))
    return file, trusted


class BrokerSuite:
    kind: ClassVar[str]
    server_class: ClassVar[type[Server]]
    sink_class: ClassVar[type[Any]]
    settings: ClassVar[dict[str, Any]] = {}

    @pytest.fixture(scope="class")
    @classmethod
    def server(cls, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
        if cls.server_class.missing():
            pytest.skip(cls.server_class.missing())
        folder = tmp_path_factory.mktemp(cls.kind)
        cls.certificate, cls.trusted = certificate(folder)
        server = cls.make(folder / "server")
        server.start()
        yield server
        server.end()

    certificate: ClassVar[Path]
    trusted: ClassVar[Path]

    @classmethod
    def make(cls, folder: Path) -> Server:
        return cls.server_class(folder, cls.certificate)

    @pytest.fixture(autouse=True)
    async def empty(self, server: Server) -> None:
        await self.clear(server)

    async def clear(self, server: Server) -> None:
        """Nothing of an earlier test is left, and what the sink needs is there."""
        raise NotImplementedError

    async def consumed(self, server: Server) -> list[Came]:
        """All that is there, oldest first."""
        raise NotImplementedError

    def sink(self, server: Server | None, **more: Any) -> SinkClient:
        keys = {"name": "broker", "kind": self.kind, "username": USER, "password": PASSWORD}
        return self.sink_class(
            EventSink(
                **{**keys, **({"url": server.url} if server else {}), "timeout_s": 60.0, **self.settings, **more}
            ),
            SOURCE,
        )

    @asynccontextmanager
    async def opened(self, server: Server, **more: Any) -> AsyncIterator[SinkClient]:
        sink = self.sink(server, **more)
        await sink.open()
        try:
            yield sink
        finally:
            await sink.close()

    async def down(self, sink: SinkClient, *batch: Ready) -> str:
        """What it says when it is opened and, if events are given, sends them; it must be down."""
        return await self._down(sink.open, lambda: sink.send(batch), sink.close)

    async def down_now(self, sink: SinkClient, *batch: Ready) -> str:
        """The same of one that is open."""
        return await self._down(lambda: sink.send(batch), sink.close)

    async def _down(self, *steps: Callable[[], Awaitable[None]]) -> str:
        said = ""
        try:
            for step in steps[:-1]:
                await step()
        except SinkDown as error:
            said = str(error)
        finally:
            await steps[-1]()
        assert said
        assert PASSWORD not in said
        assert "\n" not in said
        return said

    async def test_events_arrive_in_order_with_their_ids(self, server: Server) -> None:
        events = [event(seq, seq % 7) for seq in range(300)]
        async with self.opened(server) as sink:
            for start in range(0, 300, 100):
                await sink.send(events[start : start + 100])
        came = await self.consumed(server)
        assert [(one.id, one.body) for one in came] == [(one.id, one.body) for one in events]

    async def test_type_and_zone_choose_where_an_event_goes(self, server: Server) -> None:
        async with self.opened(server, **self.addressed("zonemta.{zone}.{type}")) as sink:
            await sink.send([event(1, type="bounced", zone="my.zone*"), event(2)])
        assert {one.where for one in await self.consumed(server)} == {
            "zonemta.my_zone_.bounced",
            "zonemta.default.delivered",
        }

    def addressed(self, template: str) -> dict[str, str]:
        raise NotImplementedError

    async def test_killed_in_the_middle_every_event_arrives_at_least_once(self, server: Server) -> None:
        """The server dies while batches are on the way, and is started again with what it had on disk."""
        events = [event(seq, seq % 5) for seq in range(2000)]
        sink = self.sink(server)
        killing = asyncio.create_task(self._kill_and_start(server, 0.15))
        failures = 0
        await sink.open()
        async with asyncio.timeout(EVERYTHING_S):
            for start in range(0, len(events), 50):
                while True:
                    try:
                        await sink.send(events[start : start + 50])
                        break
                    except SinkDown:
                        failures += 1
                        await sink.close()
                        await self._open_again(sink)
                if start == 500:
                    self._now.set()
                    await asyncio.sleep(0)
                await asyncio.sleep(0.005)
        await killing
        await sink.close()
        assert failures
        came = await self.consumed(server)
        lost = {one.id for one in events} - {one.id for one in came}
        assert not lost, sorted(lost, key=lambda name: int(name.split("-")[1]))
        assert_in_order(came)

    _now: asyncio.Event

    async def _kill_and_start(self, server: Server, pause_s: float) -> None:
        self._now = asyncio.Event()
        await self._now.wait()
        server.kill()
        await asyncio.sleep(pause_s)
        await asyncio.to_thread(server.start)

    async def _open_again(self, sink: SinkClient) -> None:
        while True:
            try:
                return await sink.open()
            except SinkDown:
                await sink.close()
                await asyncio.sleep(0.1)

    async def test_wrong_password(self, server: Server) -> None:
        assert "correct username and password" in await self.down(self.sink(server, password="wrong"))

    async def test_a_user_who_may_not_write(self, server: Server) -> None:
        await self.down(self.sink(server, username=WEAK_USER, timeout_s=5), event(1))
        assert await self.consumed(server) == []

    async def test_a_server_that_hangs_is_down_and_gets_everything_when_it_goes_on(self, server: Server) -> None:
        sink = self.sink(server, timeout_s=1.0)
        await self._open_again(sink)
        server.hang()
        try:
            assert "took too long" in await self.down_now(sink, event(1))
        finally:
            server.go_on()
        async with self.opened(server) as sink:
            await sink.send([event(1)])
        assert "queue-1-0" in {one.id for one in await self.consumed(server)}

    async def test_nobody_there(self, server: Server) -> None:
        here = f"{server.scheme}://127.0.0.1:{free_port()}"
        assert "cannot be reached" in await self.down(self.sink(server, url=here))

    async def test_tls(self, server: Server) -> None:
        async with self.opened(server, url=server.tls_url, ca_file=self.trusted) as sink:
            await sink.send([event(1)])
        assert [one.id for one in await self.consumed(server)] == ["queue-1-0"]

    async def test_a_certificate_of_nobody_we_trust(self, server: Server) -> None:
        assert "certificate" in (await self.down(self.sink(server, url=server.tls_url))).lower()


def assert_in_order(came: list[Came]) -> None:
    """Of each message, what came for the first time came in the order of the journal."""
    seen: set[str] = set()
    for one in came:
        seq = int(one.id.split("-")[1])
        if one.id not in seen:
            later = [other for other in seen if int(other.split("-")[1]) % 5 == seq % 5]
            assert all(int(other.split("-")[1]) < seq for other in later), one.id
            seen.add(one.id)
