"""A campaign through the whole real MTA: template in, everybody's own message out, over a killed queue and sender. Its
report is asked for by itself when it has ended."""

from __future__ import annotations

import asyncio
import email
import email.policy
import os
import signal
import time
from pathlib import Path
from typing import Any

from survival.rig import TOP, Mta

from zonemta_py.mail.envelope import Envelope, Recipient
from zonemta_py.merge.compile import prepare
from zonemta_py.merge.source import TemplateSource, Text
from zonemta_py.queue.api import QueueRefusal
from zonemta_py.sink import Sink, SinkOptions
from zonemta_py.wire.client import RemoteQueue

BATCHES, PEOPLE = 6, 100
PATIENCE_S = 60
TEMPLATE = prepare(
    TemplateSource(
        "spring", Text("For {{ name }}"), Text("News <news@src.test>"),
        html=Text("<p>Dear {{ name }},</p><p>welcome to {{ city }}.</p>"),
    )
).pack()  # fmt: skip


async def put(queue: RemoteQueue, number: int) -> None:
    """A batch; as often as it takes."""
    people = [
        Recipient(f"r{number}-{one}@x{one % 5}.test", values=[f"N{number}-{one}", "Ulm"]) for one in range(PEOPLE)
    ]
    asked = {"request": f"campaign spring {number}", "digest": bytes([number]) * 32}
    while True:
        try:
            await queue.accept(Envelope("", people, columns=["name", "city"], campaign="spring", **asked), b"")
        except QueueRefusal:
            await asyncio.sleep(0.05)
        else:
            return


async def ended(queue: RemoteQueue) -> dict[str, Any]:
    async with asyncio.timeout(PATIENCE_S):
        while True:
            try:
                row: dict[str, Any] = await queue.ask("campaign", name="spring")
            except QueueRefusal:  # it starts again
                row = {"state": ""}
            if row["state"] == "ended":
                return row
            await asyncio.sleep(0.05)


async def test_everybody_gets_his_own_and_the_tally_is_exact(tmp_path: Path) -> None:
    """With queue and sender killed on the way: nobody is left out, twice at most whose reply was awaited just then."""
    async with Sink(SinkOptions(listen=("127.0.0.1:0",), keep=True, dot_latency_s=0.02)) as sink:
        mta = Mta(
            tmp_path / "queue", sink.port, home=tmp_path, more='[reports]\nfolder = "pages"',
            environment=no_spark(tmp_path),
        )  # fmt: skip
        mta.start()
        try:
            await mta.accepting()
            queue = await RemoteQueue.connect(tmp_path / "queue", "test", reconnect=True)
            await queue.ask("campaign-put", name="spring", sender="news@src.test", template=TEMPLATE)
            for number in range(BATCHES):
                await put(queue, number)
                if number == 1:
                    mta.kill("sender")
                if number == 3:
                    await asyncio.sleep(0.2)
                    mta.kill("queue")
            await complete(queue)
            row = await ended(queue)
            await asyncio.to_thread(asked_for, mta)
            doubtful = set(mta.in_doubt())
        finally:
            mta.end()
        came: dict[str, list[bytes]] = {}
        for message in sink.messages:
            came.setdefault(message.recipients[0], []).append(message.body)
    everybody = BATCHES * PEOPLE
    assert len(came) == everybody
    assert (row["accepted"], row["delivered"], row["waiting"], row["bounced"]) == (everybody, everybody, 0, 0)
    assert {address for address, bodies in came.items() if len(bodies) > 1} <= doubtful
    assert all(len(set(bodies)) == 1 for bodies in came.values())
    for address, bodies in came.items():
        name = "N" + address.partition("@")[0][1:]
        letter = email.message_from_bytes(bodies[0], policy=email.policy.default)
        assert (letter["To"], letter["Subject"]) == (address, f"For {name}")
        assert f"Dear {name}" in letter.get_body(("html",)).get_content()


def no_spark(folder: Path) -> dict[str, str]:
    """The environment of an MTA that has another package of that name."""
    (folder / "shadow" / "pyspark").mkdir(parents=True)
    (folder / "shadow" / "pyspark" / "__init__.py").touch()
    return {"PYTHONPATH": f"{TOP}:{folder / 'shadow'}"}


def asked_for(mta: Mta) -> None:
    """The process that makes reports is killed, and its successor sees at once what is due; what lacks is said."""
    (pid,) = [pid for pid in mta.children() if "reports" in Path(f"/proc/{pid}/comm").read_text()]
    os.kill(pid, signal.SIGKILL)
    said, end = (
        "campaign spring: its report cannot be made: pyspark.sql: not installed; ",
        time.monotonic() + PATIENCE_S,
    )
    while said not in mta.log.read_text():
        assert time.monotonic() < end, mta.log_tail()
        time.sleep(0.05)


async def complete(queue: RemoteQueue) -> None:
    while True:
        try:
            await queue.ask("campaign-complete", name="spring")
        except QueueRefusal:
            await asyncio.sleep(0.05)
        else:
            return
