"""The part of a notice that people read: subject and text, in one language or several, one after the other.

Promise: what a server, a client or an address said becomes one line, and nothing in it is taken for a placeholder.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

from zonemta_py.mail.envelope import Envelope, Recipient
from zonemta_py.mail.fields import one_line, utc
from zonemta_py.mail.limits import REPLY_TEXT_STORED_MAX
from zonemta_py.mail.notices.phrases import Phrases
from zonemta_py.mail.reply import Reply
from zonemta_py.mail.rules.classes import CLASSES

WIDTH = 72
SUBJECT_CHARACTERS_MAX = 150
_BETWEEN = "-" * 40
"""Between two languages."""


class OwnWords(NamedTuple):
    """What a plugin wants of a notice. text: paragraphs that it begins with. sender: address in its From. zone: that it
    is sent by. Empty: as configured."""

    text: str = ""
    sender: str = ""
    zone: str = ""


@dataclass(slots=True, frozen=True)
class Failed:
    """What became of one recipient.

    reply: the last one, remote or our own. remote: "name[ip]:port", "" if no server said it. attempts: how many were
    made. last_ms: UNIX ms of the last one, 0 if none. until_ms: UNIX ms until when it is tried (delayed only). kind:
    the class of the reply, "" if that is not known. own: what a plugin wants of its notice. to: who gets that, "" the
    message's sender, "<>" nobody.
    """

    recipient: Recipient
    reply: Reply
    remote: str = ""
    attempts: int = 1
    last_ms: int = 0
    until_ms: int | None = None
    kind: str = ""
    own: OwnWords | None = None
    to: str = ""

    @property
    def expired(self) -> bool:
        """Whether it was given up, since its time was over."""
        return not self.reply.permanent

    @property
    def said(self) -> str:
        """The reply, not longer than is stored of one."""
        return str(self.reply)[:REPLY_TEXT_STORED_MAX]


@dataclass(slots=True, frozen=True)
class Wording:
    """In whose name, and in which languages, a notice is written. host: our name. address, name: of its From; name "":
    as the first language says. opening: paragraphs before it all."""

    host: str
    address: str
    languages: tuple[Phrases, ...]
    name: str = ""
    opening: str = ""

    @property
    def shown_name(self) -> str:
        return self.name or self.languages[0].say("name")

    def subject(self, kind: str, envelope: Envelope) -> str:
        """In the first language."""
        return one_line(self.languages[0].say(f"subject.{kind}", subject=_subject(envelope)))

    def text(self, kind: str, envelope: Envelope, failures: list[Failed], now_ms: int) -> str:
        """Paragraphs of lines of WIDTH characters at most, where words are no longer, each with its LF."""
        texts = ["\n\n".join(_wrapped(self._paragraphs(one, kind, envelope, failures, now_ms))) for one in
                 self.languages]  # fmt: skip
        before = [*_wrapped(iter(self.opening.split("\n\n")))] if self.opening else []
        return "\n\n".join([*before, f"\n\n{_BETWEEN}\n\n".join(texts)]) + "\n"

    def _paragraphs(
        self, words: Phrases, kind: str, envelope: Envelope, failures: list[Failed], now_ms: int
    ) -> Iterator[str]:
        yield words.say("text.opening", host=self.host, date=_moment(envelope.received_ms))
        if subject := _subject(envelope):
            yield words.say("text.about", subject=subject)
        age = _span(words, max(0, now_ms - envelope.received_ms))
        for failed in failures:
            yield _became(words, kind, failed, age)
            yield _said(words, failed)
        yield words.say(f"closing.{kind}", host=self.host)
        yield words.say("signature", host=self.host)


def _became(words: Phrases, kind: str, failed: Failed, age: str) -> str:
    """One recipient's sentences, with what the sender can do."""
    expired = kind == "failed" and failed.expired
    said = [words.say(f"text.{'expired' if expired else kind}", recipient=failed.recipient.address, age=age)]
    if kind == "delayed" and failed.until_ms:
        said.append(words.say("text.until", until=_moment(failed.until_ms)))
    known = CLASSES.get(failed.kind)
    if kind == "failed" and known and known.advice:
        said.append(words.say(f"advice.{known.advice}"))
    return " ".join(filter(None, said))


def _said(words: Phrases, failed: Failed) -> str:
    if failed.remote:
        return words.say("text.server", server=failed.remote, reply=failed.said)
    return words.say("text.reason", reply=failed.said)


def _subject(envelope: Envelope) -> str:
    """The original's."""
    return one_line(envelope.headers.get("subject", ""))[:SUBJECT_CHARACTERS_MAX]


def _moment(ms: int) -> str:
    """The same in all languages: 2026-11-21 08:00 UTC."""
    return f"{utc(ms)[:16].replace('T', ' ')} UTC"


def _span(words: Phrases, ms: int) -> str:
    """A length of time, in its largest fitting unit."""
    for unit, size in (("days", 86_400_000), ("hours", 3_600_000)):
        if (count := ms // size) >= 2:
            return words.say(f"units.{unit}", n=count)
    return words.say("units.minutes", n=max(1, ms // 60_000))


def _wrapped(paragraphs: Iterator[str]) -> Iterator[str]:
    for paragraph in paragraphs:
        lines = [
            "\n".join(textwrap.wrap(one_line(line), WIDTH, break_long_words=False, break_on_hyphens=False))
            for line in paragraph.split("\n")
        ]
        if any(lines):
            yield "\n".join(lines)
