"""What makes feedback the same when it comes twice: by another way, from another reporter, or repeated for want of an
answer.

A name is "<message> <hash>", "-" for no message. Where message and recipient are known, they and the kind are the name
(of an unsubscribe its scope too, of an open or a click its text too: which link; of "other" all of it: two letters of a
person are two things). A name that the caller gives, such as a provider's number of the event, is one more. Where there
is neither, all that was reported is hashed. What nothing proves is never the same as what is proven: else anybody could
keep that out. A report on our mail as a whole is "<kind> <day and hash>", so that those of a period are next to one
another.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any

from zonemta_py.journal.records.people import AGGREGATES
from zonemta_py.mail.addresses.person import person
from zonemta_py.queue.api import Feedback

_BY_TEXT = ("open", "click")
_DAY_S = 86_400


def names(row: Feedback) -> list[str]:
    """Of a row whose message is found already, if it can be. One or two."""
    found, proven = list[str](), [] if row.genuine else ["unproven"]
    if row.kind in AGGREGATES:
        return [f"{row.kind} {day_of(row.report):08x}{_hash(row.name, *proven)}"]
    if row.message and row.recipient:
        found.append(f"{row.message} {_hash(row.kind, person(row.recipient), _more(row), *proven)}")
    elif row.message_id and row.recipient and row.kind != "other":
        found.append(f"- {_hash(row.kind, person(row.recipient), row.message_id, row.scope, *proven)}")
    if row.name:
        found.append(f"- {_hash('name', row.name, *proven)}")
    return found or [f"- {_hash(*_whole(row))}"]


def day_of(report: Mapping[str, Any]) -> int:
    """That a report is about; days since 1970."""
    return max(0, int(report.get("begin_s") or 0)) // _DAY_S


def _more(row: Feedback) -> str:
    """What tells news of one kind about one recipient apart."""
    if row.kind == "other":
        return row.name or "\0".join(_whole(row))
    return row.scope if row.kind == "unsubscribe" else row.text if row.kind in _BY_TEXT else ""


def _whole(row: Feedback) -> list[str]:
    said = [row.kind, row.recipient, row.message, row.message_id, row.feedback_id, row.campaign, row.tenant]
    said += [str(row.code), row.enhanced, row.text, row.reporter, row.form, row.scope, row.mark]
    said += [f"{name}: {value}" for name, value in sorted(row.original.items())]
    return [*said, hashlib.sha256(row.raw).hexdigest()]


def _hash(*parts: str) -> str:
    """128 bits, 32 hexadecimal digits."""
    said = "\0".join(parts).encode("utf-8", "surrogateescape")
    return hashlib.sha256(said).hexdigest()[:32]
