"""Formats of MTA-STS: the DNS record and the policy file (RFC 8461 3), and which hosts a policy names.

Pure. What is not understood is ignored where the RFC says so, and a ValueError with one sentence where not.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import NamedTuple

MAX_AGE_MAX_S = 31_557_600
"""About a year; a longer max_age counts as this (RFC 8461 3.2)."""
POLICY_BYTES_MAX = 64 * 1024
_MX_MAX = 1000
_RECORD = re.compile(r"v=STSv1[ \t]*(;|$)")
_ID = re.compile(r"[A-Za-z0-9]{1,32}")
_PATTERN = re.compile(r"(\*\.)?[a-z0-9_-]+(\.[a-z0-9_-]+)*\.?")


class Sts(NamedTuple):
    """A domain's policy. mode: "enforce", "testing" or "none". mx: lower-case patterns."""

    domain: str
    id: str
    mode: str
    mx: tuple[str, ...]
    max_age_s: int

    def names(self, host: str) -> bool:
        """Whether the policy lets mail go to that MX host (RFC 8461 4.1): * is exactly one label, the leftmost."""
        host = host.lower().rstrip(".")
        return host in self.mx or f"*.{host.partition('.')[2]}" in self.mx

    def lines(self) -> list[str]:
        """For reports."""
        mx = [f"mx: {pattern}" for pattern in self.mx]
        return ["version: STSv1", f"mode: {self.mode}", *mx, f"max_age: {self.max_age_s}"]


def record_id(texts: Iterable[str]) -> str:
    """The id in the TXT records of _mta-sts.DOMAIN; "" if there is not exactly one such record (RFC 8461 3.1)."""
    records = [text for text in texts if _RECORD.match(text)]
    if len(records) != 1:
        return ""
    for field in records[0].split(";")[1:]:
        name, _, value = field.partition("=")
        if name.strip() == "id":
            return value.strip() if _ID.fullmatch(value.strip()) else ""
    return ""


def parse(domain: str, id: str, text: str) -> Sts:
    """The policy in a file as it was fetched. Raises ValueError."""
    fields, mx = _fields(text)
    if fields.get("version") != "STSv1":
        raise ValueError("the policy has no version: STSv1")
    mode = fields.get("mode", "")
    if mode not in ("enforce", "testing", "none"):
        raise ValueError(f"the policy's mode is {mode!r}, not enforce, testing or none")
    age = fields.get("max_age", "")
    if not (age.isascii() and age.isdigit() and len(age) <= 10):
        raise ValueError(f"the policy's max_age is {age!r}, not a number of seconds")
    if not mx and mode != "none":
        raise ValueError("the policy names no mx")
    return Sts(domain, id, mode, tuple(mx), min(int(age), MAX_AGE_MAX_S))


def _fields(text: str) -> tuple[dict[str, str], list[str]]:
    """Each field's first value, and every mx."""
    fields: dict[str, str] = {}
    mx: list[str] = []
    for line in text.splitlines():
        if not line.strip():
            continue
        name, colon, value = line.partition(":")
        name, value = name.strip(), value.strip()
        if not colon:
            raise ValueError(f"the policy has a line without a colon: {line[:60]!r}")
        if name != "mx":
            fields.setdefault(name, value)
            continue
        pattern = value.lower().rstrip(".")
        if not _PATTERN.fullmatch(pattern) or len(mx) >= _MX_MAX:
            raise ValueError(f"the policy's mx {value[:60]!r} is not a host name or *.domain")
        mx.append(pattern)
    return fields, mx
