"""Connections between messages: reused, bounded, ended politely, replaced when they died."""

from __future__ import annotations

from typing import Any

import pytest

from zonemta_py.delivery.smtp import connections as pool
from zonemta_py.delivery.smtp.connections import Connections
from zonemta_py.delivery.smtp.session import Route, SmtpSession, open_session
from zonemta_py.delivery.tls.contexts import TlsContexts
from zonemta_py.delivery.tls.plan import TlsPlan
from zonemta_py.queue.api import DELIVERED

CONTEXTS = TlsContexts()


async def opened(server: Any) -> SmtpSession:
    session = await open_session(Route("mx.test", "127.0.0.1", server.port, tls=TlsPlan("none")), CONTEXTS)
    session.sent = 1
    return session


async def test_reuse_up_to_the_zones_number(scripted: Any, letter: Any, deliver: Any, until: Any) -> None:
    """Seven messages at three a connection take three connections, one after the other."""
    server = await scripted()
    results = await deliver(*(letter(server.port) for _ in range(7)), messages_per_connection=3)
    assert {result.outcomes[0].verdict for result in results} == {DELIVERED}
    await until(lambda: server.commands.count("QUIT") == 2)
    assert server.connections == 3


async def test_destinations_and_sources_do_not_share(scripted: Any, letter: Any, deliver: Any) -> None:
    """A connection belongs to one zone, destination and source address."""
    server = await scripted()
    results = await deliver(
        letter(server.port), letter(server.port, destination="e.example"), letter(server.port, source="127.0.0.9")
    )
    assert server.connections == 3
    assert [result.local for result in results] == ["127.0.0.1", "127.0.0.1", "127.0.0.9"]
    assert results[0].remote == f"127.0.0.1[127.0.0.1]:{server.port}"


async def test_newest_first(scripted: Any) -> None:
    """The one used last is the least likely to be dead; keys do not mix."""
    server = await scripted()
    sessions, idle = [await opened(server) for _ in range(3)], Connections()
    for session, key in zip(sessions, ("a", "a", "b"), strict=True):
        idle.give(key, session, 10, 5)
    assert idle.take("c") is None
    assert [idle.take("a"), idle.take("a"), idle.take("a")] == [sessions[1], sessions[0], None]
    assert len(idle) == 1


async def test_idle_time_ends_with_quit(scripted: Any, until: Any) -> None:
    """After the idle time the server hears QUIT, and nobody gets the connection."""
    server = await scripted()
    idle, session = Connections(), await opened(server)
    idle.give("a", session, 10, 0.05)
    await until(lambda: not server.talking)
    assert len(idle) == 0
    assert server.commands[-1] == "QUIT"


async def test_server_closes_an_idle_connection(scripted: Any, until: Any) -> None:
    """A connection that its server has closed, or has said something on, is forgotten at once."""
    server = await scripted({"banner": b"220 hello\r\n", "ehlo": b"250 hello\r\n"})
    idle, session = Connections(), await opened(server)
    idle.give("a", session, 10, 600)
    session.dialogue.write(b"NOOP\r\n")  # makes the server say something that nobody waits for
    await until(lambda: len(idle) == 0)
    assert idle.take("a") is None


async def test_broken_and_used_up_are_not_kept(scripted: Any) -> None:
    """Only usable connections come back, and only up to their number of messages."""
    server = await scripted()
    idle, broken, used = Connections(), await opened(server), await opened(server)
    broken.dialogue.abort()
    idle.give("a", broken, 10, 5)
    used.sent = 10
    idle.give("a", used, 10, 5)
    assert len(idle) == 0
    assert not used.usable


async def test_the_pool_is_bounded(scripted: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """When it is full the oldest goes."""
    monkeypatch.setattr(pool, "IDLE_MAX", 2)
    server = await scripted()
    idle, sessions = Connections(), [await opened(server) for _ in range(3)]
    for session in sessions:
        idle.give("a", session, 10, 5)
    assert len(idle) == 2
    assert [session.usable for session in sessions] == [False, True, True]
