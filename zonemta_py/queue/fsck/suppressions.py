"""Checks the suppression list against the journal, keys of requests against their expiry, and what evidence says."""

from __future__ import annotations

from collections.abc import Iterator

from zonemta_py.disk import keys, packing
from zonemta_py.disk.frame import Record
from zonemta_py.disk.leveldb.store import Store
from zonemta_py.journal.records import Type
from zonemta_py.journal.records.people import UnsuppressRecord
from zonemta_py.queue.fsck.campaigns import Finding
from zonemta_py.queue.lifecycle.requests import RequestRecord
from zonemta_py.queue.suppression.entry import ALL, WHOLE_BEGINS, Suppressed, operations
from zonemta_py.queue.suppression.evidence import Evidence


class Listed:
    """What the remaining journal says about the list."""

    def __init__(self) -> None:
        self.last: dict[bytes, bytes | None] = {}
        """The value by key; None: removed from the list."""
        self._begun = self.whole = False
        """whole: the list was written completely, whatever was lost before."""

    def take(self, record: Record) -> None:
        if record.type in (Type.SUPPRESS, Type.UNSUPPRESS):
            body = packing.unpack(record.body)
            self.last.update(operations(Type(record.type), body))
            self._begun |= record.type == Type.UNSUPPRESS and UnsuppressRecord.of(body) == WHOLE_BEGINS
            self.whole |= record.type == Type.SUPPRESS and not body and self._begun


def findings(store: Store, listed: Listed, lossy: bool, lost: bool) -> Iterator[Finding]:
    """lossy: the journal has lost records; the store is believed then. lost: so has the store; people it does not know
    stay listed, as damage must not cause mail to anyone on the list."""
    yield from _entries(store)
    if not lossy or lost:
        yield from _against_journal(store, listed, only_missing=lossy)
    yield from _requests(store)
    yield from _evidence(store)


def _entries(store: Store) -> Iterator[Finding]:
    for family in (keys.SUPPRESSED, keys.SUPPRESSED_IN):
        for key, value in store.scan(family, keys.end(family)):
            try:
                Suppressed.kept(key, value)
            except (ValueError, TypeError):
                name = key.removeprefix(family).decode("utf-8", "replace")
                kept = Suppressed(name, "manual", 0, "its entry was damaged", "", "fsck", "")
                yield Finding(
                    "repairable", "an entry of the suppression list cannot be read", name, "it stays listed, as manual",
                    [(key, kept.value())],
                )  # fmt: skip


def _against_journal(store: Store, listed: Listed, only_missing: bool) -> Iterator[Finding]:
    for key, value in listed.last.items():
        there = store.get(key)
        if there == value or (only_missing and (there is not None or value is None)):
            continue
        address, scope = keys.suppressed_place(key)
        if scope != ALL:
            address += f", scope {scope},"
        what, remedy = "is listed otherwise than the journal says", "it is listed as there"
        if value is None:
            what, remedy = "is on the suppression list and was taken off it", "it goes"
        yield Finding("repairable", f"{address} {what}", "suppression list", remedy, [(key, value)])


def _evidence(store: Store) -> Iterator[Finding]:
    for key, value in store.scan(keys.EVIDENCE, keys.end(keys.EVIDENCE)):
        try:
            Evidence.of("", value)
        except (ValueError, TypeError):
            name = key.removeprefix(keys.EVIDENCE).decode("utf-8", "replace")
            yield Finding(
                "repairable", "evidence about an address cannot be read", name, "dropped: replies count from zero",
                [(key, None)],
            )  # fmt: skip


def _requests(store: Store) -> Iterator[Finding]:
    for key, value in store.scan(keys.REQUESTS, keys.end(keys.REQUESTS)):
        name = key.removeprefix(keys.REQUESTS).decode("utf-8", "replace")
        try:
            kept = RequestRecord.of(value)
        except (ValueError, TypeError):
            yield Finding("repairable", "the key of a request cannot be read", name, "it goes", [(key, None)])
            continue
        end = keys.request_end(kept.until_ms, key)
        if kept.until_ms and store.get(end) is None:
            yield Finding("repairable", "the key of a request has no end", name, "it gets one", [(end, b"")])
    for end in store.keys(keys.REQUEST_ENDS, keys.end(keys.REQUEST_ENDS)):
        if store.get(keys.REQUESTS + end.split(b" ", 2)[2]) is None:
            name = end.removeprefix(keys.REQUEST_ENDS).decode("utf-8", "replace")
            yield Finding("repairable", "a request that is gone has an end", name, "it goes", [(end, None)])
