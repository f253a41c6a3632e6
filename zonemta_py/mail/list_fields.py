"""Fields that tell mailbox providers whose mail it is and how to leave the list: Feedback-ID, List-Unsubscribe (RFC
2369) and List-Unsubscribe-Post (RFC 8058).

Promise: whatever a campaign, an address or a header says, a value stays one value: in URLs it is percent-encoded, in
Feedback-ID what is not a plain character becomes an underscore. Templates were checked when the configuration was read.
"""

from __future__ import annotations

import re
from urllib.parse import quote

from zonemta_py.mail.addresses import token

TOKEN_CHARACTERS = 26
_VALUE_MAX = 80
_NOT_PLAIN = re.compile(r"[^A-Za-z0-9._+@-]+")
_PURPOSE = "unsubscribe"


def feedback_id(template: str, **values: str) -> bytes:
    """The field with its CRLF; its parts are the template's, since no value has a colon."""
    plain = {name: _NOT_PLAIN.sub("_", value)[:_VALUE_MAX] for name, value in values.items()}
    return f"Feedback-ID: {template.format(**plain)}\r\n".encode()


def unsubscribe_url(template: str, secret: str, message_id: str, recipient: str, campaign: str) -> str:
    """Of a page that is not ours. The token proves that the link was made for that message and recipient."""
    values = {"id": message_id, "recipient": recipient, "campaign": campaign}
    values["token"] = unsubscribe_token(secret, message_id, recipient) if "{token}" in template else ""
    encoded = {name: quote(value, safe="", errors="surrogateescape") for name, value in values.items()}
    return template.format(**encoded)


def list_unsubscribe(*urls: str, mailto: str = "") -> bytes:
    """List-Unsubscribe with its CRLF, and for URLs (https) that take the one-click POST, List-Unsubscribe-Post. mailto:
    an address that takes mail instead. Empty if there is neither."""
    links = [f"<{url}>" for url in urls]
    if mailto:
        links.append(f"<mailto:{quote(mailto, safe='@=~+')}?subject=unsubscribe>")
    field = "List-Unsubscribe: " + ",\r\n ".join(links) + "\r\n" if links else ""
    return (field + "List-Unsubscribe-Post: List-Unsubscribe=One-Click\r\n" * bool(urls)).encode()


def unsubscribe_token(secret: str, message_id: str, recipient: str) -> str:
    """128 bits: unlike a return path, a link may be tried as often as one likes."""
    return token.tag(secret, _PURPOSE, message_id, recipient, characters=TOKEN_CHARACTERS)
