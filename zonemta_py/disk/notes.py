"""Values of the store that are more than one word: what is known of a recipient, and of a message. Grammar: FORMAT.md.

As with bodies of records, a value only grows at its end, and readers ignore what they do not know.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from zonemta_py.disk.packing import pack, unpack
from zonemta_py.mail.limits import REPLY_TEXT_STORED_MAX


class Note(NamedTuple):
    """Value of a recipient key: what is known of the recipient besides its address. All default: empty value.

    notify, orcpt: RFC 3461. attempts: how often it was tried. first_ms, last_ms: first and latest try. last: latest
    reply as "code enhanced text". noticed: a delay notice has been sent. routing: what plugins decided, by name
    (FORMAT.md). flow: "priority~tenant~campaign" where one of them is set. deadline_ms: when it is to be returned, or
    its sender told; 0: never, or done. put_off_ms: when it was last postponed without an attempt. values: of a merged
    message, what its template is filled with; else None. kept_ms: how long it was held by choice, which does not count
    toward its lifetime; below 0 while held: that, less the (steady) time at which it was held. seq: number of the
    record that put it where it is. away: the latest try failed only because its destination was away. counted: it is in
    the tally of its campaign although it is not merged. done: what tasks have done to it that can be undone, the latest
    last (`queue.tasks.change`). life_h: its lifetime, if a task has set it; 0: that of its message. early: a task has
    said when it goes, so that its message's hold (X-Deliver-After) is over for it. notes: what plugins keep with it.
    meta: its metadata (`mail.metadata`), {} if only its message has some, None: nobody has.
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
    done: list[Any] | None = None
    life_h: float = 0
    early: bool = False
    notes: dict[str, Any] | None = None
    meta: dict[str, Any] | None = None

    def value(self) -> bytes:
        return b"" if self is PLAIN or self == PLAIN else pack(self)

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

    def freed(self, now_ms: int) -> Note:
        """It is held no longer. Older versions did not record since when it was held."""
        return self._replace(kept_ms=self.kept_ms + now_ms) if self.kept_ms < 0 else self

    @classmethod
    def of(cls, value: bytes) -> Note:
        return cls(*unpack(value)[:_FIELDS]) if value else PLAIN


PLAIN = Note()
"""Of most recipients."""
_FIELDS = len(PLAIN)


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
