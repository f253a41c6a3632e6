"""Addresses as people and spreadsheets write them: `Ann <a@b.net>`, `"Ann, M." <a@b.net>`, `mailto:a@b.net`.

Only what surrounds the address is removed; `mail.address` says whether it is one. Ambiguous text (two addresses, an
address as the display name of another) is returned as it came, and so is refused there.
"""

from __future__ import annotations

import re
from urllib.parse import unquote

SPACES = " \t\r\n\v\f\u00a0\u200b\ufeff"
_TEXT_MAX = 2_000
_NAMED = re.compile(r'(?P<name>(?:"(?:[^"\\]|\\.)*"|[^"<>])*)<(?P<address>[^<>]*)>')
_QUOTED = re.compile(r'"(?:[^"\\]|\\.)*"')
_MAILTO = "mailto:"


def bare(text: str) -> str:
    """The address alone, trimmed; other forms come back trimmed and otherwise unchanged."""
    text = text.strip(SPACES)
    if len(text) > _TEXT_MAX:
        return text
    if found := _NAMED.fullmatch(text):
        address, name = _linked(found["address"].strip(SPACES)), found["name"].strip(SPACES)
        inner = name.strip("\"'() ").lower()
        if "@" in _QUOTED.sub("", name) and inner not in (address.lower(), _MAILTO + address.lower()):
            return text
        return address
    return _linked(text)


def _linked(text: str) -> str:
    """RFC 6068: percent-encoded, with a subject and such behind a question mark."""
    if text[: len(_MAILTO)].lower() != _MAILTO:
        return text
    return unquote(text[len(_MAILTO) :].partition("?")[0]).strip(SPACES)
