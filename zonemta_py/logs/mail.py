"""One line for each message that is accepted, and for each answer about a recipient. Never of the content.

What lines say is gathered, and they are made and written together, twenty times a second or more often: one after the
other they cost less than one by one between other work (text: by a third). Promise: nothing here raises or waits.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import Callable, Sequence
from typing import Any

from zonemta_py.config import Config
from zonemta_py.journal.records.people import FeedbackRecord
from zonemta_py.logs.privacy import Persons
from zonemta_py.logs.setup import Filter, people, stream
from zonemta_py.logs.shape import SHAPES, Shape
from zonemta_py.mail import metadata as meta
from zonemta_py.mail.metadata import About

FLUSH_S = 0.05
GATHERED_MAX = 500
"""Lines that are made at once."""
NAMED_MAX = 5
"""Recipients that a line about several of them names."""
LOGGER = "mail"


class MailLog:
    """put: writes whole lines. persons: hides personal data, None: it stays. entries: plugins, None: none listens.
    tells: lines say metadata, too."""

    def __init__(
        self, shape: Shape, put: Callable[[bytes], bool], persons: Persons | None, entries: Filter | None,
        tells: bool = False,
    ) -> None:  # fmt: skip
        self.tells = tells
        self._shape, self._put, self._persons, self._entries = shape, put, persons, entries
        self._gathered: list[tuple[int, str, dict[str, Any]]] = []
        self._alike: dict[tuple[Any, ...], tuple[dict[str, Any], list[str]]] = {}
        """Of what is told of several recipients at once: the line's fields, and whom it names."""
        self._due = False

    def line(self, ms: int, message: str, fields: dict[str, Any]) -> None:
        """fields: without empty ones, from now on the log's. ms: UNIX time."""
        self._gathered.append((ms, message, fields))
        if not self._due:
            self._due = True
            asyncio.get_running_loop().call_later(FLUSH_S, self._tick)
        elif len(self._gathered) >= GATHERED_MAX:
            self.flush()

    def alike(self, ms: int, message: str, fields: dict[str, Any], address: str, **own: Any) -> None:
        """What happens to many at once, by our own choice: one line of all with these fields until the next are
        written. own: what only this recipient has; it is said if they all have it."""
        key = (message, *fields.items())
        if key not in self._alike:
            told = {**own, **fields, "recipients": 1, "to": address}
            self._alike[key] = told, [address]
            self.line(ms, message, told)
            return
        told, named = self._alike[key]
        told["recipients"] += 1
        if len(named) < NAMED_MAX:
            named.append(address)
            told["to"] = ",".join(named)
        for name in [name for name, value in own.items() if told.get(name) != value]:
            told.pop(name, None)

    def _tick(self) -> None:
        """Again and again, while something waits for its reader."""
        self._due = not self.flush()
        if self._due:
            asyncio.get_running_loop().call_later(FLUSH_S, self._tick)

    def flush(self) -> bool:
        """Writes what has been gathered; False: some of it waits."""
        gathered, self._gathered = self._gathered, []
        self._alike.clear()
        lines = b"".join([self._made(*one) for one in gathered])
        with contextlib.suppress(OSError):
            return self._put(lines)
        return True

    def _made(self, ms: int, message: str, fields: dict[str, Any]) -> bytes:
        """Its line; nothing, if a plugin drops it."""
        try:
            if self._persons is not None:
                self._persons.fields(fields)
            if self._entries is None:
                return self._shape(ms, "info", LOGGER, message, fields)
            kept = self._entries({"level": "info", "logger": LOGGER, "message": message} | fields)
            if kept is None:
                return b""
            level, logger, message = (str(kept.pop(name, "")) for name in ("level", "logger", "message"))
            return self._shape(ms, level, logger, message, kept)
        except Exception:  # a line is not worth a queue
            return b""


def of(config: Config, entries: Filter | None) -> MailLog | None:
    """For the queue's process; None: no such lines are wanted. Raises ConfigError."""
    if not config.log.mail:
        return None
    return MailLog(SHAPES[config.log.format], stream().put, people(config), entries, config.log.metadata)


def with_metadata(fields: dict[str, Any], of: About | None, address: str = "") -> dict[str, Any]:
    """The same, with what is told of a recipient, or of its message, as JSON (`mail.metadata`)."""
    return fields | {name: json.dumps(value, ensure_ascii=False) for name, value in meta.told(of, address).items()}


def accepted(
    message_id: str, zones: Sequence[str], addresses: Sequence[str], metadata: dict[str, Any]
) -> dict[str, Any]:
    """Fields of a message that was accepted. metadata: of its envelope, as in its record."""
    fields = {
        "id": message_id, "zone": zones[0] if len(zones) == 1 else ",".join(dict.fromkeys(zones)),
        "sender": metadata["sender"], "recipients": len(addresses),
        "to": addresses[0] if len(addresses) == 1 else ",".join(addresses[:NAMED_MAX]), "size": metadata["size"],
        "by": metadata.get("protocol", "ESMTP"),
    }  # fmt: skip
    for name, key in (("client", "origin"), ("user", "user"), ("campaign", "campaign"), ("tenant", "tenant")):
        if key in metadata:
            fields[name] = metadata[key]
    return fields


def several(message_id: str, zone: str, addresses: Sequence[str], **more: str) -> dict[str, Any]:
    """Fields of recipients to whom something else happened: they were removed, suppressed, are in doubt."""
    named = ",".join(addresses[:NAMED_MAX])
    return {"id": message_id, "zone": zone, "recipients": len(addresses), "to": named, **more}


def came_back(record: FeedbackRecord) -> dict[str, Any]:
    """Fields of feedback."""
    fields = {
        "id": record.message, "zone": record.zone, "recipient": record.recipient, "kind": record.kind,
        "campaign": record.campaign, "code": record.code, "enhanced": record.enhanced, "class": record.reply_class,
        "reporter": record.reporter, "via": record.via, "genuine": record.genuine, "text": record.text,
    }  # fmt: skip
    return {name: value for name, value in fields.items() if value}
