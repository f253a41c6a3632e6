"""What a filter may ask about a recipient (`where.py`), read from the queue only when it is asked for.

Failures: StoreError if a message cannot be read; one whose metadata are damaged has none, since leasing deals with it.
"""

from __future__ import annotations

import re
from typing import Any

from zonemta_py.disk import keys
from zonemta_py.disk.leveldb.store import StoreDamaged
from zonemta_py.disk.notes import Note
from zonemta_py.mail.classify import own_class
from zonemta_py.mail.headers import Headers
from zonemta_py.mail.reply import Reply
from zonemta_py.queue.core.core import Core
from zonemta_py.queue.core.messages import Message
from zonemta_py.queue.core.state import FAMILY, State
from zonemta_py.queue.lifecycle.classification import load
from zonemta_py.schedule.flow import FlowId, split_key

_REPLY = re.compile(r"(\d{3})(?: ([245]\.\d{1,3}\.\d{1,3}))?(?: (.*))?", re.DOTALL)
_STAGES = "rcpt", "dot"
"""A note does not say in which stage its reply came: as that of a recipient, else of a message."""


class Sight:
    """The queue as filters see it. now_ms: steady time by which ages count. seq: of the record that ordered a task, for
    which states are those of that moment; 0: of now."""

    __slots__ = ("_header", "core", "now_ms", "seq")

    def __init__(self, core: Core, now_ms: int, seq: int = 0) -> None:
        self.core, self.now_ms, self.seq = core, now_ms, seq
        self._header: tuple[str, Headers] = ("", Headers())

    def of(self, key: bytes, value: bytes, state: str = "") -> Candidate:
        """Of a recipient's key and value. state: if that is not its key's."""
        return Candidate(self, keys.place(key), value, state)

    def header(self, message_id: str) -> Headers:
        """The last one asked for is remembered: a message's recipients come together."""
        if self._header[0] != message_id:
            message = self._message(message_id)
            text = self.core.messages.text(message) if message is not None else b""
            self._header = message_id, Headers.parse(text)
        return self._header[1]

    def metadata(self, message_id: str) -> dict[str, Any]:
        message = self._message(message_id)
        return message.metadata if message is not None else {}

    def _message(self, message_id: str) -> Message | None:
        try:
            return self.core.messages.look(message_id)
        except StoreDamaged:
            return None


class Candidate:
    """One recipient: `where.Facts`."""

    __slots__ = ("_flow", "_metadata", "_note", "_sight", "_state", "_way", "id", "place", "recipient", "zone")

    def __init__(self, sight: Sight, place: keys.Place, note: bytes | Note, state: str = "") -> None:
        self._sight, self.place, self._note, self._state = sight, place, note, state
        self.id, self.zone, self.recipient = place.id, place.zone, place.recipient
        self._flow: FlowId | None = None
        self._metadata: dict[str, Any] | None = None
        self._way: tuple[str, str, str] | None = None

    @property
    def note(self) -> Note:
        if isinstance(self._note, bytes):
            self._note = Note.of(self._note)
        return self._note

    @property
    def domain(self) -> str:
        return self.recipient.rpartition("@")[2]

    @property
    def state(self) -> str:
        """As its key says; but what was leased when a task was ordered is so for that task, wherever it is now."""
        if self._state:
            return self._state
        later = 0 < self._sight.seq < self.note.seq
        return State.LEASED if later else FAMILY[self.place.family]

    @property
    def age_s(self) -> float:
        return (self._sight.now_ms - self._sight.core.clock.born_ms(self.id)) / 1000

    @property
    def flow(self) -> FlowId:
        if self._flow is None:
            self._flow = FlowId.of(self.note.flow)
        return self._flow

    @property
    def campaign(self) -> str:
        return self.flow.campaign

    @property
    def tenant(self) -> str:
        return self.flow.tenant

    @property
    def priority(self) -> int:
        return self.flow.priority

    @property
    def kind(self) -> str:
        """The class of its latest reply, by the rules of now."""
        found = _REPLY.fullmatch(self.note.last)
        if found is None:
            return ""
        reply = Reply(int(found[1]), found[2] or "", found[3] or "")
        if kind := own_class(reply):
            return kind
        rules = load(self._sight.core.config)
        for stage in ("connect",) if self.note.away else _STAGES:
            kind = rules.judge(reply, stage, self.provider).kind
            if kind != "undefined":
                break
        return kind

    # -- where it goes

    @property
    def site(self) -> str:
        return self._going()[0]

    @property
    def source(self) -> str:
        return self._going()[1]

    @property
    def provider(self) -> str:
        return self._going()[2]

    def _going(self) -> tuple[str, str, str]:
        """Site, source, provider, as far as they are known now."""
        if self._way is None:
            self._way = self._looked_up()
        return self._way

    def _looked_up(self) -> tuple[str, str, str]:
        zone = self._sight.core.schedule.zones.get(self.zone)
        if zone is None:
            return self.domain, "", ""
        _, target, source, provider = zone.flow_queues.where(self.id, self.recipient, self.note)
        site = target.key
        if self.place.destination and site == self.domain:  # its site was known when it was parked
            site, source, _ = split_key(self.place.destination)
        path = zone.flow_queues.paths.get((site, source))
        return site, source, provider or (path.provider if path is not None else "")

    # -- of its message

    @property
    def metadata(self) -> dict[str, Any]:
        if self._metadata is None:
            self._metadata = self._sight.metadata(self.id)
        return self._metadata

    @property
    def sender(self) -> str:
        return self.metadata.get("sender") or ""

    @property
    def user(self) -> str:
        return self.metadata.get("user") or ""

    @property
    def subject(self) -> str:
        return str(self.metadata.get("headers", {}).get("subject", ""))

    def header(self, name: str) -> list[str]:
        return self._sight.header(self.id).all(name)
