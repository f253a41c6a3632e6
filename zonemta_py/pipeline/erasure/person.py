"""One person's address in any text: how it may be spelled there, and what stands in its place afterwards.

The stand-in is random for each erasure, the same everywhere within it: counts of people stay true, and nothing leads
back from it. Found are, without regard to case: the address itself, its domain in A- and U-labels; within URLs
(%40), ORCPT (xtext, RFC 3461 4) and JSON; return paths that name it (VERP, ours and the usual local=domain form) or its
mark; on request all its subaddresses (local+anything@domain).
Another person's address that merely ends or begins like it (joann@…, …@example.com.au) is left alone. One that has a
dash before the same name is not told apart in the VERP form: bounces-jo-ann=example.com names ann, too.
Pure but for the randomness in `pseudonym`.
"""

from __future__ import annotations

import contextlib
import json
import re
import secrets
from typing import Any
from urllib.parse import quote

from zonemta_py.mail.address import xtext_encode
from zonemta_py.mail.addresses import verp
from zonemta_py.mail.addresses.domain import canonical

ERASED_DOMAIN = "erased.invalid"
"""RFC 2606 2: no mail ever goes there."""
_VERP_PREFIX = 24
"""Letter, day, tag and id before the recipient in a return path of ours (`mail.verp`)."""
_MARK_CHARACTERS = 22
_LEFT = r"(?<![A-Za-z0-9.!#$&*+?^_`{|}~\-])"
_LEFT_VERP = r"(?<![A-Za-z0-9._])"
_RIGHT = r"(?![A-Za-z0-9\-]|\.[A-Za-z0-9])"
_AT = r"(?:@|%40|\\u0040)"
_VERP_AT = r"(?:=|%3D|\+3D)"


def pseudonym() -> str:
    """A fresh stand-in: 96 bits of chance."""
    return f"erased-{secrets.token_hex(12)}@{ERASED_DOMAIN}"


class DataSubject:
    """address: of the person. stand_in: `pseudonym()`. subaddresses: local+anything@domain is the same person.

    Raises ValueError with one sentence if it is not an address.
    """

    def __init__(self, address: str, stand_in: str, subaddresses: bool = False) -> None:
        local, _, domain = address.strip().rpartition("@")
        if not local or not domain:
            raise ValueError(f"{address!a} is not an address; write it as local@domain")
        self.stand_in = stand_in
        self._local, self._domain = local.lower(), canonical(domain)
        self._subaddresses = subaddresses
        marks = _marks(f"{local}@{domain}")
        self._pattern = re.compile(self._expression(local, domain, marks), re.IGNORECASE)
        self.loose = self._loose(local, domain, marks)
        self._quick = re.compile(self.loose.encode(), re.IGNORECASE)

    def is_(self, address: str) -> bool:
        """Whether that is the person's address."""
        local, _, domain = address.rpartition("@")
        if self._subaddresses:
            local = local.partition("+")[0] or local
        return local.lower() == self._local and canonical(domain) == self._domain

    def found(self, value: Any) -> bool:
        """Whether the value (as for `erased`) names the person."""
        if isinstance(value, str):
            return self._pattern.search(value) is not None
        if isinstance(value, bytes):
            return self.maybe(value) and self._pattern.search(value.decode("utf-8", "surrogateescape")) is not None
        return self.erased(value)[1] > 0

    def maybe(self, data: bytes) -> bool:
        """Whether packed bytes, where what stands beside an address may be anything, could name the person."""
        return self._quick.search(data) is not None

    def erased(self, value: Any) -> tuple[Any, int]:
        """The value (text, bytes, or lists and maps of such, keys too) with the stand-in, and how often it was put."""
        if isinstance(value, str):
            return self._pattern.subn(self._instead, value)
        if isinstance(value, bytes):
            text, count = self._pattern.subn(self._instead, value.decode("utf-8", "surrogateescape"))
            return text.encode("utf-8", "surrogateescape") if count else value, count
        if isinstance(value, list | tuple):
            pairs = [self.erased(item) for item in value]
            return type(value)([item for item, _ in pairs]), sum(count for _, count in pairs)
        if isinstance(value, dict):
            rows = [(self.erased(key), self.erased(item)) for key, item in value.items()]
            return {key[0]: item[0] for key, item in rows}, sum(key[1] + item[1] for key, item in rows)
        return value, 0

    def _instead(self, found: re.Match[str]) -> str:
        local, _, domain = self.stand_in.partition("@")
        at = found["at"] or found["verp_at"]
        return f"{local}{at}{domain}" if at else local.removeprefix("erased-")[:_MARK_CHARACTERS]

    def _expression(self, local: str, domain: str, marks: list[str]) -> str:
        locals_, domains, tag = _any_of(_locals(local)), _any_of(_domains(domain)), self._tag
        plain = rf"{_LEFT}{locals_}{tag}(?P<at>{_AT}){domains}{_RIGHT}"
        path = rf"{_LEFT_VERP}{locals_}{tag}(?P<verp_at>{_VERP_AT}){domains}{_RIGHT}"
        return "|".join([plain, path, *(rf"(?<=\.){mark}(?=@|\b)" for mark in marks)])

    def _loose(self, local: str, domain: str, marks: list[str]) -> str:
        """Without looking at what stands beside it, so that RE2 can do it; matches wherever the expression does."""
        named = rf"{_any_of(_locals(local))}{self._tag}(?:{_AT}|{_VERP_AT}){_any_of(_domains(domain))}"
        return "|".join([named, *marks])

    @property
    def _tag(self) -> str:
        return r"(?:(?:\+|%2B)[^\s@<>\"',;:()\[\]\\=]{0,64})?" if self._subaddresses else ""


def _locals(local: str) -> list[str]:
    """Spellings of a local part: itself, in JSON, in a URL, in xtext, in our return paths."""
    forms = [local, json.dumps(local)[1:-1], quote(local, safe="")]
    with contextlib.suppress(ValueError):
        forms.append(xtext_encode(local))
    path = _verp(f"{local}@x")
    if path.startswith("-"):
        forms.append(path[1:].rpartition("=")[0])
    return list(dict.fromkeys(case for form in forms for case in (form, form.lower(), form.upper())))


def _domains(domain: str) -> list[str]:
    ascii_form = canonical(domain)
    forms = [domain.lower().rstrip("."), ascii_form]
    with contextlib.suppress(UnicodeError):
        forms.append(ascii_form.encode("ascii").decode("idna"))
    return list(dict.fromkeys(forms + [json.dumps(form)[1:-1] for form in forms]))


def _marks(address: str) -> list[str]:
    """The mark by which a return path of ours names an address that is too long for it."""
    path = _verp(address)
    return [path[1:]] if path.startswith(".") else []


def _verp(address: str) -> str:
    """ "-local=domain" or ".mark", as `mail.verp` writes the recipient."""
    path = verp.encode("0" * 16, address, "x", "any", 0)
    return path.partition("@")[0][_VERP_PREFIX:]


def _any_of(forms: list[str]) -> str:
    """Longest first: "ann+2Bx" before "ann"."""
    return "(?:" + "|".join(re.escape(form) for form in sorted(forms, key=len, reverse=True)) + ")"
