"""Notifications to senders (RFC 3464, RFC 3461): who gets one, and the message itself, ready to be queued.

None for a null return path, at most one of each kind per recipient; recipients that end together share one. With
RET=FULL a message of one chunk is returned whole, a larger one only by its header section (RFC 3461 4.3 leaves that to
us).
"""

from __future__ import annotations

import secrets
from typing import Any

from zonemta_py.config import Config
from zonemta_py.disk.leveldb.store import StoreError
from zonemta_py.mail import dsn
from zonemta_py.mail.envelope import Envelope, Recipient
from zonemta_py.queue.api import BOUNCED, DELIVERED
from zonemta_py.queue.core.messages import Message, Messages
from zonemta_py.queue.lifecycle.settlement import Settlement
from zonemta_py.schedule.time import hours


class Notices:
    """Makes notifications in the name of `hostname`."""

    def __init__(self, messages: Messages, hostname: str) -> None:
        self._messages, self.hostname = messages, hostname

    def make(
        self, kind: dsn.Kind, message: Message, failures: list[dsn.Failed], now_ms: int
    ) -> tuple[Envelope, bytes] | None:
        """The envelope and bytes of a notification, or None if none is to be sent."""
        sender = str(message.metadata.get("sender") or "")
        failures = [failed for failed in failures if wanted(kind, failed.recipient.notify, message.metadata, now_ms)]
        if not sender or not failures:
            return None
        envelope = Envelope.from_metadata(message.metadata, [failed.recipient for failed in failures])
        whole = envelope.ret == "FULL" and message.chunks == 1
        data = dsn.build(
            kind,
            envelope,
            failures,
            self._original(message, whole),
            reporting_mta=self.hostname,
            now_ms=now_ms,
            unique=secrets.token_hex(12),
            whole=whole,
        )
        return dsn.enclose(envelope, data, now_ms), data

    def _original(self, message: Message, whole: bool) -> bytes:
        try:
            data = self._messages.text(message)
        except StoreError:
            return b""
        header = data.partition(b"\r\n\r\n")[0] + b"\r\n"
        return data if whole else header


def wanted(kind: dsn.Kind, notify: int, terms: dict[str, Any], now_ms: int) -> bool:
    """As `dsn.wanted`; if NOTIFY is unset, BY=…;N also asks for a notification after its deadline (RFC 2852)."""
    asked = kind == "delayed" and not notify and hours.to_be_told(terms, now_ms)
    return asked or dsn.wanted(kind, notify)


def failed(
    address: str, notify: int, orcpt: str | None, reply_line: str, remote: str, attempts: int, last_ms: int
) -> dsn.Failed:
    """One recipient's row, its reply parsed back from "code enhanced text"."""
    from zonemta_py.mail.reply import Reply

    code, _, rest = reply_line.partition(" ")
    reply = Reply.from_lines(int(code) if code.isdigit() else 550, [rest])
    return dsn.Failed(Recipient(address, notify, orcpt), reply, remote, attempts, last_ms)


def due(config: Config, settlement: Settlement) -> list[tuple[dsn.Kind, list[dsn.Failed]]]:
    """The notifications that a settlement causes, by kind."""
    rows = [row for row in settlement.rows if row.verdict == BOUNCED or row.relayed or row.delayed]
    if not rows:
        return []
    kinds: dict[dsn.Kind, list[dsn.Failed]] = {}
    life_h = settlement.message.metadata.get("life_h") or config.retry.life_h
    zone = config.zone(settlement.zone)
    lmtp = zone is not None and zone.protocol == "lmtp"  # LMTP delivers to the mail store itself
    for row in rows:
        if row.verdict == BOUNCED:
            kind: dsn.Kind = "failed"
        elif row.verdict == DELIVERED and row.relayed:
            kind = "delivered" if lmtp else "relayed"
        elif row.delayed:
            kind = "delayed"
        else:
            continue
        until_ms = settlement.message.created_ms + int((row.life_h or life_h) * 3_600_000)
        recipient = Recipient(row.address, row.note.notify, row.note.orcpt)
        kinds.setdefault(kind, []).append(
            dsn.Failed(recipient, row.reply, settlement.remote, row.note.attempts, row.note.last_ms, until_ms)
        )
    return list(kinds.items())
