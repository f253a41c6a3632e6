"""What a summary counts: views, each with its keys and its numbers, from the records of one segment.

    routes     hour zone source provider verdict class                       → n, secure
    owners     hour user sender                                              → messages, accepted, bytes, and attempts
    attempts   hour zone source provider tenant campaign verdict class       → n, secure
    senders    hour zone tenant campaign user sender                         → messages, accepted, bytes, and attempts
    domains    hour tenant provider domain verdict                           → n
    replies    hour zone source provider tenant verdict class shape          → n; and for each shape an example
    limits     hour limit                                                    → ms, times

The first two are for questions that need no more, since the next two have many more rows. hour: UNIX hours, of the
record. An attempt is what the lake's table `deliveries` has as one; sender: the domain of the
return path, user, tenant and campaign: of the message, as its ENVELOPE record says; domain: the recipient's. secure:
those of n that were delivered over TLS. shape: the reply without the words that have a digit or an @ in them, as in
reports.

Each view has a greatest number of rows (`ViewForm.rows_max`); the rest is added up under the name OTHERS. Nothing here
touches a file.
"""

from __future__ import annotations

import gc
import re
import struct
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple, TypeAlias

import msgpack

from zonemta_py.disk.frame import BROKEN, FIRST, FULL, LAST, Damage, fragments
from zonemta_py.disk.packing import unpack
from zonemta_py.journal.records import Type
from zonemta_py.journal.records.mail import BOUNCED, DEFERRED, DELIVERED, HELD, VERDICTS
from zonemta_py.journal.records.orders import WAITED

HOUR_MS = 3_600_000
OTHERS = "(others)"
"""In place of names of which there were too many."""
UNKNOWN = ("", "", "", "")
"""Whose a message is of which no ENVELOPE record is known."""
EXAMPLE_MAX = 300
"""Characters of a reply that are kept."""
_SHAPE_MAX = 1000
_AT_ONCE = 4096
_ARRAY = 0xDD
_HEAD = struct.Struct("<QQB")
_CHANGING = re.compile(r"\S*[0-9@]\S*", re.ASCII)
_ATTEMPTS = {DELIVERED, DEFERRED, BOUNCED, HELD}
_FAILED = {DEFERRED, BOUNCED}

Whose: TypeAlias = tuple[str, str, str, str]
"""Tenant, campaign, user and sender's domain of a message."""
Numbers: TypeAlias = list[int]
Rows: TypeAlias = dict[tuple[Any, ...], Numbers]


class ViewForm(NamedTuple):
    """Of a view. keys: "hour" is a number, the others are texts. wide: which of them become OTHERS beyond rows_max."""

    keys: tuple[str, ...]
    numbers: tuple[str, ...]
    wide: tuple[str, ...]
    rows_max: int


VERDICT_NUMBERS = ("delivered", "deferred", "bounced", "held")
VIEWS = {
    "routes": ViewForm(
        ("hour", "zone", "source", "provider", "verdict", "class"), ("n", "secure"), ("source", "provider"), 30_000
    ),
    "owners": ViewForm(
        ("hour", "user", "sender"), ("messages", "accepted", "bytes", *VERDICT_NUMBERS), ("user", "sender"), 20_000
    ),
    "attempts": ViewForm(
        ("hour", "zone", "source", "provider", "tenant", "campaign", "verdict", "class"), ("n", "secure"),
        ("tenant", "campaign"), 30_000,
    ),
    "senders": ViewForm(
        ("hour", "zone", "tenant", "campaign", "user", "sender"),
        ("messages", "accepted", "bytes", *VERDICT_NUMBERS), ("user", "sender"), 20_000,
    ),
    "domains": ViewForm(("hour", "tenant", "provider", "domain", "verdict"), ("n",), ("domain",), 30_000),
    "replies": ViewForm(
        ("hour", "zone", "source", "provider", "tenant", "verdict", "class", "shape"), ("n",), ("shape",), 5_000
    ),
    "limits": ViewForm(("hour", "limit"), ("ms", "times"), ("limit",), 5_000),
}  # fmt: skip


class SegmentCounts(NamedTuple):
    """Of a segment. first, last: numbers of its own records, 0: it has none; first_ms, last_ms: their times. examples:
    of shapes. messages: whose those are that may be tried in later segments, by number (`number_of`). damages: places
    that could not be read. missed: messages whose ENVELOPE was not found."""

    first: int
    last: int
    first_ms: int
    last_ms: int
    views: dict[str, Rows]
    examples: dict[str, str]
    messages: dict[int, Whose]
    damages: int
    missed: set[int]


def number_of(message: str) -> int:
    """A message's id as a number of 64 bits; -1: it has another form, and is looked for nowhere."""
    try:
        return int(message, 16) if len(message) == 16 else -1
    except ValueError:
        return -1


def born_ms(number: int) -> int:
    """When the message of that number came in, UNIX ms."""
    return number >> 20


def count(
    data: bytes, from_seq: int, find: Callable[[int], Whose | None], known: Callable[[int], bool] = lambda number: False
) -> SegmentCounts:
    """What a segment file holds from that record on. find: whose a message of another segment is; known: whether an
    earlier segment has its ENVELOPE, too."""
    with no_garbage():
        return _count(data, from_seq, find, known)


@contextmanager
def no_garbage() -> Iterator[None]:
    """A hundred thousand young lists make the collector walk them again and again, and none of them is a cycle."""
    collects = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collects:
            gc.enable()


def _count(
    data: bytes, from_seq: int, find: Callable[[int], Whose | None], known: Callable[[int], bool]
) -> SegmentCounts:
    damages: list[Damage] = []
    bodies: dict[int, tuple[list[int], list[bytes]]] = {kind: ([], []) for kind in _COUNTED}
    first = last = first_ms = last_ms = 0
    head = _HEAD.unpack_from
    for payload in _payloads(data, damages):
        if len(payload) < 17:
            continue
        seq, ms, kind = head(payload)
        if seq < from_seq:
            continue
        if not first:
            first, first_ms = seq, ms
        last, last_ms = seq, ms
        if (group := bodies.get(kind)) is not None:
            group[0].append(ms)
            group[1].append(payload[17:])
    counter = _Counter(find, known, first_ms)
    for kind, take in ((Type.ENVELOPE, counter.envelope), (Type.DELIVERY, counter.delivery),
                       (Type.FINISH, counter.finish), (Type.STANDING, counter.standing)):  # fmt: skip
        for ms, body in zip(bodies[kind][0], _unpacked(bodies[kind][1]), strict=True):
            try:
                take(ms, body)
            except (IndexError, KeyError, TypeError, ValueError, AttributeError):
                damages.append(Damage(0, "a record does not fit its type"))
    views, examples = counter.views()
    return SegmentCounts(
        first, last, first_ms, last_ms, views, examples, counter.unfinished(), len(damages), counter.missed
    )


_COUNTED = (Type.ENVELOPE, Type.DELIVERY, Type.FINISH, Type.STANDING)


def _payloads(data: bytes, damages: list[Damage]) -> Iterator[bytes]:
    """Records as they are joined (seq ms type body), those that can be read whole."""
    parts: list[bytes] = []
    for offset, kind, part in fragments(data, damages):
        if kind == FULL:
            if parts:
                damages.append(Damage(offset, "record without its end"))
                parts = []
            yield part
        elif kind == FIRST:
            parts = [part]
        elif kind == BROKEN:
            parts = []
        elif parts:
            parts.append(part)
            if kind == LAST:
                yield b"".join(parts)
                parts = []


def _unpacked(bodies: list[bytes]) -> Iterator[Any]:
    """Many at once; None for what is no msgpack value."""
    for at in range(0, len(bodies), _AT_ONCE):
        some = bodies[at : at + _AT_ONCE]
        joined = _ARRAY.to_bytes(1, "big") + len(some).to_bytes(4, "big") + b"".join(some)
        try:
            yield from msgpack.unpackb(joined, raw=False, strict_map_key=False)
        except (msgpack.UnpackException, ValueError):
            yield from map(_one, some)


def _one(body: bytes) -> Any:
    try:
        return unpack(body)
    except ValueError:
        return None


class _Counter:
    """Counts records, each type in its order; all ENVELOPE records come before all others."""

    def __init__(self, find: Callable[[int], Whose | None], known: Callable[[int], bool], begins_ms: int) -> None:
        self._find, self._is_known, self._begins_ms = find, known, begins_ms
        self._messages: dict[int, Whose] = {}
        self._known: dict[str, Whose] = {}
        self._over: set[int] = set()
        self._senders: Rows = {}
        self._attempts: list[tuple[Any, ...]] = []
        self._replies: Counter[tuple[Any, ...]] = Counter()
        self._examples: dict[str, str] = {}
        self._limits: Rows = {}
        self.missed: set[int] = set()

    def envelope(self, ms: int, body: list[Any]) -> None:
        message, metadata, recipients = body[:3]
        get, number = metadata.get, number_of(message)
        whose = (
            get("tenant") or "", get("campaign") or "", get("user") or "",
            (get("sender") or "").rpartition("@")[2].lower(),
        )  # fmt: skip
        zones = {recipients[0][0]: 1} if len(recipients) == 1 else Counter([row[0] for row in recipients])
        size = int(get("size") or 0)
        if message in self._known:
            return
        self._known[message] = whose
        if number >= 0:
            self._messages[number] = whose
            if born_ms(number) < self._begins_ms and self._is_known(number):  # a start has written it again
                return
        for place, (zone, count_) in enumerate(zones.items()):
            row = self._of_sender(ms // HOUR_MS, zone, whose)
            row[0] += place == 0
            row[1] += count_
            row[2] += size * (place == 0)

    def _of_sender(self, hour: int, zone: str, whose: Whose) -> Numbers:
        key = (hour, zone, *whose)
        row = self._senders.get(key)
        if row is None:
            row = self._senders[key] = [0] * 7
        return row

    def delivery(self, ms: int, body: list[Any]) -> None:
        message, zone, outcomes, trace = body[1], body[2], body[4], body[5]
        tls, source, provider = trace[2], trace[5], trace[7] if len(trace) > 7 else ""
        whose = self._known.get(message)
        if whose is None:
            whose = self._earlier(message)
        hour = ms // HOUR_MS
        for outcome in outcomes:
            verdict = outcome[0]
            if verdict not in _ATTEMPTS:
                continue
            kind = outcome[7] if len(outcome) > 7 else ""
            for who in outcome[5]:
                address = who if who.__class__ is str else who[0]
                self._attempts.append(
                    (
                        hour,
                        zone,
                        source or "",
                        provider or "",
                        whose,
                        verdict,
                        kind or "",
                        verdict == DELIVERED and bool(tls),
                        address.rpartition("@")[2].lower(),
                    )
                )
            if verdict in _FAILED:
                shape = self._shape(outcome)
                key = (hour, zone, source or "", provider or "", whose[0], VERDICTS[verdict], kind or "", shape)
                self._replies[key] += len(outcome[5])

    def _shape(self, outcome: list[Any]) -> str:
        code, enhanced, reply = outcome[1:4]
        said = (None if code is None else str(code), enhanced or None, reply)
        text = " ".join(one for one in said if one is not None)
        shape = _CHANGING.sub("#", text)[:_SHAPE_MAX]
        example = text[:EXAMPLE_MAX]
        known = self._examples.get(shape)
        if known is None or example < known:
            self._examples[shape] = example
        return shape

    def _earlier(self, message: str) -> Whose:
        """Of a message that came before this segment, or whose ENVELOPE is lost."""
        number = number_of(message)
        whose = self._find(number) if number >= 0 else None
        if whose is None:
            if number >= 0:
                self.missed.add(number)
            whose = UNKNOWN
        self._known[message] = whose
        return whose

    def finish(self, ms: int, body: list[Any]) -> None:
        """Nobody tries it any more, unless another queue has taken it over."""
        if len(body) < 3 or not body[2]:
            self._over.add(number_of(body[0]))

    def standing(self, ms: int, body: list[Any]) -> None:
        if body[0] == WAITED:
            held = body[2]
            row = self._limits.setdefault((ms // HOUR_MS, str(body[1][1])), [0, 0])
            row[0] += int(held["ms"])
            row[1] += int(held["times"])

    def unfinished(self) -> dict[int, Whose]:
        return {number: whose for number, whose in self._messages.items() if number not in self._over}

    def views(self) -> tuple[dict[str, Rows], dict[str, str]]:
        """And the examples of shapes."""
        attempts, domains = Rows(), Rows()
        for key, n in Counter(self._attempts).items():
            hour, zone, source, provider, (tenant, campaign, user, sender), verdict, kind, secure, domain = key
            word, place = VERDICTS[verdict], _PLACES[verdict]
            row = attempts.setdefault((hour, zone, source, provider, tenant, campaign, word, kind), [0, 0])
            row[0] += n
            row[1] += n * secure
            add(domains, (hour, tenant, provider, domain, word), (n,))
            self._of_sender(hour, zone, (tenant, campaign, user, sender))[3 + place] += n
        replies = {key: [n] for key, n in self._replies.items()}
        found = {
            "routes": without(attempts, "attempts", "routes"),
            "owners": without(self._senders, "senders", "owners"),
            "attempts": attempts, "senders": self._senders, "domains": domains, "replies": replies,
            "limits": self._limits,
        }  # fmt: skip
        views = {name: bounded(rows, VIEWS[name]) for name, rows in found.items()}
        shapes = {key[7] for key in views["replies"]}
        return views, {shape: text for shape, text in self._examples.items() if shape in shapes}


_PLACES = {DELIVERED: 0, DEFERRED: 1, BOUNCED: 2, HELD: 3}


def bounded(rows: Rows, form: ViewForm) -> Rows:
    """The rows with the greatest numbers as they are, and the rest under OTHERS, which may make as many again."""
    if len(rows) <= form.rows_max:
        return rows
    places = [form.keys.index(name) for name in form.wide]
    kept = Rows()
    for at, (key, numbers) in enumerate(sorted(rows.items(), key=lambda row: -sum(row[1]))):
        if at >= form.rows_max:
            fields = list(key)
            for place in places:
                fields[place] = OTHERS
            key = tuple(fields)
        add(kept, key, numbers)
    return kept


def without(rows: Rows, view: str, other: str) -> Rows:
    """The rows of a view added up to those of another, which has fewer keys."""
    places = [VIEWS[view].keys.index(key) for key in VIEWS[other].keys]
    sums: Rows = {}
    for key, numbers in rows.items():
        add(sums, tuple([key[place] for place in places]), numbers)
    return sums


def add(rows: Rows, key: tuple[Any, ...], numbers: Iterable[int]) -> None:
    there = rows.get(key)
    rows[key] = list(numbers) if there is None else [a + b for a, b in zip(there, numbers, strict=True)]
