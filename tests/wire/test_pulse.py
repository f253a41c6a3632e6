"""Leases have a deadline: a sender that stands still loses them, one that is only busy keeps them."""

import asyncio
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from zonemta_py.mail.envelope import Envelope, Recipient
from zonemta_py.mail.reply import Reply
from zonemta_py.queue.api import DELIVERED, Outcome, Result
from zonemta_py.wire.client import RemoteQueue
from zonemta_py.wire.pulse import sibling

BODY = b"Subject: hello\r\n\r\nHi\r\n"
LEASE_S = 1.5


def mail(name: str) -> Envelope:
    return Envelope("", [Recipient(f"{name}@x.test")], len(BODY))


def delivered(lease: int) -> Result:
    return Result(lease, [Outcome(DELIVERED, Reply(250, "2.0.0", "ok"), "dot", [0])])


@pytest.fixture
async def short(service: Any) -> Any:
    """A queue whose senders lose their leases soon."""
    await service.stop()
    queue = service.config.queue.model_copy(update={"lease_s": LEASE_S})
    service.config = service.config.model_copy(update={"queue": queue})
    await service.start()
    return service


async def sender(service: Any, name: str) -> RemoteQueue:
    remote = await RemoteQueue.connect(service.folder, name, lease_s=LEASE_S)
    service.remotes.append(remote)
    return remote


async def test_who_stands_still_loses_his_leases(short: Any) -> None:
    """Listed as in doubt, and another sender's at once. What he then says of one that nobody has begun, holds."""
    first = await sender(short, "first")
    for name in "abc":
        await short.queue.accept(mail(name), BODY)
    mine = [delivery for _ in range(3) for delivery in await first.lease(1)]
    assert first.pulse is not None
    first.pulse.stop()
    doubts: list[Any] = []
    async with asyncio.timeout(60):
        while len(doubts) < 3:
            await asyncio.sleep(0.05)
            doubts = await short.queue.ask("in-doubt")
    second = await sender(short, "second")
    (other,) = await asyncio.wait_for(second.lease(1), 60)
    late = [delivery for delivery in mine if delivery.id != other.id]
    await first.settle(delivered(late[0].lease))
    await first.settle(delivered(next(one.lease for one in mine if one.id == other.id)))  # begun by another: listed
    await second.settle(delivered(other.lease))
    (last,) = await asyncio.wait_for(second.lease(1), 60)
    assert last.id == late[1].id
    await second.settle(delivered(last.lease))
    assert (await short.queue.ask("size"))["total"]["messages"] == 0
    assert len(await short.queue.ask("in-doubt")) == 3


async def test_nobody_is_his_own_sibling() -> None:
    """Siblings that are stuck are killed: a queue whose client lives in its own process, as here, would kill itself."""
    own, other = socket.socketpair()
    with other:
        transport, _ = await asyncio.get_running_loop().create_connection(asyncio.Protocol, sock=own)
        assert sibling(transport) == 0
        transport.close()


async def test_who_is_busy_keeps_them(short: Any) -> None:
    """His loop stands for longer than the deadline, his pulse goes on."""
    await short.queue.accept(mail("a"), BODY)
    code = f"""
import asyncio, sys, time
from pathlib import Path
from zonemta_py.wire.client import RemoteQueue
from zonemta_py.mail.reply import Reply
from zonemta_py.queue.api import DELIVERED, Outcome, Result
async def main():
    queue = await RemoteQueue.connect(Path(sys.argv[1]), "busy", lease_s={LEASE_S})
    (one,) = await queue.lease(1)
    print("leased", flush=True)
    time.sleep({3 * LEASE_S})
    await queue.settle(Result(one.lease, [Outcome(DELIVERED, Reply(250, "2.0.0", "ok"), "dot", [0])]))
asyncio.run(main())
"""
    process = await asyncio.create_subprocess_exec(sys.executable, "-c", code, str(short.folder))
    assert await asyncio.wait_for(process.wait(), 60) == 0
    assert (await short.queue.ask("size"))["total"]["messages"] == 0
    assert await short.queue.ask("in-doubt") == []


async def test_who_was_stopped_gives_back_what_he_got_meanwhile(short: Any) -> None:
    """A real process under SIGSTOP, while it waits for a lease: it begins nothing that others have."""
    code = f"""
import asyncio, sys
from pathlib import Path
from zonemta_py.wire.client import RemoteQueue
async def main():
    queue = await RemoteQueue.connect(Path(sys.argv[1]), "stopped", lease_s={LEASE_S})
    print("ready", flush=True)
    print(len(await queue.lease(1)), flush=True)
asyncio.run(main())
"""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", code, str(short.folder), stdout=subprocess.PIPE
    )
    assert process.stdout is not None
    assert await process.stdout.readline() == b"ready\n"
    while not short.queue.leases._takers:  # noqa: ASYNC110 (nobody says when)
        await asyncio.sleep(0.02)
    os.kill(process.pid, signal.SIGSTOP)
    await short.queue.accept(mail("a"), BODY)
    until = time.monotonic() + 60
    while not await short.queue.ask("in-doubt") and time.monotonic() < until:  # noqa: ASYNC110 (nobody says when)
        await asyncio.sleep(0.05)
    other = await sender(short, "other")
    (one,) = await asyncio.wait_for(other.lease(1), 60)
    os.kill(process.pid, signal.SIGCONT)
    assert await asyncio.wait_for(process.stdout.readline(), 60) == b"0\n"
    await other.settle(delivered(one.lease))
    await asyncio.wait_for(process.wait(), 60)
    assert (await short.queue.ask("size"))["total"]["messages"] == 0


def test_a_reserve_cannot_be_configured_away(tmp_path: Path) -> None:
    """`config check` says so."""
    file = tmp_path / "zonemta.toml"
    file.write_text(f'[server]\nfolder = "{tmp_path}/queue"\n[queue]\nreserve_bytes = 0\n')
    ran = subprocess.run(
        [sys.executable, "-m", "zonemta_py", "config", "check", str(file)], capture_output=True, text=True, check=False
    )
    assert "queue.reserve_bytes is 0" in ran.stdout + ran.stderr
    assert "16,777,216 are kept free" in ran.stdout + ran.stderr
