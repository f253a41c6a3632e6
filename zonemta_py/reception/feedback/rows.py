"""From a message that came back, read, to the rows that the queue records: pure.

A token of ours decides whom it is about: first that of the address it came to, then that of a return path or an
unsubscribe address of ours that the enclosed original has. A return path was seen only by the servers that had the
recipient's copy, so it proves the news about this recipient, and no other; an unsubscribe address stands in the header
for all to see to whom that copy was forwarded, so it proves no more than the wish to leave. A report about somebody
else at such an address, as where a mailbox was forwarded, is about the token's recipient; whom it named stays in the
text.

Without a token every recipient that the report names has a row, with what the queue needs to find the message.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from typing import NamedTuple

from zonemta_py.mail.addresses.authors import authors
from zonemta_py.mail.addresses.ours import NotOurs, Ours, ReturnDomains
from zonemta_py.mail.addresses.verp import Return
from zonemta_py.mail.feedback.answers import is_automatic
from zonemta_py.mail.feedback.parts import fields_of
from zonemta_py.mail.feedback.report import KINDS, Found, Report
from zonemta_py.mail.headers import Headers
from zonemta_py.mail.reports.letters import AggregateReport
from zonemta_py.mail.reports.words import sentence
from zonemta_py.queue.api import Feedback

RAW_BYTES_MAX = 32_768
"""Of what nobody understood, kept for an operator."""
ROWS_MAX = 100
"""Recipients of one report without a token."""
_MAILTO = re.compile(r"<mailto:([^<>?\s]{1,320})", re.IGNORECASE)
_WEIGHT = {kind: weight for weight, kind in enumerate(KINDS)}


class Came(NamedTuple):
    """A message as it came. beginning: of its bytes. report: what that says. genuine: how its author is proven: "dkim",
    "spf" or "". null: its sender was the null one."""

    beginning: bytes
    report: Report
    genuine: str
    null: bool


def rows(ours: Ours, came: Came, domains: ReturnDomains, today: int) -> list[Feedback]:
    """Of one address that it came to. today: days since 1970."""
    if ours.purpose == "unsubscribe" and ours.returned is not None and _asks(came):
        leaving = Feedback("unsubscribe", scope=ours.scope, via="mailto", form="mailto", genuine="token")
        return [_about(leaving, ours.returned, _author(came, ours.returned))]
    told = ours if ours.returned else enclosed(came.report, domains, today)
    if told is not None and told.returned is not None:
        found = _meant(came.report.found, told.returned)
        genuine = "token" if told.purpose == "verp" else came.genuine
        return [_about(_row(found, came, ours, genuine, 0), told.returned, found.recipient)]
    return [_row(found, came, ours, came.genuine, at) for at, found in enumerate(came.report.found[:ROWS_MAX])]


def report_rows(reports: Sequence[AggregateReport], author: str, signer: str) -> list[Feedback]:
    """Of reports on our mail as a whole. author: the domain of the mail's author; signer: whose signature is valid, ""
    none. Who can sign for another domain cannot keep a report out by saying the same before."""
    return [
        Feedback(
            one.kind, text=sentence(one.kind, one.said), reporter=signer or author, form=one.kind.partition("-")[0],
            via="smtp", genuine="dkim" if signer else "", name=f"{one.name}\n{signer}", report=one.said,
        )
        for one in reports
    ]  # fmt: skip


def unread_report(address: str, came: Came, author: str, why: str) -> Feedback:
    """What is meant as such a report and is not read: kept for an operator."""
    return Feedback(
        "other", text=f"a report that is not read: {why}", reporter=author, via="smtp",
        name=_name(came, Ours("report", address), 0), raw=came.beginning[:RAW_BYTES_MAX],
    )  # fmt: skip


def _asks(came: Came) -> bool:
    """Whether a person or a mailbox provider wrote it: what machines answer is no wish to leave."""
    kinds = {found.kind for found in came.report.found}
    if came.null or not kinds <= {"unsubscribe", "other"}:
        return False
    return "unsubscribe" in kinds or not is_automatic(_fields(came))


def _fields(came: Came) -> dict[str, str]:
    return fields_of(came.beginning.replace(b"\r\n", b"\n").partition(b"\n\n")[0].decode("latin-1"))


def _author(came: Came, returned: Return) -> str:
    """Who wrote it, if the address is theirs: one that is too long for it is there as a hash only."""
    found = [one for value in Headers.parse(came.beginning).all("from") for one in authors(value)]
    return next((one for one in found if returned.is_to(one)), "")


def enclosed(report: Report, domains: ReturnDomains, today: int) -> Ours | None:
    """The address of ours that the original has, with a token that is genuine and young enough."""
    for address in (report.return_path, *_MAILTO.findall(report.original.get("list-unsubscribe", ""))):
        try:
            found = domains.find(address, today)
        except NotOurs:
            continue
        if found is not None and found.returned is not None:
            return found
    return None


def _meant(found: list[Found], returned: Return) -> Found:
    """The news about the token's recipient; if it is not named, what weighs most."""
    named = [one for one in found if one.recipient and returned.is_to(one.recipient)]
    return min(named or found, key=lambda one: _WEIGHT.get(one.kind, len(KINDS)))


def _about(row: Feedback, returned: Return, reported: str) -> Feedback:
    row.message, row.mark = returned.id, returned.mark
    row.recipient = returned.recipient
    if not reported:
        return row
    if returned.is_to(reported):
        row.recipient = reported  # whose case was not lost on the way
    else:
        row.text = f"{row.text} (reported for {reported})".lstrip()
    return row


def _row(found: Found, came: Came, ours: Ours, genuine: str, at: int) -> Feedback:
    report, reply = came.report, found.reply
    understood = bool(report.form) and found.kind != "other"
    return Feedback(
        found.kind, found.recipient, message_id=report.message_id, feedback_id=report.feedback_id, code=reply.code,
        enhanced=reply.enhanced, text=reply.text or ("" if understood else report.subject), reporter=found.reporter,
        form=report.form, via="smtp", genuine=genuine, name=_name(came, ours, at),
        raw=b"" if understood else came.beginning[:RAW_BYTES_MAX], original=report.original, quoted=found.quoted,
    )  # fmt: skip


def _name(came: Came, ours: Ours, at: int) -> str:
    """The same when the same message comes again, as after a lost answer."""
    return hashlib.sha256(b"%d %s " % (at, ours.address.lower().encode()) + came.beginning).hexdigest()[:32]
