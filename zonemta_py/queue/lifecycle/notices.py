"""Notifications to senders (RFC 3464, RFC 3461): who gets one, and the message itself, ready to be queued.

None for a null return path, at most one of each kind per recipient; recipients that end together share one. With
RET=FULL a message of one chunk is returned whole, a larger one only by its header section (RFC 3461 4.3 leaves that to
us).
"""

from __future__ import annotations

import secrets
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from zonemta_py.config import Config, ConfigError
from zonemta_py.config.section import shipped
from zonemta_py.config.services.notices import NoticeTerms
from zonemta_py.disk.files import changed
from zonemta_py.disk.leveldb.store import StoreError
from zonemta_py.mail import dsn
from zonemta_py.mail.envelope import Envelope, Notify, Recipient
from zonemta_py.mail.notices.wording import Failed, OwnWords, Wording
from zonemta_py.queue.core.core import Core
from zonemta_py.queue.core.messages import Message
from zonemta_py.schedule.time import hours

if TYPE_CHECKING:
    from zonemta_py.disk.notes import Note
    from zonemta_py.mail.notices.phrases import Phrases

_ASKED: dict[dsn.Kind, Notify] = {
    "failed": Notify.FAILURE, "delayed": Notify.DELAY, "relayed": Notify.SUCCESS, "delivered": Notify.SUCCESS,
}  # fmt: skip
"""Which notifications a value of NOTIFY asks for."""


def load(config: Config) -> None:
    """Reads and checks the texts of all languages that are used. Raises ConfigError."""
    wrong: list[str] = []
    for tenant in ("", *(one.tenant for one in config.notices.tenants)):
        try:
            wording(config, config.notices.terms(tenant))
        except ConfigError as error:
            place = f"notices.tenants[{tenant}]" if tenant else "notices"
            wrong.append(f"{place}.languages, texts: {error}")
    if wrong:
        raise ConfigError(*wrong)


def wording(config: Config, terms: NoticeTerms) -> Wording:
    """In whose name, and how, a notice is written. Raises ConfigError."""
    host, folder = config.server.name, shipped("notices")
    files = [base / f"{one}.toml" for one in terms.languages for base in (folder, terms.texts) if base is not None]
    phrases = _phrases(terms.languages, folder, terms.texts, tuple(changed(file) for file in files if file.is_file()))
    return Wording(host, terms.address or f"mailer-daemon@{host}", phrases, terms.name)


@lru_cache(64)
def _phrases(
    languages: tuple[str, ...], folder: Path, own: Path | None, _: tuple[tuple[int, ...], ...]
) -> tuple[Phrases, ...]:
    from zonemta_py.mail.notices import phrases  # only notices need it, and a start has none

    try:
        return tuple(phrases.load(language, folder, own) for language in languages)
    except phrases.PhrasesError as error:
        raise ConfigError(str(error)) from None


class Notices:
    """Makes notifications as the configuration says."""

    def __init__(self, core: Core) -> None:
        self._core = core
        self._wordings: dict[NoticeTerms, Wording] = {}

    def configure(self) -> None:
        """The configuration is another one."""
        self._wordings.clear()

    def make(
        self, kind: dsn.Kind, message: Message, failures: list[Failed], now_ms: int
    ) -> tuple[Envelope, bytes] | None:
        """The envelope and bytes of a notification, or None if none is to be sent. failures: alike in `own`, and
        in `to`."""
        metadata = message.metadata
        if failures and failures[0].to:
            metadata = metadata | {"sender": failures[0].to.removeprefix("<").removesuffix(">")}
        sender = str(metadata.get("sender") or "")
        failures = [one for one in failures if self.wanted(kind, one.recipient.notify, metadata, now_ms)]
        if not sender or not failures:
            return None
        envelope = Envelope.from_metadata(metadata, [failed.recipient for failed in failures])
        whole = envelope.ret == "FULL" and message.chunks == 1
        terms, own = self._terms(metadata), failures[0].own or OwnWords()
        wording = self._wording(terms)
        if own.text or own.sender:
            wording = replace(wording, opening=own.text, address=own.sender or wording.address)
        data = dsn.build(
            kind,
            envelope,
            failures,
            self._original(message, whole),
            wording=wording,
            now_ms=now_ms,
            unique=secrets.token_hex(12),
            whole=whole,
        )
        return replace(dsn.enclose(envelope, data, now_ms), sending_zone=own.zone or terms.zone or None), data

    def late(self, message: Message, note: Note, now_ms: int, notice_h: float) -> bool:
        """Whether a recipient that still waits calls for a delay notice. now_ms: steady time. notice_h: hours after
        which, 0: never."""
        waited_ms = now_ms - message.created_ms - self._core.clock.apart_of(message.id)
        late = bool(notice_h) and waited_ms >= notice_h * 3_600_000
        late = late or hours.to_be_told(message.metadata, now_ms)
        return late and not note.noticed and self.wanted("delayed", note.notify, message.metadata, now_ms)

    def wanted(self, kind: dsn.Kind, notify: int, metadata: dict[str, Any], now_ms: int) -> bool:
        """Whether NOTIFY asks for it (RFC 3461 4.1); unset: of failures only, but then BY=…;N asks for a notification
        after its deadline too (RFC 2852), and `NoticesSection.delays` may. metadata: the message's."""
        if kind == "delayed":
            if not notify and hours.to_be_told(metadata, now_ms):
                return True
            delays = self._terms(metadata).delays
            if delays == "never":
                return False
            if delays == "always" and not notify:  # a campaign's sender would get one for every slow subscriber
                return not metadata.get("campaign")
        return not notify & Notify.NEVER and bool((notify or Notify.FAILURE) & _ASKED[kind])

    def _terms(self, metadata: dict[str, Any]) -> NoticeTerms:
        return self._core.config.notices.terms(str(metadata.get("tenant") or ""))

    def _wording(self, terms: NoticeTerms) -> Wording:
        """As it was when this configuration came. Its files were checked then: if they are gone, the shipped ones."""
        known = self._wordings.get(terms)
        if known is None:
            try:
                known = wording(self._core.config, terms)
            except ConfigError:
                known = wording(self._core.config, terms._replace(texts=None, languages=("en",)))
            self._wordings[terms] = known
        return known

    def _original(self, message: Message, whole: bool) -> bytes:
        try:
            data = self._core.messages.text(message)
        except StoreError:
            return b""
        header = data.partition(b"\r\n\r\n")[0] + b"\r\n"
        return data if whole else header


def failed(
    address: str, notify: int, orcpt: str | None, reply_line: str, remote: str, attempts: int, last_ms: int
) -> Failed:
    """One recipient's row, its reply parsed back from "code enhanced text"."""
    from zonemta_py.mail.reply import Reply

    code, _, rest = reply_line.partition(" ")
    reply = Reply.from_lines(int(code) if code.isdigit() else 550, [rest])
    return Failed(Recipient(address, notify, orcpt), reply, remote, attempts, last_ms)
