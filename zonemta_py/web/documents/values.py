"""Checks of single values: each returns the value in its final form, or raises ValueError with one sentence.

No accepted value can end a header field, an SMTP line, a key of the store or a log line: none has control characters,
except for line ends and tabs in body texts.
"""

from __future__ import annotations

import re
from typing import Any

from zonemta_py.mail import metadata
from zonemta_py.mail.address import AddressRefused, parse_mailbox
from zonemta_py.mail.addresses.domain import canonical
from zonemta_py.mail.fields import CONTROLS

VALUE_CHARACTERS_MAX = 65_536
COLUMNS_MAX = 500
COLUMN_CHARACTERS_MAX = 63
_UNFIT = re.compile(rf"[{CONTROLS}\ud800-\udfff]")
_UNFIT_IN_TEXT = re.compile("[\x00-\x08\x0b\x0e-\x1f\x7f\x80-\x84\x86-\x9f\ud800-\udfff]")
LINE_PATTERN = rf"^[^{CONTROLS}]*$"
TEXT_PATTERN = r"^[^\x00-\x08\x0b\x0e-\x1f\x7f-\x84\x86-\x9f]*$"
COLUMN_PATTERN = "^[A-Za-z_][A-Za-z0-9_]{0,62}$"
"""For descriptions of columns only: letters of all languages are accepted, which no short pattern expresses."""
HEADER_PATTERN = r"^[A-Za-z0-9!#$%&'*+.^_`|~-]{1,76}$"
MEDIA_PATTERN = r"^(?!multipart/|message/)[A-Za-z0-9!#$&^_.+-]{1,80}/[A-Za-z0-9!#$&^_.+-]{1,80}$"
CONTENT_ID_PATTERN = r"^[A-Za-z0-9._+-]{1,100}(@[A-Za-z0-9.-]{1,100})?$"
UPLOAD_PATTERN = rf"^(?!sha256:)(?!\.{{1,2}}$)[^/{CONTROLS}]{{1,255}}$"
"""A path with . or .. in it is another one to many clients."""
_SPACE, _DIGIT = "[ \\t\\r\\n]*", "[A-Za-z0-9+/]"
BASE64_PATTERN = (
    f"^{_SPACE}(?:(?:{_DIGIT}{_SPACE}){{4}})*"
    f"(?:(?:{_DIGIT}{_SPACE}){{2}}(?:={_SPACE}){{2}}|(?:{_DIGIT}{_SPACE}){{3}}={_SPACE})?$"
)
NAME_PATTERN = "^[A-Za-z0-9][A-Za-z0-9._-]{0,62}$"
_NAME = re.compile(NAME_PATTERN.strip("^$"))
_TOKEN = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]{1,76}")
_OURS = re.compile(
    r"from|sender|to|cc|bcc|subject|reply-to|return-path|received|mime-version|content-.*|dkim-signature|resent-.*"
    r"|arc-.*|authentication-results",
    re.IGNORECASE,
)
_UPLOAD = re.compile(UPLOAD_PATTERN.strip("^$"))
_REQUEST_KEY = re.compile(r"[ -~]{1,200}")
_MEDIA = re.compile(r"[A-Za-z0-9!#$&^_.+-]{1,80}/[A-Za-z0-9!#$&^_.+-]{1,80}")
_CONTENT_ID = re.compile(r"[A-Za-z0-9._+-]{1,100}(@[A-Za-z0-9.-]{1,100})?")


def whole(value: Any) -> Any:
    """In JSON, 3.0 is the integer 3 (JSON Schema, 6.1.1)."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


def fits(text: str) -> bool:
    """Whether it may stand in a field: no control characters, line separators or halves of surrogate pairs."""
    return text.isprintable() or not _UNFIT.search(text)


def field(text: str) -> str:
    """A value of one line."""
    if len(text) > VALUE_CHARACTERS_MAX:
        raise ValueError(f"has more than {VALUE_CHARACTERS_MAX:,} characters; shorten it")
    if not fits(text):
        found = _UNFIT.search(text)
        assert found is not None
        raise ValueError(f"has the control character U+{ord(found[0]):04X}; remove it")
    return text


def text(value: str) -> str:
    """A body, of many lines."""
    found = _UNFIT_IN_TEXT.search(value)
    if found:
        raise ValueError(f"has the control character U+{ord(found[0]):04X}; remove it")
    return value


def message_metadata(given: dict[str, Any]) -> dict[str, Any]:
    return _metadata(given, metadata.MESSAGE_BYTES_MAX)


def recipient_metadata(given: dict[str, Any]) -> dict[str, Any]:
    return _metadata(given, metadata.RECIPIENT_BYTES_MAX)


def _metadata(given: dict[str, Any], most: int) -> dict[str, Any]:
    if wrong := metadata.fault(given, most):
        raise ValueError(wrong)
    return given


def address(given: str) -> str:
    """name@domain, the domain in lower case, and in A-labels unless the name itself is international (RFC 6531)."""
    try:
        found = parse_mailbox(given)
    except AddressRefused:
        raise ValueError(f"{given[:100]!a} is not an email address; write name@domain") from None
    if found.isascii():
        return found
    local, _, domain = found.rpartition("@")
    return f"{local}@{canonical(domain)}" if local.isascii() else found


def return_path(given: str) -> str:
    """The same, or "" for the null sender."""
    return address(given) if given else ""


def name(given: str) -> str:
    """Of a campaign or tenant."""
    if not _NAME.fullmatch(given):
        raise ValueError(
            f"{given[:80]!a} is not a valid name; use up to 63 letters, digits, dots, underscores and hyphens"
        )
    return given


def header_name(given: str) -> str:
    if not _TOKEN.fullmatch(given):
        raise ValueError(f"{given[:80]!a} is not the name of a header field; use letters, digits and -")
    if _OURS.fullmatch(given):
        raise ValueError(f"{given} is made by this server or from a key of the request; remove it from headers")
    return given


def media_type(given: str) -> str:
    if not _MEDIA.fullmatch(given) or given.lower().startswith(("multipart/", "message/")):
        raise ValueError(f"{given[:80]!a} is not a media type for an attachment; write it like application/pdf")
    return given.lower()


def content_id(given: str) -> str:
    if not _CONTENT_ID.fullmatch(given):
        raise ValueError(f"{given[:80]!a} is not a Content-ID; use letters, digits, dots and hyphens")
    return given


def file_name(given: str) -> str:
    if not given or len(given) > 255 or not fits(given):
        raise ValueError("is not a file name; use up to 255 characters, without controls")
    return given


def upload_name(given: str) -> str:
    """Of an attachment that is uploaded: it is a part of a path, and a digest may stand in its place."""
    if not _UPLOAD.fullmatch(given) or not fits(given):
        raise ValueError(
            f"{given[:80]!a} is no name for an attachment; use up to 255 characters, without /, controls or sha256:"
        )
    return given


def column(given: str) -> str:
    if not given.isidentifier() or len(given) > COLUMN_CHARACTERS_MAX:
        raise ValueError(f"a template cannot name the column {given[:80]!a}; use letters, digits and _")
    return given


def request_key(given: str) -> str:
    """The value of the Idempotency-Key field, without the quotes of a structured field (RFC 9651)."""
    given = given.strip()
    if len(given) >= 2 and given[0] == given[-1] == '"':
        given = given[1:-1]
    if not _REQUEST_KEY.fullmatch(given):
        raise ValueError("is not 1 to 200 printable ASCII characters; use a UUID, or your own name for the request")
    return given
