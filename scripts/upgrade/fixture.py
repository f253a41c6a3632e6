#!/usr/bin/env python3
"""What a version leaves when it is killed: a queue, its archive, a lake; tests/upgrade opens them with every later one.

    scripts/upgrade/fixture.py tests/upgrade/NAME.tar.xz        (NAME: the commit, or the version)

It runs the `zonemta_py` that Python finds (PYTHONPATH chooses an older one) and talks to its queue as receivers,
senders and operators do; SIGKILL ends each of the queue's two lives. In the tar file: `zonemta.toml`, with @FOLDER@,
@PORT@ and @SINK@ to be filled in; `owed.json`: what was in the queue at the end, and in which state; `queue/`; `lake/`.
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
import json
import multiprocessing
import os
import random
import signal
import subprocess
import sys
import tarfile
import tempfile
import time
from pathlib import Path
from typing import Any

from zonemta_py.config import load
from zonemta_py.disk import identity
from zonemta_py.mail.envelope import Envelope, Notify, Recipient
from zonemta_py.mail.limits import CHUNK_BYTES
from zonemta_py.mail.reply import Reply
from zonemta_py.merge.compile import prepare
from zonemta_py.queue.api import BOUNCED, DEFERRED, DELIVERED, HELD, Delivery, Outcome, Result
from zonemta_py.queue.queue import LocalQueue

try:
    from zonemta_py.merge.source import TemplateSource, Text
    from zonemta_py.queue.recovery.start import open_queue
except ImportError:  # 686decf, which wrote the first of these files
    from zonemta_py.merge.source import Source as TemplateSource  # type: ignore[attr-defined, no-redef]
    from zonemta_py.merge.source import Text
    from zonemta_py.queue.recovery import open_queue  # type: ignore[attr-defined, no-redef]

CONFIG = """\
[server]
hostname = "mta.test"
folder = "@FOLDER@"
receivers = 1
senders = 1
[[listeners]]
name = "smtp"
port = @PORT@
[retry]
schedule_min = [0.3]
life_h = 1000000
delay_notice_h = 0
[queue]
segment_bytes = 65536
position_s = 0.5
reserve_bytes = 0
archive_days = 0
request_h = 1000000
campaign_days = 30000
[[zones]]
name = "default"
default = true
host = "127.0.0.1"
port = @SINK@
tls = "none"
"""
ZONE = """\
[[zones]]
name = "{name}"
recipient_domains = ["{name}.test"]
host = "127.0.0.1"
port = @SINK@
tls = "none"
"""
ZONES = {"hold": 'in_doubt = "hold"\n', "stopped": "", "parked": ""}
REPLIES = {
    DELIVERED: Reply(250, "2.0.0", "Ok: queued as 4ZT8"),
    DEFERRED: Reply(451, "4.3.0", "local problem"),
    BOUNCED: Reply(550, "5.1.1", "no such user"),
    HELD: Reply(450, "4.0.0", "held by a plugin"),
}
FAR_MS = 4_102_444_800_000
"""2100-01-01."""
REQUEST = {"request": "order 4711", "digest": hashlib.sha256(b"order 4711").digest()}


class Trial:
    """One life of the queue, with this process as its receiver, its sender and its operator."""

    def __init__(self, queue: LocalQueue) -> None:
        self.queue = queue

    async def put(self, name: str, *addresses: str, text: bytes = b"Hi\r\n", **more: Any) -> dict[str, Any]:
        body = f"From: ann@src.test\r\nSubject: {name}\r\n\r\n".encode() + text
        people = [Recipient(address, int(Notify.FAILURE)) for address in addresses]
        envelope = Envelope("ann@src.test", people, len(body), received_ms=now_ms(), headers={"subject": name}, **more)
        return dict((await self.queue.accept(envelope, body))._asdict())

    async def round(self, once: bool = False, **verdicts: int) -> None:
        """Leases all that may go. What is called `leased…` stays out; the others' results are by their names."""
        deliveries = await self.leases()
        while deliveries:
            for delivery in deliveries:
                result = self.result(delivery, verdicts)
                if result is not None:
                    await self.queue.settle(result)
            deliveries = [] if once else await self.leases()

    async def leases(self) -> list[Delivery]:
        try:
            return await asyncio.wait_for(self.queue.lease(100), 1)
        except TimeoutError:
            return []

    @staticmethod
    def result(delivery: Delivery, verdicts: dict[str, int]) -> Result | None:
        by: dict[int, list[int]] = {}
        for index, recipient in enumerate(delivery.recipients):
            name = recipient.address.partition("@")[0].rstrip("0123456789").replace("-", "_")
            if name.startswith("leased"):
                return None
            by.setdefault(verdicts.get(name, DELIVERED), []).append(index)
        delays = {DEFERRED: 20.0}
        outcomes = [Outcome(one, REPLIES[one], "dot", rows, delay_s=delays.get(one)) for one, rows in by.items()]
        down_s = 3600.0 if delivery.zone == "parked" else None
        tls = "TLSv1.3 TLS_AES_256_GCM_SHA384"
        return Result(delivery.lease, outcomes, down_s, "mx.test[127.0.0.9]:25", "127.0.0.1", tls, now_ms(), 12)

    async def ask(self, question: str, **arguments: Any) -> Any:
        return await self.queue.ask(question, **arguments)

    async def stable(self) -> None:
        for _ in range(5):
            await self.queue.core.disk.lines.stable()
            await self.queue.core.disk.journal.stable()
        await self.queue.core.disk.bodies.settled()


def now_ms() -> int:
    return time.time_ns() // 1_000_000


def large() -> bytes:
    """More than the store takes, kept in a file; one random chunk again and again, so that the tar file stays small."""
    line = base64.b64encode(random.Random(1).randbytes(57 * CHUNK_BYTES // 78)).decode()
    chunk = "\r\n".join(line[at : at + 76] for at in range(0, len(line), 76)).encode()[: CHUNK_BYTES - 2] + b"\r\n"
    return chunk * 12


def batch(*addresses: str) -> Envelope:
    people = [Recipient(address, values=[address.partition("@")[0].title()]) for address in addresses]
    return Envelope("", people, columns=["name"], campaign="spring", received_ms=now_ms())


async def first(trial: Trial) -> None:
    """Mail that ends, some that waits, two that are leased when it is killed."""
    html = prepare(TemplateSource("t", Text("Hello {{ name }}"), Text("news@src.test"), text=Text("Hi {{ name }}\n")))
    await trial.ask("campaign-put", name="spring", sender="news@src.test", template=html.pack(), planned=8)
    rows = [["listed@default.test", "manual", "asked by letter", "letter 7", "ann", ""]]
    rows += [["gone@default.test", "hard-bounce", "550 no such user", "evidence 1", "queue", ""]]
    rows += [["tired@default.test", "unsubscribe", "one click", "evidence 2", "web", "spring"]]
    await trial.ask("suppress", rows=rows)
    await trial.ask("unsuppress", addresses=["gone@default.test"])
    await trial.put("ended", "delivered1@default.test", "bounced1@default.test", "delivered2@hold.test")
    await trial.put("left out", "listed@default.test", "queued1@default.test")
    await trial.queue.accept(batch("mia@default.test", "bounced2@default.test", "deferred2@default.test"), b"")
    await trial.round(bounced=BOUNCED, deferred=DEFERRED, queued=DEFERRED)
    await trial.round()
    await trial.ask("rotate")
    await trial.put("in doubt", "leased1@hold.test", "leased2@default.test")
    await trial.round()


async def second(trial: Trial) -> None:
    """What was leased is in doubt; and all that a kill can find."""
    await trial.round(leased=DEFERRED, deferred=DEFERRED, queued=DEFERRED)
    await trial.queue.position()
    await trial.put("put off", "deferred3@default.test", "kept3@default.test")
    await trial.put("held", "held4@default.test")
    await trial.put("bounced", "bounced5@default.test")
    await trial.put("rests", "deferred6@parked.test")
    await trial.round(deferred=DEFERRED, kept=DEFERRED, held=HELD, bounced=BOUNCED)
    await trial.ask("rotate")
    await trial.put("parked", "parked7@parked.test", "parked8@parked.test")
    await trial.put("leased at the kill", "leased9@default.test", "leased10@hold.test")
    await trial.put("its notice waits", "bounced10@default.test")
    await trial.round(once=True, bounced=BOUNCED)
    await trial.ask("stop", kind="zone", name="stopped", cause="by the fixture")
    await trial.put("stopped", "waits11@stopped.test")
    await trial.put("later", "later12@default.test", hold_until_ms=FAR_MS)
    await trial.put("large", "large13@default.test", text=large())
    await trial.queue.accept(batch("ben@default.test", "tired@default.test", "zoë@hold.test"), b"")
    await trial.put("asked once", "asked14@default.test", **REQUEST)
    await trial.put("fresh", "fresh15@default.test", "fresh15@hold.test")


LIVES = (first, second)


async def live(config_file: Path, number: int) -> None:
    config = load(config_file)
    trial = Trial(await open_queue(config))
    identity.copied(config.folder, "")  # writes which queue it is, as `zonemta run` does
    await LIVES[number](trial)
    await trial.stable()
    if number == len(LIVES) - 1:
        found = await owed(trial)
        config_file.with_name("owed.json").write_text(json.dumps(found, indent=1, ensure_ascii=False))
    os.kill(os.getpid(), signal.SIGKILL)


async def owed(trial: Trial) -> dict[str, Any]:
    """rows: [recipient, subject (None: a notice), state, zone] of all that is in the queue; answers: what the queue
    says of the rest."""
    rows, page = [], await trial.ask("list", limit=1000)
    found = page["rows"]
    while page["next"] is not None:
        page = await trial.ask("list", limit=1000, after=page["next"])
        found += page["rows"]
    for row in found:
        name = row["recipient"].partition("@")[0]
        subject = row["subject"] or (None if name == "ann" else f"Hello {name.title()}")  # one of the campaign
        rows.append([row["recipient"], subject, row["state"], row["zone"]])
    campaign = await trial.ask("campaign", name="spring")
    answers = {
        "suppressions": [row["address"] for row in (await trial.ask("suppressions"))["rows"]],
        "standing": [[row["kind"], row["name"]] for row in await trial.ask("standing") if row["kind"] != "resting"],
        "campaign": {name: campaign[name] for name in ("accepted", "delivered", "bounced", "suppressed", "removed")},
    }
    return {"rows": rows, "answers": answers, "large": hashlib.sha256(large()).hexdigest()}


def killed(config_file: Path) -> None:
    for number in range(len(LIVES)):
        process = multiprocessing.Process(target=run, args=(config_file, number))
        process.start()
        process.join()
        if process.exitcode != -signal.SIGKILL:
            raise SystemExit(f"life {number + 1} of the queue ended with {process.exitcode}, not by SIGKILL")


def run(config_file: Path, number: int) -> None:
    asyncio.run(live(config_file, number))


def lake(home: Path) -> None:
    for words in (["lake", "ingest", "--archive", str(home / "queue" / "archive")], ["lake", "update"]):
        command = [sys.executable, "-P", "-m", "zonemta_py", *words, "--lake", str(home / "lake")]
        subprocess.run(command, check=True)


def main() -> None:
    target = Path(sys.argv[1])
    with tempfile.TemporaryDirectory() as made:
        home = Path(made)
        text = CONFIG + "".join(ZONE.format(name=name) + more for name, more in ZONES.items())
        filled = text.replace("@FOLDER@", str(home / "queue")).replace("@PORT@", "2525").replace("@SINK@", "2526")
        (home / "zonemta.toml").write_text(filled)
        killed(home / "zonemta.toml")
        (home / "zonemta.toml").write_text(text)
        if "--no-lake" not in sys.argv:
            lake(home)
        pack(home, target)
    print(f"{target}: {target.stat().st_size} bytes")


def pack(home: Path, target: Path) -> None:
    with tarfile.open(target, "w:xz", preset=9) as packed:
        for path in sorted(home.rglob("*")):
            if not path.is_socket() and path.name != "LOCK":
                packed.add(path, path.relative_to(home), recursive=False)


if __name__ == "__main__":
    main()
