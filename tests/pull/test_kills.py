"""SIGKILL while clients push and pop; scripts/trials/pull trial does it at length."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
from pathlib import Path

import pytest
from named_queues import trial

from tests.pull.conftest import Server


def to_its_end(connection: socket.socket) -> None:
    while connection.recv(100_000):
        pass


async def test_three_kills_lose_nothing(tmp_path: Path) -> None:
    """Whatever is killed: what was acknowledged is popped, and only what was in flight comes twice."""
    figures = await trial.trial(tmp_path, messages=600, kills=3, seed=4, clients=8)
    assert figures["broken"] == []
    assert (figures["lost"], sum(figures["kills"].values())) == (0, 3)
    assert figures["taken"] >= figures["pushed"] >= 500
    assert figures["repeated"] <= 3 * 8


def test_a_killed_server_never_looks_like_a_yes(server: Server) -> None:
    """The kernel ends its connections in the middle of a push and of a pop; the clients see a reset."""
    server.say(b"push big\n" + b"z" * 8_000_000)
    pushing, popping = server.connect(), server.connect()
    with pushing, popping:
        pushing.sendall(b"push half\nall of it has come")
        popping.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        popping.sendall(b"pop big\n")
        assert popping.recv(10)
        (pid,) = [pid for pid, role in server.mta.children().items() if role == "pull"]
        os.kill(pid, signal.SIGKILL)
        for connection in (pushing, popping):
            with pytest.raises(ConnectionResetError):
                to_its_end(connection)
    assert len(server.say(b"pop big wait=60\n")) == 8_000_000
    assert server.say(b"size half\n") == b"0 ready 0 leased 0 delayed 0 held\n"


def test_a_reservation_outlives_its_connection_and_the_process(server: Server) -> None:
    server.say(b"push kept\nD")
    receipt = server.say(b"reserve kept 60\n").split(b" ")[0]
    (pid,) = [pid for pid, role in server.mta.children().items() if role == "pull"]
    os.kill(pid, signal.SIGKILL)
    assert server.say(b"size kept\n") == b"0 ready 1 leased 0 delayed 0 held\n"
    assert server.say(b"ack " + receipt + b"\n") == b""


def test_the_queues_restart_ends_reservations_and_waiting_goes_on(server: Server) -> None:
    server.say(b"push back\nE")
    receipt = server.say(b"reserve back 60\n").split(b" ")[0]
    with server.connect() as waiting:
        waiting.sendall(b"pop elsewhere wait=60\n")
        assert server.mta.kill("queue")
        assert server.say(b"pop back wait=60\n") == b"E"
        assert "is not reserved any more" in server.refused(b"ack " + receipt + b"\n")
        server.say(b"push elsewhere\nF")
        assert waiting.recv(10) == b"F"


async def test_an_orderly_stop_ends_what_has_begun(tmp_path: Path) -> None:
    """SIGTERM: a push under way is stored, and said to be; who waits is told to come again by a reset."""
    server = await asyncio.to_thread(Server, tmp_path)
    try:
        with server.connect() as pushing, server.connect() as waiting:
            pushing.sendall(b"push last id\nbegun")
            waiting.sendall(b"pop nothing wait=60\n")
            await asyncio.to_thread(server.say, b"size last\n")  # both have been read
            server.mta.stop()
            await asyncio.sleep(0.3)
            pushing.shutdown(socket.SHUT_WR)
            assert len(await asyncio.to_thread(pushing.recv, 100)) == 17
            with pytest.raises(ConnectionResetError):
                waiting.recv(10)
        server.mta.end()
        server.mta.start()
        await server.mta.taking()
        assert await asyncio.to_thread(server.say, b"pop last\n") == b"begun"
    finally:
        server.end()
