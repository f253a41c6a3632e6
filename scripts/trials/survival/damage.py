"""Damage (`blows`) to a queue that holds mail in every state, and that was killed a moment after its last 250s.

Each blow falls on a copy of the same queue (`damaged_queue`), before it starts or while it runs. A process opens the
copy and delivers all there is; where it ends because it found damage, it is started again, as the supervisor does.
Then: every body that came is right; each message that did not come is named, by its id or its recipient, on standard
error, in a note in quarantine/ or by fsck; what came twice, or changed its state, did not do so without a word; orders,
suppressions, keys of requests and archived records are there, or that they may be lost is said; and after
`fsck --repair` the next fsck finds nothing wrong.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import random
import shutil
import subprocess
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

from survival import blows, damaged_queue
from survival.blows import Blow
from survival.damaged_queue import process
from survival.letters import name_in
from zonemta_py.disk.quarantine import Quarantine
from zonemta_py.journal import segments
from zonemta_py.journal.records import Type

STARTS_MAX = 5
Progress = Callable[[int, str], None]
_IF_LOST = {"suppression": damaged_queue.SUPPRESSED, "stops": damaged_queue.STOPPED}
"""What is said where some of these may be lost."""


class Outcomes(NamedTuple):
    """came: recipient → how often. wrong: bodies that were not as sent. said: all that was said of damage.

    names: each recipient's message. left: what fsck finds wrong after it has repaired. orders: suppressions, stops and
    requests that still hold. records: of the journal and its archive that can still be read.
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
    orders: set[str]
    records: set[int]


def deliver_all(folder: Path) -> Outcomes:
    """Starts the queue, as often as it needs, until all is delivered."""
    starts, code = 0, -1
    while code != 0 and starts < STARTS_MAX:
        starts += 1
        code = process(damaged_queue.deliver, folder)
    came: Counter[str] = Counter()
    held: set[str] = set()
    in_doubt: set[str] = set()
    orders: set[str] = set()
    wrong = []
    log = folder / "deliveries"
    for line in log.read_text().splitlines() if log.exists() else ():
        row = json.loads(line)
        if "held" in row:
            held, in_doubt, orders = set(row["held"]), set(row["in_doubt"]), set(row["orders"])
            continue
        name = name_in(row["sender"]) if row["sender"] else None
        if name is None:
            continue  # a notification
        came.update(row["recipients"])
        if hashlib.sha256(damaged_queue.letter_of(int(name.partition(".")[0])).data).hexdigest() != row["sha256"]:
            wrong.append(name)
    process(damaged_queue.check, folder)
    names: dict[str, str] = {}
    for line in (folder / "acknowledged").read_text().splitlines():
        names |= json.loads(line)
    said = (folder / "stderr").read_text(errors="replace")
    checked = [f"fsck itself has failed: {said[-300:]}"]
    if (folder / "checked").exists():
        checked = (folder / "checked").read_text().splitlines()
    said += _notes(folder)
    return Outcomes(came, held, in_doubt, wrong, said, starts, code == 0, names, checked, orders, records(folder))


def _notes(folder: Path) -> str:
    """Of the cases that are new."""
    texts = []
    for case in Quarantine(folder / "quarantine").cases():
        with contextlib.suppress(OSError):
            texts.append((case / "note.json").read_text(errors="replace"))
    return "".join(text for text in texts if damaged_queue.OLD_CASE not in text)


def records(folder: Path) -> set[int]:
    """Numbers of what can be read of the journal and the archive."""
    found = set()
    for name in ("journal", "archive"):
        for path in segments.files(folder / name):
            with contextlib.suppress(OSError):
                found |= {record.seq for record in segments.read_file(path, []) if record.type != Type.LOST}
    return found


def judge(blow: Blow, states: dict[str, str], outcomes: Outcomes, recorded: frozenset[int] = frozenset()) -> list[str]:
    """Sentences about the rules that were broken. recorded: what the journal and its archive had."""
    broken, gone = _orders_lost(blow, outcomes), set(blow.file.split(" ")) if blow.kind == "gone" else set()
    if any(file.startswith("archive") for file in gone):
        recorded = frozenset()  # an operator may move what is in the archive elsewhere
    if recorded - outcomes.records and "journal" not in outcomes.said and "archive" not in outcomes.said:
        broken.append(f"{blow}: {len(recorded - outcomes.records)} records are gone, and nobody says so")
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
    if unnamed and not ({"store", "journal"} <= gone and "cannot be named" in outcomes.said):
        broken.append(f"{blow}: {len(missing)} recipients are missing, and {len(unnamed)} unnamed: {unnamed[:3]}")
    broken += _twice_or_false(blow, states, outcomes)
    if outcomes.left:
        broken.append(f"{blow}: after a repair fsck finds {len(outcomes.left)} problems: {outcomes.left[:2]}")
    if different and not outcomes.said.strip():
        broken.append(
            f"{blow}: nothing was said, and {len(different)} recipients are not as they were: {different[:3]}"
        )
    return broken


_FALSE = {
    "store": ("damage in the journal", "the journal is missing", "of the journal is missing", "the journal's end"),
    "journal": ("damage in the store", "the store is damaged", "lost from the store", "in the store only are"),
    "archive": ("damage in the store", "the store is damaged", "lost from the store", "in the store only are"),
    "receipts": ("damage in the store", "damage in the journal", "lost from the store"),
    "bodies": ("damage in the store", "damage in the journal", "lost from the store"),
}
"""By the folder that was struck: what would be said of one that is whole."""


def _twice_or_false(blow: Blow, states: dict[str, str], outcomes: Outcomes) -> list[str]:
    """Of a blow on one side: who got mail again is listed as in doubt, and the other side is not called damaged."""
    if " " in blow.file:
        return []
    again = [one for one, count in outcomes.came.items() if count > (states.get(one) in ("alive", "held"))]
    unlisted = [one for one in again if one not in outcomes.in_doubt]
    broken = [f"{blow}: {len(unlisted)} got their mail again, unlisted: {unlisted[:3]}"] if unlisted else []
    false = [words for words in _FALSE.get(blow.file.split("/")[0], ()) if words in outcomes.said]
    return broken + [f"{blow}: of what is whole it is said: {words}" for words in false]


def _orders_lost(blow: Blow, outcomes: Outcomes) -> list[str]:
    broken = []
    for word, names in _IF_LOST.items():
        lost = set(names) - outcomes.orders
        if lost and word not in outcomes.said:
            broken.append(f"{blow}: {sorted(lost)} do not hold any more, and nobody says so")
    for number in damaged_queue.REQUESTED:
        message = outcomes.names.get(damaged_queue.letter_of(number).recipients[0], "?")
        said = "keys of requests" in outcomes.said or message in outcomes.said
        if f"key-{number}" not in outcomes.orders and not said:
            broken.append(f"{blow}: the request {number} would be taken again, and nobody says so")
    return broken


def trial(
    folder: Path, *, flips: int = 0, cuts: int = 0, files: int = 0, each: int = 0, seed: int,
    progress: Progress = lambda done, note: None,
) -> dict[str, Any]:  # fmt: skip
    """All blows, two at a time. flips, cuts: anywhere; files: on whole files, and on the last moments; each: so many
    of those that fall on each family of keys and each file once, drawn."""
    original = folder / "original"
    states, recorded = damaged_queue.make(original), frozenset(records(original))
    rows = blows.anywhere(original, flips=flips, cuts=cuts, seed=seed) + blows.whole_files(original, files, seed)
    every = blows.each(original, seed)
    random.Random(seed).shuffle(every)
    rows += every[:each]
    figures: Counter[str] = Counter()
    broken: list[str] = []

    def one(index: int) -> tuple[Blow, Outcomes]:
        place = folder / f"blow-{index}"
        subprocess.run(["cp", "--archive", original, place], check=True)  # hard links stay what they are
        rows[index].order(place)
        return rows[index], deliver_all(place)

    with ThreadPoolExecutor(2) as pool:
        for index, (blow, outcomes) in enumerate(pool.map(one, range(len(rows)))):
            wrong = judge(blow, states, outcomes, recorded)
            broken += wrong
            figures[f"{'named' if outcomes.said.strip() else 'harmless'}_{blow.kind}"] += 1
            alive = [address for address, state in states.items() if state == "alive"]
            figures["recipients_lost_by_damage"] += sum(not outcomes.came[address] for address in alive)
            figures["recipients_sent_again"] += sum(
                count > (states.get(address) == "alive") for address, count in outcomes.came.items()
            )
            figures["starts"] += outcomes.starts
            if not wrong:
                shutil.rmtree(folder / f"blow-{index}")
            progress(index + 1, str(blow))
    figures["bytes_in_tables"] = sum(path.stat().st_size for path in original.glob("store/*.ldb"))
    alive_count = sum(state == "alive" for state in states.values())
    return {"blows": len(rows), "recipients_alive_in_each": alive_count, **figures, "broken": broken}
