"""Bodies of journal records and of the store's values, as msgpack. Grammar and examples: FORMAT.md.

Every record type is a function that packs it; readers get plain lists and dicts. A body only ever grows at its end;
readers ignore what they do not know, so old readers read new journals and new readers old ones.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import IntEnum
from typing import Any, NamedTuple

import msgpack

from zonemta_py.mail.limits import REPLY_TEXT_STORED_MAX


class Type(IntEnum):
    """What a journal record says. Numbers are for ever."""

    SEGMENT = 0  # {version, first, floor}: the first record of every segment
    ENVELOPE = 1  # [id, metadata, [[zone, address, notify, orcpt]…]]: a message was accepted
    OPEN = 2  # [id]: chunks of a large message start to arrive
    START = 3  # [lease, id, zone, destination, recipients, since_ms]: handed to a sender
    DELIVERY = 4  # [lease, id, zone, destination, outcomes, trace]: what the remote server said
    FINISH = 5  # [id]: no recipient is left
    POSITION = 6  # {…}: where a restart begins
    IN_DOUBT = 7  # [[id, zone, address, since_ms, action]…]: found at a restart or when a sender died
    REMOVED = 8  # [id, zone, addresses, reason, where]: taken out, or not taken up, without a delivery
    MOVED = 9  # [id, zone, addresses, due_ms]: held recipients released by an operator, deferred until then
    END = 10  # nil: the last record of a segment
    STANDING = 12  # [change, [kind, name], value, cause]: a stop, a rest, what was learned
    SUPPRESS = 13  # [[address, kind, since_ms, reason, evidence, by, campaign, scope, also, again]…]: gets no mail
    UNSUPPRESS = 14  # [[address…], by, [scope…]]: taken off that list
    LOST = 11  # [first, last]: records that damage has cost, replaced by this one, which has the number of the last


DELIVERED, DEFERRED, BOUNCED, HELD, RELEASED, POSTPONED = 1, 2, 3, 4, 5, 6
"""Verdicts of an outcome. HELD: a plugin held it. RELEASED: not tried, back to the queue, no attempt counted.
POSTPONED: not tried, deferred by our own choice (`delay_s`), no attempt counted.
"""


pack: Callable[[Any], bytes] = msgpack.Packer(use_bin_type=True, autoreset=True).pack
"""(value) → bytes. One packer for all: a new one for each value, as `packb` makes, costs more than the packing. It is
one call of C, which no other thread comes between."""


def unpack(data: bytes) -> Any:
    """Raises ValueError when the bytes are not one msgpack value."""
    try:
        return msgpack.unpackb(data, raw=False, strict_map_key=False)
    except (msgpack.UnpackException, ValueError, UnicodeDecodeError) as error:
        raise ValueError(f"not msgpack: {error}") from None


class Note(NamedTuple):
    """Value of a recipient key: what is known of the recipient besides its address. All default: empty value.

    notify, orcpt: RFC 3461. attempts: how often it was tried. first_ms, last_ms: first and latest try. last: latest
    reply as "code enhanced text". noticed: a delay notice has been sent. routing: what plugins decided (host, port,
    source …). flow: "priority~tenant~campaign" where one of them is set. deadline_ms: when it is to be
    returned, or its sender told; 0: never, or done. put_off_ms: when it was last put off without an attempt. values: of
    a merged message, what its template is filled with; else None. kept_ms: for how long it was held by choice, which is
    not of its life; below 0 while it is held: that, less the (steady) time at which it was. seq: number of the record
    that put it where it is. away: the latest try failed only for its destination being away. counted:
    it is in the tally of its campaign although it is not merged.
    """

    notify: int = 0
    orcpt: str | None = None
    attempts: int = 0
    first_ms: int = 0
    last_ms: int = 0
    last: str = ""
    noticed: bool = False
    routing: dict[str, Any] | None = None
    flow: str = ""
    deadline_ms: int = 0
    put_off_ms: int = 0
    values: list[str] | None = None
    kept_ms: int = 0
    seq: int = 0
    away: bool = False
    counted: bool = False

    def value(self) -> bytes:
        return b"" if self == _PLAIN else pack(self)

    def tried(self, now_ms: int, reply: str) -> Note:
        """After one more attempt, which ended with that reply."""
        return self._replace(
            attempts=self.attempts + 1,
            first_ms=self.first_ms or now_ms,
            last_ms=now_ms,
            last=reply[:REPLY_TEXT_STORED_MAX],
            away=False,
        )

    @property
    def tallied(self) -> bool:
        """Whether it is its campaign's, which counts it, and may be canceled."""
        return self.counted or self.values is not None

    def held(self, now_ms: int) -> Note:
        """From that (steady) time on it is held by choice."""
        return self._replace(kept_ms=max(0, self.kept_ms) - now_ms)

    @classmethod
    def of(cls, value: bytes) -> Note:
        return cls(*unpack(value)[:_FIELDS]) if value else _PLAIN


_PLAIN = Note()
_FIELDS = len(_PLAIN)


class Existence(NamedTuple):
    """Value of `message <id> #`."""

    created_ms: int
    total: int
    left: int

    def value(self) -> bytes:
        return pack(self)

    @classmethod
    def of(cls, value: bytes) -> Existence:
        return cls(*unpack(value))
