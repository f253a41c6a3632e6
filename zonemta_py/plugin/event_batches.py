"""Events as a plugin's `event` gets them: what happened to mail, from the journal (docs/EVENTS.md)."""

from __future__ import annotations

import json
from typing import Any


class MailEvent:
    """One event. id: stable, the same when it comes again, after a crash or in a replay. type: "delivered", "bounced"
    …, as `zonemta events schema` lists them. message: the id of the message, "" where there is none. ms: UNIX time in
    ms. body: all of it as CloudEvents 1.0 JSON on one line, UTF-8, as a webhook would get it."""

    __slots__ = ("_data", "_refused", "body", "id", "message", "ms", "type")

    def __init__(self, id: str, type: str, message: str, ms: int, body: bytes) -> None:
        self.id, self.type, self.message, self.ms, self.body = id, type, message, ms, body
        self._data: dict[str, Any] | None = None
        self._refused: str | None = None

    @property
    def data(self) -> dict[str, Any]:
        """Its fields, such as recipient, zone, reply: docs/EVENTS.md."""
        if self._data is None:
            self._data = json.loads(self.body)["data"]
        assert self._data is not None
        return self._data

    @property
    def refused(self) -> str | None:
        """Why it was refused; None: it was not."""
        return self._refused

    def reject(self, reason: str) -> None:
        """It will never be taken: it becomes a dead letter (`zonemta events dead`), and the others have arrived."""
        self._refused = str(reason)

    def __repr__(self) -> str:
        return f"MailEvent({self.id!r}, {self.type!r})"
