"""The authors of a message, found in From fields as they occur in practice: comments, quotes, groups, bare commas
(RFC 5322 3.6.2).

`author_domain` selects the signature; `authors` are all addresses that a reader might take for the author. Never
raises.
"""

from __future__ import annotations

import re
from functools import lru_cache

from zonemta_py.mail.addresses.domain import canonical as a_labels
from zonemta_py.mail.limits import FROM_BYTES_MAX

_PART = re.compile(
    r'"(?:[^"\\]|\\.)*"?'  # a quoted string, or one that never ends
    r"|<[^<>]*>|[,;:]|[^\"<,;:]+|.",
    re.DOTALL,
)
_QUOTED_OR_COMMENTS = re.compile(r'("(?:[^"\\]|\\.)*")|\(', re.DOTALL)
_ANGLES = re.compile(r"<([^<>]*@[^<>]*)>")
_DOMAIN = re.compile(r"[^\s@<>()\",:;\[\]\\]+")


@lru_cache(1_000)
def author_domain(value: bytes | str) -> str:
    """Domain of the first address in the value of a From field (RFC 5322 3.6.2), A-labels in lower case, "" if none,
    or if the value is longer than FROM_BYTES_MAX.

    Remembered for a while: the mail of one campaign has one author.
    """
    if len(value) > FROM_BYTES_MAX:
        return ""
    if isinstance(value, bytes):
        value = value.decode("utf-8", "replace").replace("\r\n", "")
    return _first_domain(value) or _domain(" ".join(_ANGLES.findall(value)[:1]))


def authors(value: str) -> list[str]:
    """Every address in the value of a From field, as local part, @ and domain in A-labels; whatever looks like one,
    too: a bare "ceo@bank.example <ann@example.com>" has two. None if the value is longer than FROM_BYTES_MAX.

    One whose domain is not a domain is given as it came.
    """
    if len(value) > FROM_BYTES_MAX:
        return []
    found: list[str] = []
    bare = ""
    for part in _PART.findall(_without_comments(value.replace("\r\n", ""))):
        if part[0] == "<":
            found.append(part[1:-1] if len(part) > 1 else part)
        elif part[0] == '"':
            bare += '""'
        else:
            bare += " " if part in ",;:" else part
    found += bare.replace(" @", "@").replace("@ ", "@").split()
    named = [_address(one) for one in found if "@" in one]
    signed = author_domain(value)  # which parses malformed fields in its own way
    if signed and all(one.rpartition("@")[2] != signed for one in named):
        named.append("@" + signed)
    return named


def _address(address: str) -> str:
    local, _, domain = address.strip().rpartition("@")
    return f"{local}@{_domain(address) or domain}"


def _first_domain(value: str) -> str:
    address = ""
    for part in _PART.findall(_without_comments(value)):
        if part[0] == "<":
            if "@" in part:
                return _domain(part[1:-1])
        elif part in (",", ";"):
            if "@" in address:
                return _domain(address)
            address = ""
        elif part == ":":
            address = ""
        else:
            address += '""' if part[0] == '"' else part
    return _domain(address) if "@" in address else ""


def _without_comments(value: str) -> str:
    """Comments nest, and mean nothing within quoted strings."""
    if "(" not in value:
        return value
    kept, at = [], 0
    while found := _QUOTED_OR_COMMENTS.search(value, at):
        kept.append(value[at : found.start()])
        if found[1]:
            kept.append(found[1])
            at = found.end()
        else:
            at = _end_of_comment(value, found.end())
    return " ".join((*kept, value[at:]))


def _end_of_comment(value: str, at: int) -> int:
    depth = 1
    while depth and at < len(value):
        step = {"(": 1, ")": -1}.get(value[at], 0)
        at += 2 if value[at] == "\\" else 1
        depth += step
    return at


def _domain(address: str) -> str:
    name = "".join(address.rpartition("@")[2].split()).rstrip(".").lower()
    return a_labels(name) if _DOMAIN.fullmatch(name) else ""
