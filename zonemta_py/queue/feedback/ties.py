"""Ties what came back to the message and the recipient it is about.

First by the token of the address that it came to (its reader gives message and recipient then), next by the original's
Message-ID, then by its Feedback-ID, made from the configured template, at last by what else is enclosed of its header:
a signed return path, or an id of ours in any field. What is found is only whose figures it is in: what proves that it
is genuine is asked elsewhere.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator
from functools import lru_cache
from typing import cast

from zonemta_py.mail.addresses import verp
from zonemta_py.mail.addresses.link import WIDENING, Scope, scope_for
from zonemta_py.mail.addresses.verp import Return, VerpRefused
from zonemta_py.queue.api import Feedback
from zonemta_py.queue.core.core import Core

_ID = re.compile(r"(?<![0-9A-Za-z])[0-9a-f]{16}(?![0-9A-Za-z])")
_ADDRESS = re.compile(r"[^\s<>,;:\"()]+@[^\s<>,;:\"()]+")
_MERGED = re.compile(r"<?([0-9a-f]{32})(?:\.([0-9a-f]{16}))?@")
_DAY_MS = 86_400_000
IDS_MAX = 20
"""Numbers in enclosed fields that are looked up."""
_WITH_PEOPLE = ("to", "x-failed-recipients", "original-recipient", "final-recipient", "x-original-to", "delivered-to")


class Ties:
    """Finds messages by what is known of them."""

    def __init__(self, core: Core) -> None:
        self._core = core

    def tie(self, row: Feedback) -> str:
        """Fills in what is found out, and returns by what: "token", "given" (by a program that asks with a key),
        "message-id", "feedback-id", "headers"; "": by nothing. Raises StoreError."""
        if row.mark:
            row.recipient = self._marked(row)
        tied, list_name = self._by(row), ""
        if row.message and (sent := self._core.counters.sent.get(row.message)) is not None:
            row.campaign, row.tenant = sent.campaign or row.campaign, sent.tenant or row.tenant
            row.zone, list_name = sent.zone or row.zone, sent.list_name
            if row.kind == "unsubscribe" and not row.scope:  # as the mail's own link would have stopped
                scope = cast(Scope, sent.scope or self._core.config.links.scope)
                row.scope = scope_for(scope, row.campaign, row.tenant, list_name)
        if row.via == "mailto":
            row.scope = _reach(row, list_name)
        return tied

    def _by(self, row: Feedback) -> str:
        if row.message:
            return "token" if row.genuine == "token" else "given"
        if row.message_id:
            row.message = self._core.counters.sent.called(row.message_id)
            if row.message or self._of_merged(row):
                return "message-id"
        feedback_id = row.feedback_id or row.original.get("feedback-id", "")
        if feedback_id and self._by_feedback_id(row, feedback_id):
            return "feedback-id"
        if self._by_return_path(row) or self._by_numbers(row):
            return "headers"
        return ""

    def _marked(self, row: Feedback) -> str:
        """Of whom the return path's hash was made: one of those who are named, or of the message's recipients; "": none
        was."""
        path = Return("", "", 0, row.mark)
        named = [
            row.recipient,
            *(one for field in _WITH_PEOPLE for one in _ADDRESS.findall(row.original.get(field, ""))),
        ]
        named_so = next((one for one in named if one and path.is_to(one)), "")
        return named_so or self._core.counters.sent.recipient(row.message, row.mark)

    def _of_merged(self, row: Feedback) -> bool:
        """A merged message's Message-ID is a hash of campaign and recipient, and the message's id (`merge.render`);
        versions before had no id in it."""
        found = _MERGED.match(row.message_id)
        if found is not None and found[2] and self._core.counters.sent.get(found[2]) is not None:
            row.message = found[2]
            return True
        if found is None or not row.recipient:
            return False
        for name, campaign in self._core.campaigns.by_name.items():
            said = f"{name}\0{row.recipient}".encode("utf-8", "surrogatepass")
            if hashlib.sha256(said).hexdigest()[:32] == found[1]:
                row.campaign, row.tenant = name, campaign.tenant or row.tenant
                return True
        return False

    def _by_feedback_id(self, row: Feedback, value: str) -> bool:
        pattern = _template(self._core.config.return_path.feedback_id)
        found = pattern.fullmatch(value.strip()) if pattern is not None else None
        if found is None:
            return False
        said = found.groupdict()
        if _ID.fullmatch(said.get("id") or ""):
            row.message = said["id"]
        elif said.get("campaign") not in self._core.campaigns.by_name:
            return False
        row.campaign, row.tenant = said.get("campaign") or row.campaign, said.get("tenant") or row.tenant
        row.zone = said.get("zone") or row.zone
        return True

    def _by_return_path(self, row: Feedback) -> bool:
        """That of the original, where it is enclosed."""
        path, value = self._core.config.return_path, row.original.get("return-path", "").strip("<> ")
        if not path.verp or not value:
            return False
        try:
            said = verp.decode(value, path.secrets, self._core.clock.ms() // _DAY_MS, path.days)
        except VerpRefused:
            return False
        row.message, row.mark = said.id, said.mark
        row.recipient = self._marked(row) if said.mark else said.recipient
        return True

    def _by_numbers(self, row: Feedback) -> bool:
        for number in _numbers(row):
            if self._core.counters.sent.get(number) is not None:
                row.message = number
                return True
        return False


def _reach(row: Feedback, list_name: str) -> str:
    """Of an unsubscribe by mail, whose address has no room for the names of campaign, list and tenant."""
    return scope_for(row.scope, row.campaign, row.tenant, list_name) if row.scope in WIDENING else row.scope


def _numbers(row: Feedback) -> Iterator[str]:
    """What may be an id of ours in the original's fields."""
    found = (one for value in row.original.values() for one in _ID.findall(value))
    for _, number in zip(range(IDS_MAX), dict.fromkeys(found), strict=False):
        yield number


@lru_cache(4)
def _template(template: str) -> re.Pattern[str] | None:
    """What a Feedback-ID made from the template looks like; None: there is no template. A name that the template has
    twice is taken from its first place."""
    if not template:
        return None
    seen, pattern = set[str](), ""
    for part in re.split(r"(\{[a-z]+\})", template):
        name = part[1:-1] if part[:1] == "{" else ""
        if not name:
            pattern += re.escape(part)
        else:
            pattern += "[A-Za-z0-9._+@-]*" if name in seen else f"(?P<{name}>[A-Za-z0-9._+@-]*)"
            seen.add(name)
    return re.compile(pattern)
