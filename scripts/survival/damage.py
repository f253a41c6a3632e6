"""Damage (`blows`) to a queue that holds mail in every state, and that was killed a moment after its last 250s.

Each blow falls on a copy of the same queue, before it starts or while it runs. A process opens the copy and delivers
all there is; where it ends because it found damage, it is started again, as the supervisor does. Then: every body that
came is right; each message that did not come is named, by its id or its recipient, on standard error, in a note in
quarantine/ or by fsck; what came twice, or changed its state, did not do so without a word; and after
`fsck --repair` the next fsck finds nothing wrong.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import multiprocessing
import os
import shutil
import sys
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

from survival import blows
from survival.blows import Blow
from survival.letters import Letter, again, letter, name_in
from zonemta_py.config import Config
from zonemta_py.disk.quarantine import Quarantine
from zonemta_py.mail.envelope import Envelope, Recipient
from zonemta_py.mail.limits import CHUNK_BYTES
from zonemta_py.mail.reply import Reply
from zonemta_py.queue import archiving, fsck
from zonemta_py.queue.api import BOUNCED, DEFERRED, DELIVERED, HELD, Delivery, Outcome, QueueRefusal, Result
from zonemta_py.queue.queue import LocalQueue
from zonemta_py.queue.recovery import open_queue
from zonemta_py.schedule.clock import Clock

LETTERS = 240
LATE = 24
"""Letters that are acknowledged in the moment before the crash."""
DELIVERIES_BEFORE_BLOW = 20
STARTS_MAX = 5
IDLE_S = 3.0
PATIENCE_S = 60.0
Progress = Callable[[int, str], None]
_VERDICTS = {0: DELIVERED, 1: DEFERRED, 2: HELD}
"""By a letter's number modulo 5, of the first two thirds; 3 stays leased at the crash, 4 and the rest are not tried."""


def _config(folder: Path) -> Config:
    many = {"host": "127.0.0.1", "port": 2, "connections": 100_000, "connections_per_destination": 100_000}
    return Config.model_validate(
        {
            "server": {"folder": folder, "hostname": "mta.test"},
            "queue": {"segment_bytes": 65_536, "write_buffer_bytes": 65_536, "reserve_bytes": 0},
            "learning": {"initial": 100_000},
            "zones": [
                {"name": "default", "default": True, **many},
                {"name": "bulk", "recipient_domains": ["bulk.test"], "in_doubt": "hold", **many},
            ],
        }
    )


def _letter(number: int) -> Letter:
    return letter(number, kinds="plain", large=0.03)


# -- the queue that is damaged


def make(folder: Path) -> dict[str, str]:
    """Fills a queue in two lives, both ended by a crash; returns the state that each recipient should be in."""
    for life in (_first_life, _second_life, _last_moments):
        code = _process(life, folder)
        assert code == 0, f"the queue could not be made: exit status {code}"
    states = {}
    for number in range(LETTERS + LATE):
        for address in _letter(number).recipients:
            held_doubt = number % 5 == 3 and address.endswith("@bulk.test")
            tried = number < LETTERS * 2 // 3
            state = {0: "ended", 2: "held", 3: "held" if held_doubt else "alive"}.get(number % 5, "alive")
            states[address] = state if tried else "alive"
    return states


async def _first_life(folder: Path) -> None:
    queue = await open_queue(_config(folder))
    await _put(queue, range(LETTERS * 2 // 3))
    number = {}
    deliveries = await queue.lease(100_000, "sender")
    for delivery in deliveries:
        number[delivery.lease] = int(str(name_in(delivery.sender)).partition(".")[0])
        verdict = _VERDICTS.get(number[delivery.lease] % 5)
        if verdict is not None:
            outcome = Outcome(verdict, Reply(450, "", "so be it"), "dot", list(range(len(delivery.recipients))), 3600.0)
            await queue.settle(Result(delivery.lease, [outcome]))
    for delivery in deliveries:
        if number[delivery.lease] % 5 == 4:
            queue.leases.take_back(queue.leases.out[delivery.lease])
    await queue.position()
    queue.core.rotate()
    await archiving.publish(queue.core)


async def _second_life(folder: Path) -> None:
    queue = await open_queue(_config(folder))
    await _put(queue, range(LETTERS * 2 // 3, LETTERS))
    await queue.position()


async def _last_moments(folder: Path) -> None:
    """Ends with the last 250: the journal has heard of none of these."""
    queue = await open_queue(_config(folder))
    await queue.position()
    await _put(queue, range(LETTERS, LETTERS + LATE))


async def _put(queue: LocalQueue, numbers: range) -> None:
    for number in numbers:
        one = _letter(number)
        envelope = Envelope(one.sender, [Recipient(address) for address in one.recipients], size=len(one.data))
        chunks = [one.data[at : at + CHUNK_BYTES] for at in range(0, len(one.data), CHUNK_BYTES)]
        if len(chunks) == 1:
            message_id = await queue.put(envelope, chunks[0])
        else:
            incoming = queue.begin()
            for chunk in chunks[:-1]:
                await incoming.write(chunk)
            message_id = await incoming.commit(envelope, chunks[-1])
        with (queue.core.config.folder / "acknowledged").open("a") as ids:
            ids.write(json.dumps(dict.fromkeys(one.recipients, message_id)) + "\n")


# -- what became of the queue


class Outcomes(NamedTuple):
    """came: recipient → how often. wrong: bodies that were not as sent. said: all that was said of damage.

    names: each recipient's message. left: what fsck finds wrong after it has repaired.
    """

    came: Counter[str]
    held: set[str]
    in_doubt: set[str]
    wrong: list[str]
    said: str
    starts: int
    finished: bool
    names: dict[str, str]
    left: list[str]


def deliver_all(folder: Path) -> Outcomes:
    """Starts the queue, as often as it needs, until all is delivered."""
    starts, code = 0, -1
    while code != 0 and starts < STARTS_MAX:
        starts += 1
        code = _process(_deliver, folder)
    came: Counter[str] = Counter()
    held: set[str] = set()
    in_doubt: set[str] = set()
    wrong = []
    log = folder / "deliveries"
    for line in log.read_text().splitlines() if log.exists() else ():
        row = json.loads(line)
        if "held" in row:
            held, in_doubt = set(row["held"]), set(row["in_doubt"])
            continue
        name = name_in(row["sender"]) if row["sender"] else None
        if name is None:
            continue  # a notification
        came.update(row["recipients"])
        if hashlib.sha256(again(name, kinds="plain", large=0.03).data).hexdigest() != row["sha256"]:
            wrong.append(name)
    _process(_check, folder)
    names: dict[str, str] = {}
    for line in (folder / "acknowledged").read_text().splitlines():
        names |= json.loads(line)
    said = (folder / "stderr").read_text(errors="replace")
    checked = [f"fsck itself has failed: {said[-300:]}"]
    if (folder / "checked").exists():
        checked = (folder / "checked").read_text().splitlines()
    notes = "".join((case / "note.json").read_text() for case in Quarantine(folder / "quarantine").cases())
    return Outcomes(came, held, in_doubt, wrong, said + notes, starts, code == 0, names, checked)


async def _check(folder: Path) -> None:
    """`zonemta fsck --repair`, and fsck once more; what it finds then is written down."""
    config = _config(folder)
    for problem in (await fsck.check(config, repair=True, clock=_Later())).problems:
        if problem.severity == "damage":
            print(f"fsck: {problem}", file=sys.stderr, flush=True)
    again = await fsck.check(config, clock=_Later())
    found = [str(problem) for problem in again.problems if problem.severity != "harmless"]
    (folder / "checked").write_text("".join(line + "\n" for line in found))


class _Later(Clock):
    """Two hours on: what was deferred is due."""

    def ms(self) -> int:
        return super().ms() + 7_200_000

    def monotonic(self) -> float:
        return super().monotonic() + 7_200


async def _deliver(folder: Path) -> None:
    queue = await open_queue(_config(folder), clock=_Later())
    queue.start()
    done = 0
    with (folder / "deliveries").open("a") as log:
        while (deliveries := await _lease(queue)) is not None:
            for delivery in deliveries:
                await _deliver_one(queue, delivery, log)
                done += 1
                if done == DELIVERIES_BEFORE_BLOW and (blow := blows.ordered(folder)) is not None:
                    blow.strike(folder)
        held = (await queue.ask("list", state="held", limit=10_000))["rows"]
        in_doubt = await queue.ask("in-doubt")
        rows = {"held": held, "in_doubt": in_doubt}
        log.write(json.dumps({name: [row["recipient"] for row in some] for name, some in rows.items()}) + "\n")


async def _lease(queue: LocalQueue) -> list[Delivery] | None:
    """None: nothing is left that could be leased."""
    async with asyncio.timeout(PATIENCE_S):
        while True:
            total = (await queue.ask("size"))["total"]
            if not any(total[state] for state in ("queued", "deferred", "leased")):
                return None
            try:
                return await asyncio.wait_for(queue.lease(100, "sender"), IDLE_S)
            except TimeoutError:
                continue


async def _deliver_one(queue: LocalQueue, delivery: Delivery, log: Any) -> None:
    everyone = list(range(len(delivery.recipients)))
    try:
        chunks = [await queue.chunk(delivery.id, number) for number in range(1, delivery.chunks + 1)]
    except QueueRefusal as refusal:
        await queue.settle(Result(delivery.lease, [Outcome(BOUNCED, refusal.reply, "body", everyone)]))
        return
    row = {
        "sender": delivery.sender,
        "recipients": [recipient.address for recipient in delivery.recipients],
        "sha256": hashlib.sha256(b"".join(chunks)).hexdigest(),
    }
    log.write(json.dumps(row) + "\n")
    log.flush()
    await queue.settle(Result(delivery.lease, [Outcome(DELIVERED, Reply(250, "2.0.0", "Ok"), "dot", everyone)]))


# -- processes, and the trial


def _process(work: Callable[[Path], Any], folder: Path) -> int:
    """Runs it in a process of its own; its exit status. A queue ends with its process, never before."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([__name__])
    child = context.Process(target=_run, args=(work, folder))
    child.start()
    child.join(PATIENCE_S)
    if child.exitcode is None:
        child.kill()
        child.join()
    return int(child.exitcode or 0)


def _run(work: Callable[[Path], Any], folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "stderr").open("ab") as errors:
        os.dup2(errors.fileno(), 2)
    asyncio.run(_then_end(work, folder))


async def _then_end(work: Callable[[Path], Any], folder: Path) -> None:
    try:
        await work(folder)
    except BaseException as error:
        print(f"{type(error).__name__}: {error}", file=sys.stderr, flush=True)
        os._exit(1)
    os._exit(0)


def judge(blow: Blow, states: dict[str, str], outcomes: Outcomes) -> list[str]:
    """Sentences about the rules that were broken."""
    broken = []
    if not outcomes.finished:
        broken.append(f"{blow}: after {outcomes.starts} starts not all was delivered: {outcomes.said[-300:]}")
    if outcomes.wrong:
        broken.append(f"{blow}: wrong bytes were delivered of {outcomes.wrong}")
    alive = {address for address, state in states.items() if state == "alive"}
    held = {address for address, state in states.items() if state == "held"}
    doubtful = outcomes.held & outcomes.in_doubt  # listed, and held as their zone wants it
    different = (
        [address for address in alive - doubtful if outcomes.came[address] != 1]
        + [address for address in held if address not in outcomes.held]
        + [address for address in outcomes.came if address not in alive]
    )
    missing = [address for address in sorted(alive - doubtful) if not outcomes.came[address]]
    missing += sorted(held - outcomes.held - outcomes.came.keys())
    unnamed = [
        address
        for address in missing
        if address not in outcomes.said and outcomes.names.get(address, address) not in outcomes.said
    ]
    if unnamed:
        broken.append(f"{blow}: {len(missing)} recipients are missing, and {len(unnamed)} unnamed: {unnamed[:3]}")
    if outcomes.left:
        broken.append(f"{blow}: after a repair fsck finds {len(outcomes.left)} problems: {outcomes.left[:2]}")
    if different and not outcomes.said.strip():
        broken.append(
            f"{blow}: nothing was said, and {len(different)} recipients are not as they were: {different[:3]}"
        )
    return broken


def trial(
    folder: Path, *, flips: int, cuts: int, files: int, seed: int, progress: Progress = lambda done, note: None
) -> dict[str, Any]:
    """All blows, two at a time. flips, cuts: anywhere; files: on whole files, and on the last moments."""
    original = folder / "original"
    states = make(original)
    (original / "stderr").unlink()
    rows = blows.anywhere(original, flips=flips, cuts=cuts, seed=seed) + blows.whole_files(original, files, seed)
    figures: Counter[str] = Counter()
    broken: list[str] = []

    def one(index: int) -> tuple[Blow, Outcomes]:
        place = folder / f"blow-{index}"
        shutil.copytree(original, place, ignore=shutil.ignore_patterns("stderr"))
        rows[index].order(place)
        return rows[index], deliver_all(place)

    with ThreadPoolExecutor(2) as pool:
        for index, (blow, outcomes) in enumerate(pool.map(one, range(len(rows)))):
            wrong = judge(blow, states, outcomes)
            broken += wrong
            figures[f"{'named' if outcomes.said.strip() else 'harmless'}_{blow.kind}"] += 1
            alive = [address for address, state in states.items() if state == "alive"]
            figures["recipients_lost_by_damage"] += sum(not outcomes.came[address] for address in alive)
            figures["recipients_sent_again"] += sum(
                count > (states[address] == "alive") for address, count in outcomes.came.items()
            )
            figures["starts"] += outcomes.starts
            if not wrong:
                shutil.rmtree(folder / f"blow-{index}")
            progress(index + 1, str(blow))
    figures["bytes_in_tables"] = sum(path.stat().st_size for path in original.glob("store/*.ldb"))
    alive_count = sum(state == "alive" for state in states.values())
    return {"blows": len(rows), "recipients_alive_in_each": alive_count, **figures, "broken": broken}
