"""Whether a report is its reporter's: checked for `[[return_path.reporters]]` alone, by DKIM (RFC 6376) and SPF (RFC
7208), and believed only if the author (From) is theirs too, as DMARC asks (RFC 7489 3.1, relaxed). Of reports on our
mail as a whole, whose signature they have.

A signature that covers only part of the body (l=), is made with SHA-1 or has expired proves nothing; nor does that of a
message of which only the beginning was kept. What strangers send must not cost time: few signatures are looked at, and
runs of blanks are made one before the library sees the body, which is the same to "relaxed" and linear.

Failures: `proof` raises NoRoute if DNS does not answer: then the message is to come again. Only here is dkimpy known.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable
from typing import NamedTuple

from zonemta_py.config.services.return_path import TrustedReporter
from zonemta_py.mail.addresses.authors import authors
from zonemta_py.mail.addresses.domain import canonical
from zonemta_py.mail.addresses.senders import Senders
from zonemta_py.mail.headers import split

SIGNATURES_MAX = 2
MESSAGE_BYTES_MAX = 262_144
"""Of a message whose signature is checked, which takes a tenth of a millisecond for each KB: reports are small."""
SIGNATURE_BYTES_MAX = 8_192
SECTION_BYTES_MAX = 131_072
_BLANKS = re.compile(rb"[ \t]+")
_TAGS = re.compile(r"(?:^|;)\s*([a-z]+)\s*=\s*([^;]*)")
_KINDS = ("rsa-sha256", "ed25519-sha256")


class Lookups(NamedTuple):
    """What asks DNS. texts: TXT records of a name. spf: the verdict ("pass" …) for domain, client's address and HELO
    name. Both raise NoRoute if DNS does not answer."""

    texts: Callable[[str], Awaitable[list[str]]]
    spf: Callable[[str, str, str], Awaitable[str]]


class SentBy(NamedTuple):
    """How the message came. client: IP address. sender: of MAIL, "" the null one."""

    client: str
    helo: str
    sender: str


class _Signature(NamedTuple):
    at: int
    domain: str
    selector: str
    relaxed: bool


class Prover:
    """For one process."""

    def __init__(self, reporters: list[TrustedReporter], lookups: Lookups) -> None:
        self._reporters = [(one, Senders(one.senders or [one.domain, f"*.{one.domain}"])) for one in reporters]
        self._lookups = lookups

    async def proof(self, message: bytes, whole: bool, sent: SentBy) -> str:
        """ "dkim", "spf", or "" if nothing proves it. whole: nothing of the message is missing. Raises NoRoute."""
        headers, end = split(message)
        found = [address for value in headers.all("from") for address in authors(value)]
        if len(found) != 1 or end > SECTION_BYTES_MAX:
            return ""
        for reporter, senders in self._reporters:
            if not senders.may(found[0]):
                continue
            checked = reporter.dkim and whole and len(message) <= MESSAGE_BYTES_MAX
            if checked and await self._signed(message, end, headers.all("dkim-signature"), reporter):
                return "dkim"
            if reporter.spf and await self._passes(sent, reporter.domain):
                return "spf"
        return ""

    async def signer(self, message: bytes, whole: bool) -> tuple[str, str]:
        """The author's domain; and that domain, or one above or below it, whose signature is valid, "" if there is
        none. Anybody may sign for a domain of theirs: this says who has said something, not that it is true. Raises
        NoRoute."""
        headers, end = split(message)
        found = [address for value in headers.all("from") for address in authors(value)]
        if len(found) != 1 or end > SECTION_BYTES_MAX:
            return "", ""
        author = canonical(found[0].rpartition("@")[2])
        fields = headers.all("dkim-signature") if whole and len(message) <= MESSAGE_BYTES_MAX else []
        theirs = [
            one for one in map(_read, range(len(fields)), fields)
            if one and "." in one.domain and (_below(one.domain, author) or _below(author, one.domain))
        ]  # fmt: skip
        for signature in theirs[:SIGNATURES_MAX]:
            if await self._valid(message, end, signature):
                return author, signature.domain
        return author, ""

    async def _signed(self, message: bytes, end: int, fields: list[str], reporter: TrustedReporter) -> bool:
        ours = [one for one in map(_read, range(len(fields)), fields) if one and _below(one.domain, reporter.domain)]
        for signature in ours[:SIGNATURES_MAX]:
            if await self._valid(message, end, signature):
                return True
        return False

    async def _valid(self, message: bytes, end: int, signature: _Signature) -> bool:
        texts = await self._lookups.texts(f"{signature.selector}._domainkey.{signature.domain}")
        return any(_holds(message, end, signature, text) for text in texts[:SIGNATURES_MAX])

    async def _passes(self, sent: SentBy, domain: str) -> bool:
        """The null sender is the HELO name's (RFC 7208 2.4)."""
        speaks = canonical(sent.sender.rpartition("@")[2] or sent.helo)
        return _below(speaks, domain) and await self._lookups.spf(speaks, sent.client, sent.helo) == "pass"


def _below(domain: str, other: str) -> bool:
    return domain == other or domain.endswith(f".{other}")


def _read(at: int, field: str) -> _Signature | None:
    """None: it proves nothing, whatever its key is."""
    if len(field) > SIGNATURE_BYTES_MAX:
        return None
    tags = {name: "".join(value.split()) for name, value in _TAGS.findall(field)}
    if tags.get("a") not in _KINDS or "l" in tags or not tags.get("d") or not tags.get("s"):
        return None
    body = tags.get("c", "simple").partition("/")[2] or "simple"
    return _Signature(at, canonical(tags["d"]), tags["s"], body == "relaxed")


def _holds(message: bytes, end: int, signature: _Signature, record: str) -> bool:
    import dkim  # and what it needs, where it is needed

    if signature.relaxed:
        message = message[:end] + _BLANKS.sub(b" ", message[end:])
    try:
        key, place = record.encode("ascii"), f"{signature.selector}._domainkey.{signature.domain}.".lower()
        keys: dict[str, bytes] = {place: key}  # only that one: what the library reads must be what was read here
        verifier = dkim.DKIM(message)
        return bool(verifier.verify(signature.at, dnsfunc=lambda name, timeout=0: keys.get(name.decode().lower())))
    except Exception:  # whatever a stranger has written into header, key or signature: it proves nothing
        return False
