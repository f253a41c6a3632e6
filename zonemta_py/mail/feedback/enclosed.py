"""The original within a text: where the report ends and the message it is about begins."""

from __future__ import annotations

import re

from zonemta_py.mail.feedback.diagnostic import ENHANCED, has_code
from zonemta_py.mail.feedback.vocabulary import ORIGINALS

_REST_CHARACTERS = 4_000

_MARK = re.compile(
    rf"^[^\w\n]{{0,60}}+(?:\w{{1,9}}+ ){{0,3}}(?:{'|'.join(map(re.escape, ORIGINALS))})"
    r"(?! (?:was|has|you|sent))[^\n]{0,80}+$",
    re.IGNORECASE | re.MULTILINE,
)
_HEADER = re.compile(
    r"^(?:Received|Return-Path|X-Received|DKIM-Signature|ARC-Seal|Delivered-To|X-Originating-IP"
    r"|X-Apparently-To|X-Google-Smtp-Source)[ \t]?:",
    re.IGNORECASE | re.MULTILINE,
)
_FIELD = re.compile(
    r"^[ \t>]{0,8}(?:From|To|Subject|Date|Message-ID|Received|Return-Path)[ \t]?:", re.IGNORECASE | re.MULTILINE
)
_BLOCK = re.compile(
    r"(?:^(?:From|To|Subject|Date|Message-ID|MIME-Version|Content-Type|List-[A-Za-z]{2,12}): [^\n]*\n"
    r"(?:[ \t][^\n]*\n)*){3}",
    re.MULTILINE,
)
"""A header as it stands."""
_TRANSCRIPT = re.compile(r"^[ \t-]*(?:session transcript|transcript of session)", re.IGNORECASE | re.MULTILINE)
"""It may follow the original's header."""
_QUOTES = re.compile(r"^(?:> ?)+", re.MULTILINE)
_INDENT = re.compile(r"^[ \t]{1,8}", re.MULTILINE)


def parted(text: str) -> tuple[str, str]:
    """(what the report says, the original's header and what follows, "" if it is not in the text)."""
    if text.count("\n>") > 3:
        text = _QUOTES.sub("", text)
    mark, header = _MARK.search(text), _HEADER.search(text)
    if (
        mark
        and text[: mark.start()].strip()
        and (not header or mark.start() < header.start())
        and _is_letter(text[: mark.start()], text[mark.end() :])
    ):
        rest = text[mark.end() :]
        later = _TRANSCRIPT.search(rest) if not has_code(text[: mark.start()]) else None
        if later:
            return text[: mark.start()] + rest[later.start() :], _unindented(rest[: later.start()])
        return text[: mark.start()], _unindented(rest)
    if header and text[: header.start()].strip():
        return text[: header.start()], _unindented(text[header.start() :])
    block = _BLOCK.search(text)
    if block and "@" in text[: block.start()] and not (mark and mark.start() < block.start()):
        return text[: block.start()], _unindented(text[block.start() :])
    if mark and text[: mark.start()].strip() and not _goes_on(text[: mark.start()], text[mark.end() :]):
        return text[: mark.start()], ""
    return text, ""


def _is_letter(told: str, rest: str) -> bool:
    """Whether header fields follow: two, as "Subject:" alone may be the report's."""
    fields = len(_FIELD.findall(rest[:_REST_CHARACTERS]))
    return fields > 1 or (fields == 1 and not _goes_on(told, rest))


def _goes_on(told: str, rest: str) -> bool:
    """Whether what follows is no letter, but what matters of the report: whom it is about, or what the server said."""
    rest = rest[:_REST_CHARACTERS]
    return ("@" in rest and "@" not in told) or bool(ENHANCED.search(rest) and not ENHANCED.search(told))


def _unindented(original: str) -> str:
    original = original.lstrip("\n -=_|*")
    first = original[: len(original) - len(original.lstrip())]
    return _INDENT.sub("", original) if first else original
