"""A sender whose queue dies while it delivers."""

import asyncio
import sys
from pathlib import Path
from typing import Any

from zonemta_py.config import Config
from zonemta_py.mail.envelope import Envelope, Recipient
from zonemta_py.queue.recovery.start import open_queue
from zonemta_py.wire.server import serve

SENDER = """
import asyncio, contextlib, sys
from zonemta_py.processes import roles
from zonemta_py.config import Config
from zonemta_py.delivery import worker
from zonemta_py.plugin.host import Host

deliver = worker.deliver

async def slowly(means, delivery):
    done = await deliver(means, delivery)
    means.dispatch._protocol._transport.abort()
    for _ in range(3):  # a wait that was over at the moment at which it is cancelled hides that it was
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.sleep(0.1)
    return done

worker.deliver = slowly
config = Config.model_validate({"server": {"folder": sys.argv[1]}, "zones": [
    {"name": "default", "host": "127.0.0.1", "port": int(sys.argv[2]), "allow_private": True, "tls": "none"}]})
asyncio.run(roles.deliver(config, Host.empty(), "sender-1", 0))
"""


async def test_a_result_that_nobody_takes_any_more_is_no_bug(scripted: Any, tmp_path: Path) -> None:
    """The sender says in one line that the queue is gone, and ends."""
    server = await scripted()
    zone = {"name": "default", "host": "127.0.0.1", "port": server.port, "tls": "none"}
    config = Config.model_validate({"server": {"folder": tmp_path}, "queue": {"reserve_bytes": 0}, "zones": [zone]})
    queue = await open_queue(config)
    wire = await serve(queue, tmp_path)
    try:
        await queue.accept(Envelope("x@y.example", [Recipient("plain@d.example")]), b"Subject: x\r\n\r\ny\r\n")
        sender = await asyncio.create_subprocess_exec(
            sys.executable, "-c", SENDER, str(tmp_path), str(server.port), stderr=asyncio.subprocess.PIPE
        )
        _, said = await asyncio.wait_for(sender.communicate(), 60)
        assert len(server.bodies) == 1
        assert sender.returncode == 0
        assert said.decode().splitlines() == [
            "the queue is gone (451 4.3.0 the queue is restarting; try again in a moment), stopping"
        ]
    finally:
        wire.close()
        queue.close()
