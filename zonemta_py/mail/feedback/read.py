"""A message that came back, read: which kind of news about whom.

Pure, and safe with anything: `read` never raises, looks at the beginning of each part only (`parts`), and takes at
most 50 ms and 16 MB, about 1 ms for the usual report.
"""

from __future__ import annotations

import re

from zonemta_py.mail.feedback.parts import Parts, fields_of, take_apart
from zonemta_py.mail.feedback.report import Found, Report
from zonemta_py.mail.feedback.status import address_of, read_status
from zonemta_py.mail.headers import decode
from zonemta_py.mail.reply import Reply

_KEPT = frozenset(("from", "to", "subject", "date", "message-id", "list-id", "list-unsubscribe", "feedback-id"))
_MESSAGE_ID = re.compile(r"<[^<>\s]{1,500}>")
_VALUE_CHARACTERS_MAX = 500
_ORIGINAL_FIELDS_MAX = 40


def read(message: bytes) -> Report:
    """What the message says; a Report with form "" and one Found of kind "other" if nobody understands it."""
    parts = take_apart(message)
    form, found = _understood(parts)
    fields = fields_of(parts.original.partition("\n\n")[0].lstrip("\n"))
    named = _MESSAGE_ID.search(fields.get("message-id", ""))
    return Report(
        form,
        found or [Found("other", "", Reply(0), "")],
        named[0] if named else "",
        fields.get("feedback-id", ""),
        address_of(fields.get("return-path", "")),
        _original(fields),
        parts.decoded("subject")[:_VALUE_CHARACTERS_MAX],
    )


def _understood(parts: Parts) -> tuple[str, list[Found]]:
    found = read_status(parts.status) if parts.status else []
    return ("rfc3464", found) if found else ("", [])


def _original(fields: dict[str, str]) -> dict[str, str]:
    names = [name for name in fields if name in _KEPT or name.startswith("x-")][:_ORIGINAL_FIELDS_MAX]
    return {name: decode(fields[name])[:_VALUE_CHARACTERS_MAX] for name in names}
