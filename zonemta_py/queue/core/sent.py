"""What is remembered of messages after they have ended, so that what comes back can be tied to them.

Only where a return path is configured (`return_path.verp`), and written in the batch that accepts them: one row of all
messages of the batch (id, zone, tenant, campaign, list, scope; a key for each would cost more than all the rest), and a
key for each that leads from its Message-ID to its id. They are forgotten after `return_path.days`: ids are ordered by
time.
Nobody is named in them but recipients whose address is too long for a return path, which has a hash instead: a key for
each leads from that to the address, as long as an address to unsubscribe at may have that hash, too.

Of mail with metadata these are remembered as long, whatever is configured: a key for the message, and for each of its
recipients that has some of its own.

A store that is lost to damage has lost them too: then a return path still says which message and recipient it was.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from hashlib import blake2b
from itertools import islice
from typing import Any, NamedTuple

from zonemta_py.config import Config
from zonemta_py.disk import keys, packing
from zonemta_py.disk.leveldb.store import Operation, Store
from zonemta_py.mail.addresses.person import person
from zonemta_py.mail.addresses.verp import mark_of
from zonemta_py.mail.envelope import Envelope, Recipient
from zonemta_py.mail.list_id import list_of
from zonemta_py.mail.metadata import About

AT_ONCE = 100
"""Rows that are looked at, or forgotten, at once."""
_ID, _NAME = 16, 8
_NONE = bytes(_NAME)
_DAY_MS = 86_400_000


class SentMessage(NamedTuple):
    """zone: of its first recipient, "" unknown. list_name: of its list (`mail.list_id`), "" none. scope: what leaving
    it stops (`Envelope.unsubscribe_scope`)."""

    zone: str
    tenant: str = ""
    campaign: str = ""
    list_name: str = ""
    scope: str = ""


class _Row(NamedTuple):
    """Messages that are alike, in the order of their ids; the name of each is that of its Message-ID."""

    ids: list[str]
    names: list[bytes]


_Alike = tuple[str, str | None, str | None, str, str]
"""Zone, tenant, campaign, list, scope."""


class Sent:
    """Of all messages of the last `return_path.days` days."""

    def __init__(self, store: Store, config: Config) -> None:
        self._store = store
        self.unwritten = dict[_Alike, _Row]()
        """What the next batch will have."""
        self.written = self.unwritten
        self._last = ""
        self.configure(config)

    def configure(self, config: Config) -> None:
        """Another configuration from now on."""
        self.remembers = bool(config.return_path.verp)
        path = config.return_path
        self._days = path.days
        self._named_days = max(path.days, path.unsubscribe_days if path.unsubscribe_domain else 0)

    def note(self, message_id: str, envelope: Envelope, zone: str) -> Sequence[Operation]:
        """What goes into the batch that accepts it, besides `changes`. zone: of its first recipient."""
        if not self.remembers or not envelope.sender:
            return ()
        text = envelope.headers.get("message-id", "")
        name = named(text) if text else _NONE
        alike = zone, envelope.tenant, envelope.campaign, list_of(envelope.headers), envelope.unsubscribe_scope
        found: list[Operation] = [(keys.sent_as(name), message_id.encode())] if text else []
        for recipient in envelope.recipients:
            if mark := mark_of(recipient.address):
                found.append((keys.sent_to(message_id, mark), recipient.address.encode("utf-8", "surrogateescape")))
        if message_id > self._last:
            self._last = message_id
            row = self.unwritten.get(alike)
            if row is None:
                row = self.unwritten[alike] = _Row([], [])
            row.ids.append(message_id)
            row.names.append(name)
        else:  # a large one, whose id is as old as its first chunk
            found.append((keys.sent(message_id), _packed({alike: _Row([message_id], [name])})))
        return found

    def note_about(self, message_id: str, metadata: Mapping[str, Any], people: Sequence[Recipient]) -> list[Operation]:
        """The same of its metadata. people: those that are accepted."""
        found: list[Operation] = [
            (keys.sent_about(message_id, person(one.address)), packing.pack(one.meta)) for one in people if one.meta
        ]
        only = person(people[0].address) if len(people) == 1 else ""
        own = metadata.get("meta") or {}, metadata.get("chosen") or {}
        return [*found, (keys.sent_about(message_id), packing.pack([*own, only]))]

    def about(self, message_id: str, recipient: str) -> About | None:
        """What a record about them tells (`mail.metadata`). Raises StoreError."""
        value = self._store.get(keys.sent_about(message_id))
        if value is None:
            return None
        own, chosen, _ = packing.unpack(value)
        theirs = self._store.get(keys.sent_about(message_id, person(recipient))) if recipient else None
        known = {recipient: packing.unpack(theirs)} if theirs is not None else {}
        return [own, chosen, known] if own or chosen or known else None

    @staticmethod
    def about_person(rows: list[tuple[bytes, bytes]], who: str) -> list[Operation]:
        """What forgets a person's metadata, and those of messages that were for nobody else. rows: of the store."""
        return [
            (key, None)
            for key, value in rows
            if (packing.unpack(value)[2] if key.endswith(b" ") else _person_of(key)) == who
        ]

    def changes(self) -> list[Operation]:
        """The row of those noted since the last call."""
        self.written, self.unwritten = self.unwritten, {}
        if not self.written:
            return []
        return [(keys.sent(max(row.ids[-1] for row in self.written.values())), _packed(self.written))]

    def not_written(self) -> None:
        """The batch with the last changes did not reach the disk: writes them with the next one."""
        for alike, row in self.written.items():
            fresh = self.unwritten.get(alike, _Row([], []))
            self.unwritten[alike] = _Row(row.ids + fresh.ids, row.names + fresh.names)
        self.written = {}

    def get(self, message_id: str) -> SentMessage | None:
        """Also of one that waits, and is not remembered. Raises StoreError."""
        start = keys.sent(message_id)
        for _, value in islice(self._store.scan(start, keys.end(keys.SENT)), AT_ONCE):
            for message, ids, _ in _rows(value):
                if message_id in ids:
                    return message
        waits = self._store.get(keys.metadata(message_id))
        if waits is None:
            return None
        metadata: dict[str, Any] = packing.unpack(waits)
        list_name = list_of(metadata.get("headers"))
        scope = metadata.get("unsubscribe_scope", "")
        return SentMessage("", metadata.get("tenant", ""), metadata.get("campaign", ""), list_name, scope)

    def called(self, message_id_field: str) -> str:
        """Our id of the message with that Message-ID; "" if there is none. Raises StoreError."""
        value = self._store.get(keys.sent_as(named(message_id_field))) if message_id_field else None
        return value.decode() if value is not None else ""

    def recipient(self, message_id: str, mark: str) -> str:
        """Whom our addresses name by that hash; "": nobody is known. Raises StoreError."""
        value = self._store.get(keys.sent_to(message_id, mark.lower())) if message_id else None
        return value.decode("utf-8", "surrogateescape") if value is not None else ""

    def expired(self, now_ms: int) -> list[Operation]:
        """What is too old, AT_ONCE rows at most. Raises StoreError."""
        oldest = keys.id_at(now_ms - self._days * _DAY_MS).encode()
        named = keys.SENT_TO + keys.id_at(now_ms - self._named_days * _DAY_MS).encode()
        long = islice(self._store.keys(keys.SENT_TO, named), AT_ONCE)
        found: list[Operation] = [(key, None) for key in long]
        about = islice(self._store.keys(keys.SENT_ABOUT, keys.SENT_ABOUT + oldest), AT_ONCE)
        found += [(key, None) for key in about]
        for key, value in islice(self._store.scan(keys.SENT, keys.SENT + oldest), AT_ONCE):
            found.append((key, None))
            names = (name for _, _, names in _rows(value) for name in names)
            found += [(keys.sent_as(name), None) for name in names if name != _NONE]
        return found


def _person_of(key: bytes) -> str:
    return key.split(b" ", 2)[2].decode("utf-8", "surrogateescape")


def named(message_id_field: str) -> bytes:
    """64 bits of a Message-ID's hash. What stands around the brackets is left out."""
    text = message_id_field
    begin, end = text.find("<"), text.find(">")
    text = text[begin + 1 : end] if 0 <= begin < end else text.strip()
    return blake2b(text.encode("utf-8", "surrogateescape"), digest_size=_NAME).digest()


def _packed(rows: dict[_Alike, _Row]) -> bytes:
    return packing.pack([
        [zone, tenant or "", campaign or "", "".join(row.ids).encode(), b"".join(row.names), *_more(name, scope)]
        for (zone, tenant, campaign, name, scope), row in rows.items()
    ])  # fmt: skip


def _more(name: str, scope: str) -> list[str]:
    """What most rows have not."""
    return [name, scope] if scope else [name] if name else []


def _rows(value: bytes) -> list[tuple[SentMessage, list[str], list[bytes]]]:
    """Of a row: messages that are alike, their ids, and the name of each."""
    return [
        (SentMessage(*row[:3], *row[5:7]), [part.decode() for part in _cut(row[3], _ID)], _cut(row[4], _NAME))
        for row in packing.unpack(value)
    ]


def _cut(data: bytes, step: int) -> list[bytes]:
    return [data[at : at + step] for at in range(0, len(data), step)]
