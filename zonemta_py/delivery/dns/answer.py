"""What DNS has answered, as plain values."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from zonemta_py.mail.classify import NoRoute


@dataclass(slots=True, frozen=True)
class Answer:
    """values: MX: (preference, host); A, AAAA: address; TXT: text; PTR: name; TLSA: (usage, selector, matching, data).

    exists: False for NXDOMAIN. secure: DNSSEC-validated, negative answers included. name: the name after all CNAMEs.
    ttl_s: how long it may be kept.
    """

    values: tuple[Any, ...]
    exists: bool
    secure: bool
    name: str
    ttl_s: float


Found = Answer | NoRoute
