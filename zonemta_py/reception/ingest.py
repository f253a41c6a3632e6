"""One message on its way in: its header section completed, its bytes cut into chunks for the queue.

Blocks of decoded DATA go in; the header section is held back until it is whole, gets its trace fields, and goes out
before the body. What went in comes out byte for byte, but for the fields added (and the empty line after them, if the
message has no header section) and the fields meant for this server, which are removed, whether or not they are obeyed:
X-Sending-Zone, `schedule_fields.FIELDS` and X-Meta-… (`mail.metadata`).

Failures: `refusal` is the reply for a header section that is too long, shows a loop or asks for the impossible; from
then on nothing is kept.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field, replace

from zonemta_py.mail import list_id, metadata
from zonemta_py.mail.addresses.senders import ANYBODY, Senders
from zonemta_py.mail.dkim.canonical import BodyHash, Form
from zonemta_py.mail.envelope import Envelope
from zonemta_py.mail.headers import Headers, split
from zonemta_py.mail.limits import CHUNK_BYTES, HEADER_FIELDS_MAX
from zonemta_py.mail.reply import Reply
from zonemta_py.mail.schedule_fields import DEFAULT_TERMS, FIELDS, InvalidValue, Terms, apply
from zonemta_py.mail.trace import date_field, message_id_field, received
from zonemta_py.reception.permission import refusal

SENDING_ZONE = "X-Sending-Zone"
KEPT = ("subject", "from", "to", "message-id", "date", "list-id", "feedback-id")
"""Fields that go into `Envelope.headers`, decoded; and those that zones are chosen by."""
_TO_US = frozenset(name.lower().encode() for name in (SENDING_ZONE, *FIELDS))
_HEADER_TOO_LONG = Reply(552, "5.3.4", "The header section is longer than this server takes")
_TOO_MANY_FIELDS = Reply(552, "5.3.4", "The header section has more fields than this server takes")
_LOOP = Reply(554, "5.4.6", "Too many Received fields, the message is in a loop")


class Chunks:
    """Cuts a stream into pieces of exactly CHUNK_BYTES, and a last one of 1…CHUNK_BYTES."""

    __slots__ = ("_held", "_pieces", "ready", "total")

    def __init__(self) -> None:
        self.ready: deque[bytes] = deque()
        self._pieces: list[bytes] = []
        self._held = 0
        self.total = 0

    def add(self, block: bytes) -> None:
        self._pieces.append(block)
        self._held += len(block)
        self.total += len(block)
        if self._held > CHUNK_BYTES:
            self._cut()

    def _cut(self) -> None:
        whole = b"".join(self._pieces)
        at = 0
        while len(whole) - at > CHUNK_BYTES:  # one byte more: the last chunk is never empty
            self.ready.append(whole[at : at + CHUNK_BYTES])
            at += CHUNK_BYTES
        self._pieces = [whole[at:]]
        self._held = len(whole) - at

    def last(self) -> bytes:
        """What is left at the end."""
        return self._pieces[0] if len(self._pieces) == 1 else b"".join(self._pieces)


@dataclass(slots=True, frozen=True)
class IngestRules:
    """The same for all messages of a listener. host: our name. trust_zone: X-Sending-Zone may choose the zone.

    trust_fields: obey the other fields meant for us. takes_metadata: also X-Meta-…, which choose nothing, and so need
    no trust but that mail may be handed in. chosen: lower-case names of fields that come back with what is told. kept:
    lower-case names of fields for the envelope.
    hooked: plugins see the body, so it is kept in `Arrival.unseen` for them instead of being cut at once.
    body_form: in which the body is hashed as it passes, for signatures to come; None: not at all.
    """

    host: str
    trust_zone: bool
    header_bytes: int
    hops: int
    hooked: bool = False
    trust_fields: bool = False
    terms: Terms = DEFAULT_TERMS
    kept: tuple[str, ...] = KEPT
    body_form: Form | None = None
    takes_metadata: bool = True
    chosen: tuple[str, ...] = ()
    kept_names: dict[bytes, str] = field(init=False)

    def distrusting(self) -> IngestRules:
        """The same, but none of the fields meant for us speaks."""
        return replace(self, trust_zone=False, trust_fields=False)

    def of_strangers(self) -> IngestRules:
        """The same of mail that is only forwarded: its metadata say nothing either."""
        return replace(self.distrusting(), takes_metadata=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "kept_names", {name.encode(): name for name in self.kept})


class Ingest:
    """opening: the Received field up to its id (`Trace.opening`). transaction: that id. now_ms: when DATA began.

    senders: who the author may be.

    headers: None until the header section is complete; then without the fields meant for us, with Date and Message-ID,
    and without our Received.
    """

    __slots__ = (
        "_hash", "_opening", "_rules", "_said", "_section", "_senders", "_transaction", "chunks", "envelope",
        "headers", "now_ms", "refusal", "unseen",
    )  # fmt: skip

    def __init__(
        self, rules: IngestRules, envelope: Envelope, opening: str, transaction: str, now_ms: int,
        senders: Senders = ANYBODY,
    ) -> None:  # fmt: skip
        self._senders = senders
        self._rules, self._opening, self._transaction = rules, opening, transaction
        self._section = bytearray()
        self._said: dict[str, str] = {}
        self._hash = BodyHash(rules.body_form) if rules.body_form else None
        self.envelope, self.now_ms = envelope, now_ms
        self.headers: Headers | None = None
        self.refusal: Reply | None = None
        self.chunks = Chunks()
        self.unseen: deque[bytes] = deque()

    def add(self, block: bytes) -> None:
        """Takes the next bytes of the message, line ends already CRLF."""
        if self.refusal is not None or not block:
            return
        if self.headers is not None:
            if self._rules.hooked:
                self.unseen.append(block)
            else:
                self.keep(block)
            return
        section = self._section
        if not section and b"\r\n\r\n" in block:
            self._read_header(block)
            return
        seam = max(0, len(section) - 3)
        section += block
        if len(section) > self._rules.header_bytes or section.find(b"\r\n\r\n", seam) >= 0 or section[:2] == b"\r\n":
            self._read_header(bytes(section))

    def finish(self) -> None:
        """The message is complete; one that is all header section is known to be so only now."""
        if self.headers is None and self.refusal is None:
            self._read_header(bytes(self._section))

    def _read_header(self, whole: bytes) -> None:
        self._section = bytearray()
        headers, end = split(whole)
        if end > self._rules.header_bytes:
            self.refusal = _HEADER_TOO_LONG
        elif len(headers.fields) > HEADER_FIELDS_MAX:
            self.refusal = _TOO_MANY_FIELDS
        elif headers.names.count(b"received") > self._rules.hops:
            self.refusal = _LOOP
        elif self._senders.bound and (author := self._senders.refused(headers.all("from"))) is not None:
            self.refusal = refusal(author)
        else:
            self._complete(headers, whole, end)

    def _complete(self, headers: Headers, whole: bytes, end: int) -> None:
        fields = whole[:end]
        meta = metadata.FIELD in b"\n".join(headers.names)
        if meta or not _TO_US.isdisjoint(headers.names):
            self._listen(headers, meta)
            if self.refusal is not None:
                return
            fields = headers.build()
        fields += self._add_missing(headers)
        self.headers = headers
        self.note_headers()
        body = whole[end:]
        if self._rules.hooked:
            self.unseen.append(body[2:] if body.startswith(b"\r\n") else body)
            return
        if body and not body.startswith(b"\r\n"):
            fields += b"\r\n"  # there is a body but no empty line before it
        if self._hash is not None:
            self._hash.add(body[2:] if body.startswith(b"\r\n") else body)
        self.chunks.add(b"".join((self.trace(), fields, body)))

    def keep(self, block: bytes) -> None:
        """A block of the body as it is stored."""
        if self._hash is not None:
            self._hash.add(block)
        self.chunks.add(block)

    def note_hash(self) -> None:
        """The body is complete: its hash goes into the envelope."""
        if self._hash is not None and self._rules.body_form:
            self.envelope.hashes = {self._rules.body_form: self._hash.digest()}

    def _listen(self, headers: Headers, meta: bool) -> None:
        """Removes the fields meant for us, and obeys them if they are trusted. meta: there may be metadata."""
        if meta:
            self._take_metadata(headers)
        zone = headers.decoded(SENDING_ZONE)  # as all that is kept: bounded, and no bytes that are not text
        if self._rules.trust_zone and zone:
            self.envelope.sending_zone = zone
            if SENDING_ZONE.lower() in self._rules.kept:
                self._said[SENDING_ZONE.lower()] = zone
        headers.remove(SENDING_ZONE)
        said: dict[str, str] = {}
        for name in FIELDS:
            if name in headers:
                said[name] = headers.decoded(name)
                headers.remove(name)
        if not self._rules.trust_fields:
            return
        try:
            apply(self.envelope, said, self._rules.terms, self.now_ms)
        except InvalidValue as invalid:
            self.refusal = Reply(550, "5.6.0", str(invalid))
        self._said |= {name.lower(): value for name, value in said.items() if name.lower() in self._rules.kept}

    def _take_metadata(self, headers: Headers) -> None:
        names = [name.decode("latin-1") for name in headers.names if name.startswith(metadata.FIELD)]
        most = metadata.MESSAGE_BYTES_MAX + 1
        fields = [(name, headers.decoded(name, most)) for name in names if name.isascii()]
        fields += [(name, "") for name in names if not name.isascii()]
        headers.remove_like(metadata.FIELD)
        if not self._rules.takes_metadata:
            return
        try:
            said = metadata.of_fields(fields)
        except metadata.InvalidMetadata as invalid:
            self.refusal = Reply(550, "5.6.0", str(invalid))
            return
        self.envelope.meta = said | (self.envelope.meta or {})  # what is beside the message, as with HTTP, counts more
        if wrong := metadata.fault(self.envelope.meta, metadata.MESSAGE_BYTES_MAX):
            self.refusal = Reply(550, "5.6.0", f"the metadata, with X-Meta fields, {wrong}")

    def _add_missing(self, headers: Headers) -> bytes:
        added = b""
        if b"date" not in headers.names:
            added = date_field(self.now_ms)
            headers.append(added[:-2])
        if b"message-id" not in headers.names:
            identity = message_id_field(self._transaction, self.now_ms, self._rules.host)
            headers.append(identity[:-2])
            added += identity
        return added

    def trace(self) -> bytes:
        """Our Received field; the recipient is named only where it is the only one."""
        recipients = self.envelope.recipients
        recipient = recipients[0].address if len(recipients) == 1 else None
        return received(self._opening, self._transaction, recipient, self.now_ms)

    def note_headers(self) -> None:
        """Copies the chosen fields into the envelope; once more after plugins have changed them."""
        headers = self.headers
        if headers is not None:
            self.envelope.headers = found = headers.chosen(self._rules.kept_names)
            if len(found.get(list_id.FIELD, "")) == list_id.KEPT_MAX:  # it was cut, and what names the list comes last
                found[list_id.FIELD] = list_id.kept(headers.decoded(list_id.FIELD, list_id.READ_MAX))
            if self._said:
                self.envelope.headers |= self._said
            if self._rules.chosen:
                self.envelope.chosen = {name: found[name] for name in self._rules.chosen if found.get(name)}
            no = b"tls-required" in headers.names and headers.get("TLS-Required").strip().lower() == "no"
            self.envelope.tls_optional = no and not self.envelope.require_tls  # RFC 8689 4.2

    def store_header(self) -> None:
        """Hooked messages only: gives out the header section as plugins have left it."""
        if self.headers is not None:
            self.chunks.add(b"".join((self.trace(), self.headers.build(), b"\r\n")))
