"""What comes back while queue and receivers are killed: mail with VERP goes out, and all of it comes back to a listener
with feedback = true, as a bounce, a complaint or an unsubscribe; who hands it in does so until it gets its 250.

Afterwards each is in the journal exactly once, however often it was handed in, and its recipient suppressed: what is
then sent to them stays, but for unsubscribes, which stop campaigns only. Unkilled, it measures what one costs.
"""

from __future__ import annotations

import asyncio
import os
import random
import re
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any, NamedTuple

from ports import kept_port

from survival.client import Client
from survival.command import Progress, command
from survival.ledger import Ledger
from survival.letters import Letter
from survival.rig import Mta
from zonemta_py.disk import packing
from zonemta_py.journal import segments
from zonemta_py.journal.records import Type
from zonemta_py.journal.records.people import FeedbackRecord
from zonemta_py.sink import Sink, SinkOptions

ROLES = ("queue", "queue", "receiver")
SESSIONS = 8
MORE = """
[[listeners]]
name = "mx"
port = {port}
feedback = true
relay_networks = []
[return_path]
verp = "bounce.test"
unsubscribe_domain = "leave.test"
complaints = ["fbl@src.test"]
secret = "a secret that only this trial has"
"""
_COST = ("receiver", "queue")
TICKS = os.sysconf("SC_CLK_TCK")


class Sent(NamedTuple):
    """What came out of the MTA for one person: the return path, and the address to unsubscribe by."""

    recipient: str
    path: str
    leaving: str


KINDS = ("bounce", "bounce", "complaint", "unsubscribe")


def kind_of(number: int) -> str:
    """What comes back about the message of that number."""
    return KINDS[number % len(KINDS)]


def back(number: int, attempt: int, *, sent: list[Sent], kind: str = "") -> Letter:
    """What comes back about one message; each attempt is the same, as of a server that repeats."""
    one, kind = sent[number], kind or kind_of(number)
    head = f"Date: Mon, 2 Nov 2026 10:00:00 +0000\r\nMessage-ID: <{number}@mx.test>\r\nMIME-Version: 1.0\r\n"
    if kind == "unsubscribe":
        text = f"From: {one.recipient}\r\nSubject: unsubscribe\r\n{head}\r\nPlease take me off.\r\n"
        return Letter(f"{number}.{attempt}", one.recipient, [one.leaving], text.encode())
    original = f"Return-Path: <{one.path}>\r\nSubject: News\r\nMessage-ID: <letter{number}@src.test>\r\n\r\n"
    original += "What is new.\r\n" * 150
    kinds, told = ("delivery-status", _status(one, number)) if kind == "bounce" else ("feedback-report", _ABUSE)
    text = (
        f"From: reports@mx.{number}.test\r\nSubject: your message\r\n{head}"
        f'Content-Type: multipart/report; report-type={kinds}; boundary="X"\r\n\r\n'
        "--X\r\nContent-Type: text/plain\r\n\r\n" + "This is about a message of yours.\r\n" * 20 + "\r\n"
        f"--X\r\nContent-Type: message/{kinds}\r\n\r\n{told}"
        f"--X\r\nContent-Type: message/rfc822\r\n\r\n{original}\r\n--X--\r\n"
    )
    to = one.path if kind == "bounce" else "fbl@src.test"
    return Letter(f"{number}.{attempt}", "", [to], text.encode())


_ABUSE = "Feedback-Type: abuse\r\nUser-Agent: Provider/1\r\nVersion: 1\r\n\r\n"


def _status(one: Sent, number: int) -> str:
    return (
        f"Reporting-MTA: dns; mx.{number}.test\r\nArrival-Date: Mon, 2 Nov 2026 09:59:00 +0000\r\n\r\n"
        f"Final-Recipient: rfc822; {one.recipient}\r\nAction: failed\r\nStatus: 5.1.1\r\n"
        f"Diagnostic-Code: smtp; 550 5.1.1 <{one.recipient}>: Recipient address rejected: User unknown\r\n"
    )


def news(number: int, attempt: int, *, series: str) -> Letter:
    """A letter to a person of its own, at a domain of their own: a guard per provider lets them all be suppressed."""
    name = f"{number}.{attempt}"
    wish = "X-Unsubscribe: yes\r\n" if series == "first" else ""
    text = (
        f"{wish}From: n@src.test\r\nSubject: {series}\r\nMessage-ID: <{series}{name}@src.test>\r\n\r\nWhat is new.\r\n"
    )
    return Letter(f"{series}.{name}", "n@src.test", [f"ann@p{number}.test"], text.encode())


class Handing(Client):
    """Counts what is handed in, and keeps no ledger: the journal is what is looked at."""

    async def give(self, connection: Any, message: Letter) -> None:
        await connection.transaction(message)
        self.count(250)


async def trial(
    folder: Path, *, bounces: int, kills: int, seed: int, progress: Progress = lambda done, note: None
) -> dict[str, Any]:
    """Runs it and returns figures; "broken" lists the rules that were broken."""
    broken: list[str] = []
    ours = kept_port()
    async with Sink(SinkOptions(listen=("127.0.0.1:0",), keep=True)) as running:
        mta = Mta(folder, running.port, more=MORE.format(port=ours.getsockname()[1]))
        mta.start()
        try:
            await mta.taking()
            await Handing(mta.port, Ledger(), make=news, series="first").hand_in(range(bounces))
            await mta.drained()
            sent = {one.recipients[0]: sent_of(one) for one in running.messages}
            client = Handing(
                ours.getsockname()[1], Ledger(), make=back,
                sent=[sent[f"ann@p{number}.test"] for number in range(bounces)],
            )  # fmt: skip
            before, began = spent(mta), time.monotonic()
            killing = asyncio.create_task(_kill(mta, client, bounces, kills, seed, progress))
            await client.hand_in(range(bounces), SESSIONS)
            took_s, worked = time.monotonic() - began, spent(mta) - before
            suppressed_s = await _suppressed(mta, bounces, broken)
            await killing
            running.messages.clear()
            await Handing(mta.port, Ledger(), make=news, series="second").hand_in(range(bounces))
            await mta.drained()
            second = sorted(one.recipients[0] for one in running.messages)
        finally:
            mta.end()
    recorded = _recorded(folder)
    broken += [f"{len(recorded)} bounces are recorded, of {bounces}"] * (len(recorded) != bounces)
    broken += [f"{name}: recorded {times} times" for name, times in recorded.items() if times != 1]
    left = sorted(f"ann@p{number}.test" for number in range(bounces) if kind_of(number) == "unsubscribe")
    broken += [f"mail that is no campaign's went to {len(second)} people, not to the {len(left)} who left"] * (
        second != left
    )
    broken += await mta.problems()
    return {
        "bounces": bounces,
        "replies": dict(client.replies),
        "connections_broken": client.broken,
        "bounces_a_second": round(bounces / took_s),
        **({} if kills else {f"{role}_cpu_ms_each": round(1000 * worked[role] / TICKS / bounces, 2) for role in _COST}),
        "suppressed_after_s": round(suppressed_s, 2),
        "broken": broken,
    }


def sent_of(message: Any) -> Sent:
    found = re.search(rb"<mailto:([^>?]+)", message.body)
    return Sent(message.recipients[0], message.sender, found[1].decode() if found else "")


async def _kill(mta: Mta, client: Client, bounces: int, kills: int, seed: int, progress: Progress) -> None:
    dice = random.Random(seed)
    for number, moment in enumerate(sorted(dice.randrange(bounces) for _ in range(kills)), 1):
        while client.replies[250] < moment:  # noqa: ASYNC110 (others bring it on)
            await asyncio.sleep(0.001)
        role = dice.choice(ROLES)
        mta.kill(role, dice.random())
        progress(number, f"{role} at {moment:,}")


async def _suppressed(mta: Mta, people: int, broken: list[str]) -> float:
    """Seconds until all are on the list."""
    began = time.monotonic()
    for number in range(people):
        while not await asyncio.to_thread(mta.ask, "suppression", address=f"ann@p{number}.test"):
            await asyncio.sleep(0.02)
            if time.monotonic() - began > 30:
                broken.append(f"ann@p{number}.test is not suppressed after 30 s")
                return time.monotonic() - began
    return time.monotonic() - began


def _recorded(folder: Path) -> Counter[str]:
    """FEEDBACK records by kind, message and recipient."""
    found: dict[int, str] = {}  # by the record's number: a segment that is closed is in both folders for a while
    for part in ("archive", "journal"):
        for record in segments.read(folder / part):
            if record.type == Type.FEEDBACK:
                row = FeedbackRecord.of(packing.unpack(record.body))
                found[record.seq] = f"{row.kind} {row.message} {row.recipient}"
    return Counter(found.values())


def spent(mta: Mta) -> Counter[str]:
    """Processor time of the processes that run, in ticks, by what they are."""
    found = Counter[str]()
    for pid, role in mta.children().items():
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        found[role] += int(fields[11]) + int(fields[12])
    return found


def main() -> int:
    return command(
        "returns", __doc__, "What came back", trial, bounces=(2000, "bounces"), kills=(0, "kills of queue or receiver")
    )


if __name__ == "__main__":
    sys.exit(main())
