"""A message that its sender dies of is not given to one sender after the other for ever."""

import asyncio
import os
import sys
from itertools import pairwise
from pathlib import Path
from time import process_time
from typing import Any

from zonemta_py.config import Config
from zonemta_py.delivery.message.merged import SLOW_S, Templates
from zonemta_py.mail.envelope import Envelope, Recipient
from zonemta_py.merge.source import TemplateSource, Text
from zonemta_py.queue.poison import RENDERING, Deaths, PoisonMessages, Remains, Subject, UnderWay, checksum
from zonemta_py.queue.recovery.start import open_queue
from zonemta_py.wire.server import serve

NAMES = ("plugin", "sender_headers")
NOBODY = Remains(0, 0, 0, "", "", "")
SENDER = """
import asyncio, os, signal, sys
from pathlib import Path
from zonemta_py.processes import roles
from zonemta_py.config import Config
from zonemta_py.merge.render import Compiled
from zonemta_py.plugin.host import Host

made = Compiled.pieces

def pieces(self, fields, recipient, campaign, date, **more):
    if fields["name"] == "deadly":
        os.kill(os.getpid(), signal.SIGKILL)
    return made(self, fields, recipient, campaign, date, **more)

Compiled.pieces = pieces
config = Config.model_validate({"server": {"folder": sys.argv[1]}, "zones": [
    {"name": "default", "host": "127.0.0.1", "port": int(sys.argv[2]), "allow_private": True, "tls": "none"}]})
asyncio.run(roles.deliver(config, Host.empty(), "sender-1", 0))
"""


async def held(queue: Any) -> int:
    return int((await queue.ask("size"))["total"]["held"])


async def test_who_has_killed_its_sender_twice_is_held_and_named(scripted: Any, tmp_path: Path, caplog: Any) -> None:
    """The others of its campaign, and ordinary mail, go out."""
    server = await scripted()
    zone = {"name": "default", "host": "127.0.0.1", "port": server.port, "tls": "none"}
    config = Config.model_validate(
        {"server": {"folder": tmp_path}, "queue": {"reserve_bytes": 0}, "zones": [zone], "learning": {"initial": 1}}
    )
    queue = await open_queue(config)
    wire = await serve(queue, tmp_path)
    source = TemplateSource("t", Text("s"), Text("a@b.example"), text=Text("{{ name }}"), prepared=True)
    await queue.ask(
        "campaign-put", name="c", template=source.pack(), bounds={}, sender="a@b.example", tenant="", zone="",
        priority=0, planned=0, life_h=24, notify="remote",
    )  # fmt: skip
    people = [Recipient(f"{name}@d.example", values=[name]) for name in ("ann", "deadly", "bob")]
    await queue.accept(Envelope("", people, columns=["name"], campaign="c", request="campaign c 1"), b"")
    await queue.accept(Envelope("x@y.example", [Recipient("plain@d.example")]), b"Subject: x\r\n\r\ny\r\n")
    deaths = 0
    try:
        for _ in range(6):
            sender = await asyncio.create_subprocess_exec(
                sys.executable, "-c", SENDER, str(tmp_path), str(server.port), stderr=asyncio.subprocess.DEVNULL
            )
            over = asyncio.ensure_future(sender.wait())
            while not over.done() and (len(server.bodies) < 3 or not await held(queue)):
                await asyncio.wait([over], timeout=0.1)
            deaths += over.done()
            if not over.done():
                sender.kill()
                await over
                break
        assert deaths == 2
        assert sorted({one["recipient"] for one in await queue.ask("in-doubt") if one["action"] == "hold"}) == [
            "deadly@d.example"
        ]
        assert "process sender-1 ended in the rendering of a template about message" in caplog.text
        assert "to deadly@d.example; it is not tried again" in caplog.text
        assert await held(queue) == 1
    finally:
        wire.close()
        queue.close()


def test_what_is_under_way_can_be_read_from_outside(tmp_path: Path) -> None:
    """As long as it is, by no other name; the call within a call, and then the outer one again."""
    mine, messages = UnderWay(), PoisonMessages(tmp_path)
    mine.open(tmp_path, "sender-1")
    outer = mine.begin("plugin", "sender_headers", Subject("message 1 to a@b.example", 7, "a@b.example"))
    assert messages.of("sender-1-23") == (7, checksum("a@b.example"), os.getpid(), *NAMES, "message 1 to a@b.example")
    inner = mine.begin("", RENDERING, Subject("", 8, "c@d.example"))
    assert (messages.of("sender-1-23") or NOBODY).lease == 8
    mine.end(inner)
    assert (messages.of("sender-1-23") or NOBODY).lease == 7
    mine.end(outer)
    assert messages.of("sender-1-23") is None
    assert messages.of("connection-1") is None


def test_deaths_are_counted_by_all_and_forgotten_by_all(tmp_path: Path) -> None:
    """What one process writes another knows; another configuration begins anew."""
    one, other = Deaths(tmp_path), Deaths(tmp_path)
    for _ in range(2):
        assert other.count(*NAMES, "message 1 to a@b") < 2
        one.add("sender-1", *NAMES, "message 1", ("a@b", "c@d"))
    assert [other.count(*NAMES, f"message 1 to {who}") for who in ("a@b", "c@d", "e@f")] == [2, 2, 0]
    assert (other.of_hook(*NAMES), other.of_hook("plugin", "queue_route")) == (2, 0)
    one.forget()
    assert (other.count(*NAMES, "message 1 to a@b"), other.of_hook(*NAMES)) == (0, 0)


def test_a_process_that_lives_has_not_died(tmp_path: Path) -> None:
    """One of its name follows while it ends what it has begun."""
    before, after = UnderWay(), UnderWay()
    before.open(tmp_path, "receiver-1")
    before.begin(*NAMES, Subject("mail"))
    after.open(tmp_path, "receiver-1")
    assert Deaths(tmp_path).rows() == []


async def test_a_slow_template_leaves_half_of_the_time_to_others() -> None:
    """Its messages are made one at a time, and others have their turn between them."""

    from zonemta_py.queue.api import Delivery, template_name

    loop = "{% for a in range(10000) %}{{ 'abc'|upper }}{% endfor %}"
    packed = TemplateSource("t", Text("s"), Text("a@b.example"), text=Text(loop), prepared=True).pack()

    class Dispatch:
        async def template(self, campaign: str) -> bytes:
            return packed

    def delivery(number: int) -> Delivery:
        return Delivery(
            number, "id", "default", "d.example", "a@b.example", [Recipient(f"r{number}@d.example")], 1, 0, None,
            columns=[], values=[[]], template=template_name(packed), campaign="c",
        )  # fmt: skip

    templates = Templates(Dispatch())  # type: ignore[arg-type]
    await templates.make(delivery(0))
    turns, made = 0, []

    async def other() -> None:
        nonlocal turns
        while True:
            await asyncio.sleep(0)
            turns += 1

    async def make(number: int) -> None:
        await templates.make(delivery(number))
        made.append(turns)

    beside, began = asyncio.ensure_future(other()), process_time()
    await asyncio.gather(*map(make, range(1, 11)))
    took = process_time() - began
    beside.cancel()
    assert took > 10 * SLOW_S
    assert len(made) == 10
    assert all(before + 2 < now for before, now in pairwise([0, *made])), "others have turns between any two of them"
