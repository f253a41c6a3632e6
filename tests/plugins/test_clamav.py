"""The bundled plugin clamav with Debian's clamd and a signature of our own, in the real MTA; and with servers that are
down, slow and wrong."""

from __future__ import annotations

import asyncio
import base64
import time
import tomllib
from typing import Any

import pytest
from programs import VIRUS, Server, answering

from zonemta_py.config import Config, Plugins
from zonemta_py.mail.envelope import Envelope, Recipient
from zonemta_py.mail.headers import Headers
from zonemta_py.plugin import Delivery
from zonemta_py.plugin.host import Host, PluginError
from zonemta_py.plugin.testing import received
from zonemta_py.plugin.verdicts import Drop, Hold, PluginFailed, Reject

HEAD = b"From: A <ann@a.test>\r\nSubject: x\r\n"
INFECTED = HEAD + b"\r\n" + VIRUS + b"\r\n"
CODED = HEAD + b"Content-Type: application/x-a\r\nContent-Transfer-Encoding: base64\r\n\r\n"
CODED += base64.encodebytes(b"x" * 1000 + VIRUS).replace(b"\n", b"\r\n")
LONG = HEAD + b"\r\n" + (b"x" * 70 + b"\r\n") * 8_000 + VIRUS + b"\r\n"
CLEAN = HEAD + b"\r\ntext\r\n"


def load(**more: Any) -> Host:
    given = {"socket": "tcp:127.0.0.1:9", "timeout_s": 29} | more
    return Host.load(Plugins(enabled=["clamav"], options={"clamav": given}, timeout_s=30))


@pytest.mark.parametrize("message", [INFECTED, CODED, LONG], ids=["plain", "coded", "long"])
@pytest.mark.parametrize("way", ["tcp", "unix"])
async def test_what_is_infected(clamd: Server, message: bytes, way: str) -> None:
    """By either socket, encoded or not, however long."""
    where = f"tcp:127.0.0.1:{clamd.where}" if way == "tcp" else f"unix:{clamd.log.parent}/socket"
    host = load(socket=where)
    with pytest.raises(Reject) as caught:
        await received(host, message)
    assert str(caught.value.reply).startswith("554 5.7.1 This message is infected with Test.Own")
    clean = message.replace(VIRUS, b"nothing") if message is not CODED else CLEAN
    assert await received(host, clean) == clean
    with pytest.raises(Drop):
        await received(load(socket=where, action="drop"), message)


async def test_too_large(clamd: Server) -> None:
    """For us; or for clamd, which is a failure then."""
    where = f"tcp:127.0.0.1:{clamd.where}"
    for size in (1_000, 300_000):
        assert await received(load(socket=where, bytes_max=size), LONG) == LONG
        with pytest.raises(Reject, match=f"up to {size} bytes"):
            await received(load(socket=where, bytes_max=size, too_large="reject"), LONG)
    huge = HEAD + b"\r\n" + bytes(4_000_000)
    with pytest.raises(PluginFailed):
        await received(load(socket=where), huge)


def test_held_until_it_is_released(clamd: Server, start_mta: Any) -> None:
    running = start_mta(
        f"[plugins]\nenabled = ['clamav']\ntimeout_s = 30\n[plugins.options.clamav]\naction = 'hold'\n"
        f"socket = 'tcp:127.0.0.1:{clamd.where}'\ntimeout_s = 20\n"
    )
    assert running.send(CLEAN, "bob@one.test").startswith("250")
    assert running.send(INFECTED, "carl@one.test").startswith("250")
    running.came("bob@one.test")
    end = time.monotonic() + 60
    while not running.mta.ask("size")["total"]["held"]:
        assert time.monotonic() < end, running.mta.log_tail()
        time.sleep(0.05)
    assert "infected with Test.Own" in running.zonemta("explain", "carl@one.test")
    running.zonemta("queue", "release", "--all", "--yes")
    assert VIRUS in running.came("carl@one.test").body


async def test_down_and_there_again(clamd: Server) -> None:
    where = f"tcp:127.0.0.1:{clamd.where}"
    closed, opened = (load(socket=where, failing=how) for how in ("closed", "open"))
    clamd.stop()
    with pytest.raises(PluginFailed) as caught:
        await received(closed, CLEAN)
    assert "start it, or correct socket" in caught.value.problem
    assert await received(opened, INFECTED) == INFECTED
    assert {"plugin": "clamav", "counter": "passed_unscanned", "value": 1} in opened.statistics()
    clamd.start()
    for host in (closed, opened):
        with pytest.raises(Reject):
            await received(host, INFECTED)


@pytest.mark.parametrize("message", [INFECTED, LONG * 8], ids=["short", "long"])
async def test_clamd_stands_still(clamd: Server, message: bytes) -> None:
    where = f"tcp:127.0.0.1:{clamd.where}"
    with clamd.frozen():
        with pytest.raises(PluginFailed, match="does not answer within"):
            await received(load(socket=where, timeout_s=0.5), message)
        opened = load(socket=where, failing="open", timeout_s=0.5)
        assert await received(opened, message) == message
    with pytest.raises(Reject):
        await received(load(socket=where, failing="open"), INFECTED)


WRONG = {
    "error": b"INSTREAM size limit exceeded. ERROR\0",
    "another protocol": b"220 smtp\r\n",
    "nothing": b"",
    "endless": b"x" * 100_000,
    "empty": b"\0",
    "nearly": b"stream:  FOUND\0",
}


@pytest.mark.parametrize("what", [*WRONG, "never"])
@pytest.mark.parametrize("message", [CLEAN, LONG], ids=["short", "long"])
async def test_wrong_and_slow(what: str, message: bytes) -> None:
    slow = {"timeout_s": 0.3} if what == "never" else {}
    async with answering(WRONG.get(what, b""), asked=b"zINSTREAM\0", stays=bool(slow)) as port:
        where = f"tcp:127.0.0.1:{port}"
        with pytest.raises(PluginFailed) as caught:
            await received(load(socket=where, **slow), message)
        assert f"clamd at {where}: " in caught.value.problem
        assert await received(load(socket=where, failing="open", **slow), message) == message


async def test_more_messages_than_connections(clamd: Server) -> None:
    """They wait for each other, and none is forgotten, though one has failed meanwhile."""
    host = load(socket=f"tcp:127.0.0.1:{clamd.where}", connections=1)
    results = await asyncio.gather(*(received(host, one) for one in [CLEAN, INFECTED] * 4), return_exceptions=True)
    assert [isinstance(one, Reject) for one in results] == [False, True] * 4


async def test_an_attempt_after_the_first_is_one_after_the_release() -> None:
    delivery = Delivery(1, "m", "default", "b.test", "ann@a.test", [Recipient("b@b.test")], 9, 1, attempts=[0])
    delivery.notes = {"clamav": "Test.Own"}
    with pytest.raises(Hold):
        await load().call("sender_headers", delivery=delivery, headers=Headers())
    delivery.attempts = [1]
    await load().call("sender_headers", delivery=delivery, headers=Headers())


async def test_what_is_found_stays_with_the_message(clamd: Server) -> None:
    envelope = Envelope("ann@a.test", [])
    await received(load(socket=f"tcp:127.0.0.1:{clamd.where}", action="hold"), INFECTED, envelope)
    assert envelope.notes["clamav"].startswith("Test.Own")


def test_the_example_of_its_page() -> None:
    import plugins.clamav as page

    lines = (page.__doc__ or "").splitlines()
    document = tomllib.loads("\n".join(line[4:] for line in lines if line.startswith("    ")))
    Host.load(Config.model_validate(document).plugins)


def test_mistakes() -> None:
    with pytest.raises(PluginError, match="write unix:/path or tcp:host:port"):
        load(socket="/run/clamav/clamd.ctl")
    with pytest.raises(PluginError, match=r"must be below plugins.timeout_s, which is 30"):
        load(timeout_s=30)
