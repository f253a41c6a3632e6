"""What was received: counters always; a log, files and messages in memory if enabled.

A message counts from the moment its acceptance is decided, before the reply is sent: a client that dies while it
waits for that reply has delivered, as with any real server. The log is flushed every 0.1 s and at the end.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO

from zonemta_py.sink.options import SinkError, SinkOptions
from zonemta_py.sink.timeline import Timeline

_HEAD_BYTES_MAX = 65_536
_MESSAGE_ID = re.compile(rb"^message-id:[ \t]*(?:\r\n[ \t]+)?([^\r\n]*)", re.IGNORECASE | re.MULTILINE)


@dataclass(slots=True)
class ReceivedMessage:
    """One accepted message. parameters: of MAIL, then of each recipient, as sent ("" where there were none)."""

    sender: str
    recipients: list[str]
    size: int = 0
    body: bytes = b""
    message_id: str = ""
    client: str = ""
    helo: str = ""
    tls: str = ""
    time: float = 0.0
    port: int = 0
    parameters: list[str] = field(default_factory=list)


@dataclass(slots=True)
class Counters:
    """bytes: of accepted messages, unstuffed. domains: accepted recipients by domain. replies: replies that a rule
    made, by "stage code" (or "stage close" …). first_ns, last_ns: time.monotonic_ns() of acceptances; 0: none yet."""

    messages: int = 0
    recipients: int = 0
    bytes: int = 0
    connections: int = 0
    open: int = 0
    first_ns: int = 0
    last_ns: int = 0
    domains: dict[str, int] = field(default_factory=dict)
    replies: dict[str, int] = field(default_factory=dict)

    def as_dict(self) -> dict[str, Any]:
        """Plain values, ready for JSON."""
        return {name: getattr(self, name) for name in Counters.__slots__}

    def accept(self, recipients: list[str], size: int) -> None:
        self.last_ns = time.monotonic_ns()
        self.first_ns = self.first_ns or self.last_ns
        self.messages += 1
        self.recipients += len(recipients)
        self.bytes += size
        domains = self.domains
        for address in recipients:
            domain = address[address.rfind("@") + 1 :].lower()
            domains[domain] = domains.get(domain, 0) + 1


class Capture:
    """The bytes of one message on their way in, as far as log, store and memory need them."""

    __slots__ = ("_file", "_path", "digest", "head", "keep", "pieces")

    def __init__(self, keep: bool, checksum: bool, path: Path | None) -> None:
        self.keep, self.head = keep, b""
        self.pieces: list[bytes] = []
        self.digest = hashlib.sha256() if checksum else None
        self._path = path
        self._file: BinaryIO | None = path.open("wb") if path else None

    def take(self, piece: bytes) -> None:
        if len(self.head) < _HEAD_BYTES_MAX:
            self.head += piece[:_HEAD_BYTES_MAX]
        if self.keep:
            self.pieces.append(piece)
        if self.digest is not None:
            self.digest.update(piece)
        if self._file is not None:
            self._file.write(piece)

    def message_id(self) -> str:
        header = self.head.partition(b"\r\n\r\n")[0]
        found = _MESSAGE_ID.search(header)
        return found[1].strip().decode("utf-8", "replace") if found else ""

    def accept(self, name: str) -> None:
        if self._file is not None and self._path is not None:
            self._file.close()
            self._path.rename(self._path.with_name(name))
            self._file = None

    def drop(self) -> None:
        if self._file is not None and self._path is not None:
            self._file.close()
            self._path.unlink()
            self._file = None


class Recorder:
    """Counters, and whatever of log, store and memory the options ask for. Raises SinkError where a file cannot be."""

    def __init__(self, options: SinkOptions) -> None:
        self.counters, self.messages = Counters(), list[ReceivedMessage]()
        self._options, self._written, self._captures = options, "", 0
        self.capturing = bool(options.keep or options.log or options.store)
        try:
            # A byte of an address that is no UTF-8 is written as \udcXX, which JSON can read back.
            log = options.log
            self._log = log.open("a", encoding="utf-8", errors="backslashreplace") if log else None
            events = options.events
            self._events = events.open("a", encoding="utf-8") if events else None
            self._stored = 0
            if options.store:
                options.store.mkdir(parents=True, exist_ok=True)
                self._stored = sum(1 for _ in options.store.glob("*.eml"))
        except OSError as error:
            raise SinkError(f"{error.filename}: cannot be written ({error.strerror}); name another place") from None

        self.timeline = Timeline(self._events, options.per_second) if self._events or options.per_second else None

    def capture(self) -> Capture:
        """For a message that is about to come; only where `capturing`."""
        self._captures += 1
        store = self._options.store
        path = store / f".coming-{os.getpid()}-{self._captures}" if store else None
        return Capture(self._options.keep, self._options.checksum, path)

    def accept(self, message: ReceivedMessage, capture: Capture) -> None:
        """Logs, stores and keeps an accepted message; counting is done already."""
        message.message_id, message.time = capture.message_id(), time.time()
        self._stored += 1
        capture.accept(f"{self._stored:08d}.eml")
        if self._log is not None:
            self._log.write(self._line(message, capture))
        if self._options.keep:
            message.body = b"".join(capture.pieces)
            self.messages.append(message)

    @staticmethod
    def _line(message: ReceivedMessage, capture: Capture) -> str:
        row: dict[str, Any] = {
            "time": round(message.time, 6),
            "message_id": message.message_id,
            "sender": message.sender,
            "recipients": message.recipients,
            "size": message.size,
            "client": message.client,
        }
        if capture.digest is not None:
            row["sha256"] = capture.digest.hexdigest()
        return json.dumps(row, ensure_ascii=False) + "\n"

    def flush(self) -> None:
        for file in (self._log, self._events):
            if file is not None:
                file.flush()

    def write(self) -> None:
        """Puts the counters into the record file if they changed; readers never see half of one."""
        path = self._options.record
        text = json.dumps(self.counters.as_dict() | self._seconds()) if path else ""
        if path is None or text == self._written:
            return
        coming = path.with_name(path.name + ".coming")
        try:
            coming.write_text(text + "\n")
            coming.rename(path)  # not synced: a sink that disturbs the disk would falsify what it measures
        except OSError as error:
            raise SinkError(f"{path}: cannot be written ({error.strerror}); name another place") from None
        self._written = text

    def _seconds(self) -> dict[str, Any]:
        return {"seconds": self.timeline.seconds} if self._options.per_second and self.timeline else {}

    def close(self) -> None:
        self.write()
        for file in (self._log, self._events):
            if file is not None:
                file.close()
