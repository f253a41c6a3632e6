"""The check: journal ↔ store ↔ sizes, everything compared with everything. For `zonemta fsck`, and recovery after
damage.

The journal says which recipients are alive (an envelope record names them, a final delivery record ends them); the
store must have exactly one key for each of those, and for each message its existence, metadata and every chunk of its
body. If the journal itself has lost records, the store is believed: mail is never dropped for lack of a record, and
what is missing from a whole store has ended, if the journal has lost a part in which that may have stood. If both have
lost something, nobody knows: a recipient is queued again, but in doubt; a message is lost, unless it had ended.

What a crash left for the next start to do is done before anything is compared (`fsck`, `recovery`): results that only
the journal has are no problem, and nothing may be removed before they are applied.

Each problem comes with its correction (`repair` carries it out): keys of ended recipients are deleted, missing ones
restored, counters recounted, and an incomplete message is ended as lost.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from zonemta_py.config import Config
from zonemta_py.disk import body_file, keys, packing
from zonemta_py.disk.frame import Record
from zonemta_py.disk.leveldb.store import Operation, Store
from zonemta_py.disk.notes import Existence, Note
from zonemta_py.journal import segments
from zonemta_py.queue.core import sizes
from zonemta_py.queue.core.state import COUNTED, FAMILY
from zonemta_py.queue.core.sums.flows import pair_of
from zonemta_py.queue.core.sums.sums import STATES
from zonemta_py.queue.fsck import bodies as check_bodies
from zonemta_py.queue.fsck import campaigns as check_campaigns
from zonemta_py.queue.fsck import suppressions
from zonemta_py.queue.fsck import tracked as check_tracked
from zonemta_py.queue.fsck.journal_view import Truth
from zonemta_py.queue.fsck.remembered import Remembered
from zonemta_py.schedule.flow import FlowId as Flow
from zonemta_py.schedule.flow import flow_text
from zonemta_py.zones import pull
from zonemta_py.zones.zone import destination

_COUNTED_AS = {family: COUNTED[state] for family, state in FAMILY.items()}


class StoreState(NamedTuple):
    """The store's own record of its progress: value of the key `state`. batches: how many have been written, ever."""

    applied: int = 0
    stable: int = 0
    messages: int = 0
    bytes: int = 0
    batches: int = 0


class Problem(NamedTuple):
    """severity: "damage" (something was lost), "repairable", "harmless". what: one sentence. id: message or file."""

    severity: str
    what: str
    id: str
    remedy: str

    def __str__(self) -> str:
        return f"{self.what} ({self.id}): {self.remedy}"


@dataclass
class FsckReport:
    """What `compare` found; counts: messages, recipients by state, segments, records."""

    problems: list[Problem] = field(default_factory=list)
    counts: dict[str, int] = field(default_factory=dict)
    repaired: bool = False

    def add(self, severity: str, what: str, ident: str, remedy: str) -> None:
        self.problems.append(Problem(severity, what, ident, remedy))


def state_of(store: Store) -> StoreState:
    value = store.get(keys.STATE)
    return StoreState(*packing.unpack(value)) if value else StoreState()


def last_id(store: Store, floor: str) -> str:
    """No id up to this one may be given out again."""
    key = store.last(keys.MESSAGES, keys.end(keys.MESSAGES))
    return max(floor, key.split(b" ")[1].decode()) if key else floor


def recipients(store: Store) -> Iterator[tuple[keys.Place, bytes, bytes]]:
    """Every recipient key in the store with its place and value."""
    for family in sorted(FAMILY, key=lambda family: family != "held"):  # if there are two keys, the held one counts
        prefix = family.encode() + b" "
        for key, value in store.scan(prefix, keys.end(prefix)):
            yield keys.place(key), key, value


def compare(
    config: Config,
    store: Store,
    rows: Iterable[Record],
    faults: list[segments.Fault],
    progress: Callable[[str], None] = lambda _: None,
    older: Iterable[Record] | None = None,
    own_from: int = sys.maxsize,
    steady_ms: int = 0,
) -> Comparison:
    """Compares everything. rows: all records, of every segment that is not archived; faults: met while reading them.

    older: if the store has lost something, the earlier records from the archive: the suppression list is rebuilt from
    all of them. own_from: as of `Truth`. steady_ms: now. Raises StoreError: the store cannot be read.
    """
    truth, remembered = Truth(own_from), Remembered() if older is not None else None
    progress("reading the journal")
    for record in older or ():
        truth.listed.take(record)
        truth.heard.take(record)
        truth.take_older(record)
        if remembered is not None:
            remembered.take(record)
    for record in rows:
        truth.take(record)
        if remembered is not None:
            remembered.take(record)
    lossy = bool(faults) or truth.lost or truth.gaps
    comparison = Comparison(config, store, truth, lossy, remembered)
    comparison.steady_ms = steady_ms
    report = comparison.report
    for fault in faults:
        report.add("damage", f"the journal: {fault.what}", str(fault.path), "zonemta fsck --repair repairs it")
    progress("reading the messages")
    comparison.messages()
    progress("reading the recipients")
    comparison.recipients()
    progress("counting")
    comparison.sizes()
    comparison.campaigns()
    comparison.people()
    comparison.bodies()
    report.counts |= {"journal records": truth.records, "messages": len(comparison.whole)}
    if truth.lost_before:
        report.counts["messages lost by damage before"] = len(truth.lost_before)
    return comparison


class Comparison:
    """What was found. operations: the corrections in the store, except for messages that are `broken` (and why)."""

    def __init__(self, config: Config, store: Store, truth: Truth, lossy: bool, remembered: Remembered | None) -> None:
        self.config, self.store, self.truth, self.report = config, store, truth, FsckReport()
        self.lossy, self.lost, self._remembered = lossy, remembered is not None, remembered
        self.steady_ms = 0
        self.textless: list[str] = []
        """Campaigns whose template is lost."""
        self.whole: dict[str, tuple[Existence, int]] = {}
        self._merged: set[str] = set()
        self.strange: list[str] = []
        """Ids of body files that belong to no message."""
        self.broken: dict[str, str] = {}
        self.owed: dict[str, dict[str, list[str]]] = {}
        """By message and zone: recipients that cannot be restored, all of the broken messages and some of others."""
        self.operations: list[Operation] = []
        self.doubtful: list[tuple[str, str, str]] = []
        """Zone, message and address of recipients that were queued again, and may have had their mail."""
        self._counted: dict[tuple[str, str], list[int]] = {}
        self._left: dict[str, int] = {}
        self._flows: dict[str, list[int]] = {}
        self._waiting: dict[str, int] = {}
        self._firsts = (remembered.firsts(store) if remembered else {}) | check_campaigns.firsts(store)
        self._of_merged: set[str] = set()

    def living(self) -> list[str]:
        """Messages that have recipients left."""
        return [message_id for message_id in self.whole if self._left.get(message_id)]

    # -- messages

    def messages(self) -> None:
        """Checks existence, metadata, and every chunk of each message."""
        parts: dict[str, dict[str, bytes | int]] = {}
        current = ""
        for key, value in self.store.scan(keys.MESSAGES, keys.end(keys.MESSAGES)):
            _, message_id, part = key.decode().split(" ")
            if message_id != current and current:
                self._message(current, parts.pop(current))
            current = message_id
            parts.setdefault(message_id, {})[part] = value if part in "#*" else len(value)
        if current:
            self._message(current, parts.pop(current))
        for message_id, alive in self.truth.alive.items():
            if alive and message_id not in self.whole and message_id not in self.broken:
                unsure = not any(self.truth.sure(message_id, address) for address in alive)
                if unsure and not self.lost:
                    self._taken_for_ended(message_id)
                    continue
                what, remedy = "a message is lost from the store", "send it again from its source"
                if unsure:
                    what += ", or it has ended in what is lost from the journal"
                    remedy = "ask whether it has come, and send it again from its source if not"
                self.report.add("damage", what, message_id, remedy)
                self.broken[message_id] = "it is in the journal, and not in the store"
        for message_id in self.broken:
            for address, (zone, *_) in self.truth.alive.get(message_id, {}).items():
                self._owed(message_id, zone, address)

    def _owed(self, message_id: str, zone: str, address: str) -> None:
        addresses = self.owed.setdefault(message_id, {}).setdefault(zone, [])
        if address not in addresses:
            addresses.append(address)

    def _message(self, message_id: str, parts: dict[str, bytes | int]) -> None:
        if "#" not in parts and "*" not in parts:
            self.report.add("harmless", "chunks of a message that was never accepted", message_id, "they are deleted")
            self.operations += self._all_keys(message_id)
            return
        try:
            existence = Existence.of(bytes(parts["#"]))
            metadata = packing.unpack(bytes(parts["*"]))
            missing = check_bodies.missing_chunks(metadata, parts)
        except (KeyError, ValueError, TypeError):
            missing, existence, metadata = [0], Existence(0, 0, 0), {"size": 0}
        if missing and self._ended(message_id):
            self.report.add("repairable", "remains of a message that has ended", message_id, "they are deleted")
            self.operations += self._all_keys(message_id)
            return
        if missing:
            what = "its metadata" if missing == [0] else f"{len(missing)} chunks of its body"
            self.report.add("damage", f"a message has lost {what}", message_id, "it goes to quarantine with a note")
            self.broken[message_id] = f"it has lost {what}"
            return
        if fault := "" if self._ended(message_id) else check_bodies.fault(self.config.folder, message_id, metadata):
            self.report.add("damage", f"a message has lost its body: {fault}", message_id, "it goes to quarantine")
            self.broken[message_id] = fault
            return
        self.whole[message_id] = (existence, metadata["size"])
        if "columns" in metadata:
            self._merged.add(message_id)

    def _ended(self, message_id: str) -> bool:
        """The journal has the end of all its recipients, so that its body is not needed."""
        return message_id in self.truth.ended or self.truth.alive.get(message_id) == {} or self._is_old(message_id)

    def _is_old(self, message_id: str) -> bool:
        """It has ended long ago, and damage to the store has brought it back: LevelDB forgets what was deleted when it
        loses the table that says so. A segment leaves the journal when all its mail has ended."""
        return self.lost and not self.lossy and message_id not in self.truth.alive

    def bodies(self) -> None:
        """Body files without a message. They are not a fault: the next start deletes them."""
        known = body_file.ids(self.config.folder / body_file.FOLDER)
        self.strange = [one for one in known if one not in self.whole and one not in self.broken]
        if self.strange:
            self.report.counts["bodies to be removed"] = len(self.strange)

    def _all_keys(self, message_id: str) -> list[Operation]:
        prefix = keys.message_range(message_id)
        return [(key, None) for key in self.store.keys(prefix, keys.end(prefix))]

    # -- recipients

    def recipients(self) -> None:
        """One key for each living recipient, none for others."""
        seen: set[tuple[str, str]] = set()
        for place, key, value in recipients(self.store):
            who = (place.id, place.recipient)
            if place.id not in self.whole or who in seen or self._is_over(place):
                self._drop(place, key)
                continue
            seen.add(who)
            if self.lost and place.id not in self.truth.alive:  # it may have ended before, as in `_is_old`
                self.doubtful.append((place.zone, place.id, place.recipient))
            note, state = Note.of(value), _COUNTED_AS[place.family]
            self._count(place.zone, place.recipient, state, place.id, note)
        for message_id, alive in self.truth.alive.items():
            for address, (zone, notify, orcpt) in alive.items():
                if message_id in self.whole and (message_id, address) not in seen:
                    self._bring_back(message_id, zone, address, self._note(message_id, notify, orcpt))
        for message_id, (existence, _) in self.whole.items():
            self._settle_left(message_id, existence)

    def _is_over(self, place: keys.Place) -> bool:
        """The journal has its end. An unknown message is alive: its record may be lost or unwritten."""
        if place.id in self.truth.ended or self._is_old(place.id):
            return True
        alive = self.truth.alive.get(place.id)
        return alive is not None and place.recipient not in alive

    def _drop(self, place: keys.Place, key: bytes) -> None:
        if self.lossy and place.id not in self.whole and place.id not in self.broken and not self._is_over(place):
            self.broken[place.id] = "nothing is left of it but recipients"
            self.report.add("damage", "a message is lost from the store", place.id, "send it again from its source")
        if place.id in self.broken:
            if not self._is_over(place):
                self._owed(place.id, place.zone, place.recipient)
        else:
            twice = place.id in self.whole and not self._is_over(place)
            what = "is queued twice" if twice else "has ended and is still queued"
            self.report.add("repairable", f"{place.recipient} {what}", place.id, "the key goes")
        self.operations.append((key, None))

    def _note(self, message_id: str, notify: int, orcpt: str | None) -> Note:
        """Of one whose key is lost, with the flow of its message."""
        metadata = packing.unpack(self.store.get(keys.metadata(message_id)) or packing.pack({}))
        tenant, campaign = metadata.get("tenant") or "", metadata.get("campaign") or ""
        flow = flow_text(metadata.get("priority") or 0, tenant, campaign)
        return Note(notify, orcpt, flow=flow, counted="counted" in metadata)

    def _taken_for_ended(self, message_id: str) -> None:
        what = "its end stood in a part of the journal that is gone"
        self.report.add("harmless", what, message_id, "it is taken for ended")

    def _bring_back(self, message_id: str, zone: str, address: str, note: Note) -> None:
        sure = self.truth.sure(message_id, address)
        if not sure and not self.lost:  # the store is whole: delivered mail must not be sent again
            self._taken_for_ended(message_id)
            return
        if message_id in self._merged:  # its values were only in its key
            self.report.add("damage", f"{address} is lost from a merged message", message_id, "make its request again")
            self._owed(message_id, zone, address)
            return
        home = pull.settings_of(self.config, zone) or self.config.default_zone
        if until_ms := self.truth.bounced.get((message_id, address)):
            what = f"{address} has bounced and is kept, and its key is lost"
            self.report.add("repairable", what, message_id, "it is kept again")
            self.operations.append((keys.bounced(home.name, until_ms, message_id, address), note.value()))
            self._count(home.name, address, sizes.BOUNCED, message_id, note)
            return
        if task := self.truth.deleted.get((message_id, address)):
            what = f"{address} was deleted by task {task}, and its key is lost"
            self.report.add("repairable", what, message_id, "it is deleted again")
            self.operations.append((keys.deleted(home.name, task, message_id, address), note.value()))
            self._count(home.name, address, sizes.DELETED, message_id, note)
            return
        if (message_id, address) in self.truth.held:
            what = f"{address} is held, and its key is lost"
            self.report.add("repairable", what, message_id, "it is held again")
            self.operations.append((keys.held(home.name, message_id, address), note.value()))
            self._count(home.name, address, sizes.HELD, message_id, note)
            return
        if sure:
            what, remedy = f"{address} is not queued, and has not ended", "it is queued again"
        else:
            what = f"{address} is not queued, and its end may be among what is lost from the journal"
            remedy = "it is queued again, in doubt"
            self.doubtful.append((home.name, message_id, address))
        self.report.add("repairable", what, message_id, remedy)
        # As a parked one: a fresh key might be below the low-water mark, and never be read.
        target = destination(home, address.rpartition("@")[2]).key
        self.operations.append((keys.parked(home.name, target, message_id, address), note.value()))
        self._count(home.name, address, sizes.QUEUED, message_id, note)

    def _count(self, zone: str, address: str, state: int, message_id: str, note: Note) -> None:
        self._counted.setdefault((zone, address.rpartition("@")[2]), list(sizes.NONE))[state] += 1
        self._left[message_id] = self._left.get(message_id, 0) + 1
        if (pair := pair_of(note.flow)) not in ("", "~"):
            self._flows.setdefault(pair, [0] * STATES)[state] += 1
        if state != sizes.BOUNCED and (message_id in self._merged or note.counted):
            campaign = Flow.of(note.flow).campaign
            if message_id < self._firsts.get(campaign, ""):
                return
            self._waiting[campaign] = self._waiting.get(campaign, 0) + 1
            if message_id in self._merged:
                self._of_merged.add(campaign)

    def _settle_left(self, message_id: str, existence: Existence) -> None:
        left = self._left.get(message_id, 0)
        if not left:
            self.report.add("repairable", "a message without recipients", message_id, "it is deleted")
            self.operations += self._all_keys(message_id)
        elif left != existence.left:
            self.report.add(
                "repairable", f"{existence.left} recipients left, {left} found", message_id, "counted again"
            )
            value = Existence(existence.created_ms, existence.total, left).value()
            self.operations.append((keys.existence(message_id), value))

    # -- campaigns

    def campaigns(self) -> None:
        """Their templates, and their counters against what was counted."""
        known = self._remembered.campaigns(self.config.queue.campaign_days) if self._remembered else {}
        now_ms = self.truth.now_ms
        for found in check_campaigns.findings(self.store, self._waiting, self._of_merged, known, now_ms):
            self.report.add(*found[:4])
            self.operations += found.operations
            if found.remedy == check_campaigns.SUSPENDED:
                self.textless.append(found.id)

    # -- people

    def people(self) -> None:
        """The suppression list, and the keys of requests."""
        for found in (
            *suppressions.findings(self.store, self.truth.listed, self.lossy, self.lost),
            *self.truth.heard.findings(self.store, self.config.return_path.days),
            *(
                self._remembered.findings(self.store, self.config, self.truth.ended, self.steady_ms)
                if self._remembered
                else ()
            ),
        ):
            self.report.add(*found[:4])
            self.operations += found.operations

    # -- sizes

    def sizes(self) -> None:
        """The counters, against what was counted."""
        stored = sizes.Sizes(self.store).domains
        for key in sorted(stored.keys() | self._counted.keys()):
            counted = self._counted.get(key)
            if stored.get(key) != counted:
                what = f"sizes of {key[1]} in zone {key[0]}: {stored.get(key)} noted, {counted} counted"
                self.report.add("repairable", what, "sizes", "counted again")
                self.operations.append((keys.size(*key), packing.pack(counted) if counted else None))
        living = self.living()
        size = sum(self.whole[message_id][1] for message_id in living)
        state = state_of(self.store)
        if (state.messages, state.bytes) != (len(living), size):
            what = f"{state.messages} messages with {state.bytes} bytes noted, {len(living)} with {size} counted"
            self.report.add("repairable", what, "sizes", "counted again")
        value = packing.pack(state._replace(messages=len(living), bytes=size))
        self.operations.append((keys.STATE, value))
        for name, index in COUNTED.items():
            self.report.counts[str(name)] = sum(counts[index] for counts in self._counted.values())
        for found in check_tracked.findings(self.store, self._flows):
            self.report.add(*found[:4])
            self.operations[:0] = found.operations  # the index follows what is done to the recipients after that
