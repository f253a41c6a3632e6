"""Queries and orders about sender domains."""

from __future__ import annotations

import logging
from typing import Any

from zonemta_py.disk.leveldb.store import StoreError
from zonemta_py.mail.sender_domain import DomainRefused, SenderDomain, checked_domain
from zonemta_py.queue import questions
from zonemta_py.queue.api import QueueRefusal
from zonemta_py.queue.lifecycle.context import QueueContext
from zonemta_py.queue.questions.question import AnswerTable, Refused, is_repeated

log = logging.getLogger(__name__)

ANSWERS = AnswerTable[QueueContext]()
ROWS_MAX, WALKED_MAX = 1_000, 20_000
OFF = "sender domains are off; set server.sender_domains = true"


@ANSWERS.to(questions.domain_put)
async def _put(
    queue: QueueContext, name: str, change: dict[str, Any], own: list[str] | None = None, by: str = "", now_ms: int = 0
) -> dict[str, Any]:
    """Raises Refused: also where it is another's."""
    found = _found(queue, name, own) or SenderDomain(_checked(name))
    try:
        domain = found.put(change, now_ms or queue.core.clock.ms(), by)
        if own is not None and domain.tenant not in own:
            raise Refused(f"{domain.name} would be of the tenant {domain.tenant!r}; name one of {', '.join(own)}")
        await queue.sender_domains.put(domain)
    except DomainRefused as error:
        raise Refused(str(error)) from None
    _note(f"sender domain {domain.name}: changed", by)
    return row_of(domain)


@ANSWERS.to(questions.domain_looked)
async def _looked(
    queue: QueueContext, name: str, found: dict[str, list[str]], changed_ms: int = 0, now_ms: int = 0
) -> dict[str, Any]:  # fmt: skip
    before = _found(queue, name, None)
    if before is None:
        raise _nobody(name)
    if changed_ms not in (0, before.changed_ms):
        return row_of(before)
    seen = {record: (one[0], one[1]) for record, one in found.items()}
    domain = before.looked(seen, now_ms or queue.core.clock.ms())
    await queue.sender_domains.put(domain)
    if (keys := [key.selector for key in domain.signing()]) != [key.selector for key in before.signing()]:
        _note(f"sender domain {domain.name}: {'signs with ' + ', '.join(keys) if keys else 'signs no more'}", "")
    return row_of(domain)


@ANSWERS.to(questions.domain_remove)
async def _remove(queue: QueueContext, name: str, own: list[str] | None = None, by: str = "") -> bool:
    found = _found(queue, name, own)
    if found is None:
        return False
    await queue.sender_domains.remove(found.name)
    _note(f"sender domain {found.name}: removed", by)
    return True


@ANSWERS.to(questions.domain)
async def _domain(queue: QueueContext, name: str, own: list[str] | None = None) -> dict[str, Any] | None:
    try:
        found = _found(queue, name, own)
    except Refused:
        return None
    return row_of(found) if found is not None else None


@ANSWERS.to(questions.domains)
async def _domains(
    queue: QueueContext, after: str = "", limit: int = 100, own: list[str] | None = None
) -> dict[str, Any]:  # fmt: skip
    limit, rows, last = max(1, min(limit, ROWS_MAX)), list[dict[str, Any]](), None
    for walked, domain in enumerate(queue.sender_domains.every(after), 1):
        if len(rows) >= limit or walked > WALKED_MAX:
            return {"rows": rows, "next": last}
        last = domain.name
        if own is None or domain.tenant in own:
            rows.append(row_of(domain))
    return {"rows": rows, "next": None}


def _found(queue: QueueContext, name: str, own: list[str] | None) -> SenderDomain | None:
    """Raises Refused, QueueRefusal."""
    if not queue.core.config.server.sender_domains:
        raise Refused(OFF)
    try:
        found = queue.sender_domains.get(_checked(name))
    except StoreError as error:
        raise QueueRefusal(queue.core.disk.unreadable(error)) from None
    if found is not None and own is not None and found.tenant not in own:
        raise Refused(f"{found.name} is not yours; ask who runs this server")
    return found


def _checked(name: str) -> str:
    try:
        return checked_domain(name)
    except DomainRefused as error:
        raise Refused(str(error)) from None


def _nobody(name: str) -> Refused:
    return Refused(f"there is no sender domain {name[:80]!a}; `zonemta domain list` shows those that there are")


def _note(sentence: str, by: str) -> None:
    if not is_repeated():
        log.info("%s%s", sentence, f" by {by}" if by else "")


def row_of(domain: SenderDomain) -> dict[str, Any]:
    """As it is answered, without what is private."""
    return {
        "name": domain.name, "tenant": domain.tenant,
        "keys": [
            {
                "selector": key.selector, "state": key.state, "since_ms": key.since_ms,
                "name": f"{key.selector}._domainkey.{domain.name}", "record": key.record,
            }
            for key in domain.keys
        ],
        "return_path": domain.return_path, "link": domain.link,
        "seen": [{"record": record, **one._asdict()} for record, one in domain.seen.items()],
        "signs": bool(domain.signing()), "uses_return_path": bool(domain.verp), "uses_link": bool(domain.links),
        "made_ms": domain.made_ms, "changed_ms": domain.changed_ms, "by": domain.by,
    }  # fmt: skip
