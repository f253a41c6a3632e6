"""What makes feedback the same when it comes twice: by another way, from another reporter, or repeated for want of an
answer.

A name is "<message> <hash>", "-" for no message. Where message and recipient are known, they and the kind are the name
(of an unsubscribe its scope too, of an open or a click its text too: which link). A name that the caller gives, such as
a provider's number of the event, is one more. Where there is neither, all that was reported is hashed.
"""

from __future__ import annotations

import hashlib

from zonemta_py.mail.addresses.person import person
from zonemta_py.queue.api import Feedback

_BY_TEXT = ("open", "click")


def names(row: Feedback) -> list[str]:
    """Of a row whose message is found already, if it can be. One or two."""
    found: list[str] = []
    if row.message and row.recipient:
        more = row.scope if row.kind == "unsubscribe" else row.text if row.kind in _BY_TEXT else ""
        found.append(f"{row.message} {_hash(row.kind, person(row.recipient), more)}")
    elif row.message_id and row.recipient:
        found.append(f"- {_hash(row.kind, person(row.recipient), row.message_id, row.scope)}")
    if row.name:
        found.append(f"- {_hash('name', row.name)}")
    return found or [f"- {_hash(*_whole(row))}"]


def _whole(row: Feedback) -> list[str]:
    said = [row.kind, row.recipient, row.message, row.message_id, row.feedback_id, row.campaign, row.tenant]
    said += [str(row.code), row.enhanced, row.text, row.reporter, row.form, row.scope, row.mark]
    said += [f"{name}: {value}" for name, value in sorted(row.original.items())]
    return [*said, hashlib.sha256(row.raw).hexdigest()]


def _hash(*parts: str) -> str:
    """128 bits, 32 hexadecimal digits."""
    said = "\0".join(parts).encode("utf-8", "surrogateescape")
    return hashlib.sha256(said).hexdigest()[:32]
