"""What HTTP and commands do alike with sender domains: what a change is, the key that goes with it, what DNS says."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any, Protocol

from zonemta_py.config import Config
from zonemta_py.delivery.dns import domain_records
from zonemta_py.delivery.dns.resolver import Resolver
from zonemta_py.queue import questions
from zonemta_py.queue.questions.question import A, P, Question


class FieldRefused(ValueError):
    """One sentence, after the field's name."""

    def __init__(self, field: str, sentence: str) -> None:
        super().__init__(sentence)
        self.field = field


class AsksQueue(Protocol):
    async def __call__(self, question: Question[P, A], *args: P.args, **arguments: P.kwargs) -> A: ...


def change(
    config: Config, name: str, given: Mapping[str, Any], before: questions.DomainRow | None
) -> dict[str, Any]:  # fmt: skip
    """For `questions.domain_put`. given: tenant, return_path, link, as far as they are given. before: None: it is new.
    Raises FieldRefused."""
    found = dict(given)
    if before is None and config.return_path.verp:
        found.setdefault("return_path", f"bounces.{name}")
    if found.get("return_path") and not config.return_path.verp:
        raise FieldRefused("return_path", "needs VERP addresses; set return_path.verp in the configuration")
    if found.get("link") and not config.links.enabled:
        raise FieldRefused("link", "needs the listener for links; set links.enabled in the configuration")
    return found


async def key(
    name: str, selector: str | None, algorithm: str, private: str | None, before: questions.DomainRow | None
) -> dict[str, Any]:  # fmt: skip
    """The part of a change that brings a key: made here, or given; empty if the domain has it. Raises FieldRefused."""
    from zonemta_py.mail.dkim.making import kept, made  # here: cryptography is slow to load
    from zonemta_py.mail.dkim.signature import KeyUnusable

    taken = {one["selector"] for one in before["keys"]} if before else set[str]()
    if not private:
        return {"key": await asyncio.to_thread(made, name, selector, algorithm, taken)}
    try:
        row = kept(name, selector, private, taken)
    except KeyUnusable as error:
        raise FieldRefused("private_key", str(error)) from None
    known = before is not None and any(one["record"] == row[2] for one in before["keys"])
    return {} if known else {"key": row}


async def looked(ask: AsksQueue, config: Config, row: questions.DomainRow) -> questions.DomainRow:
    """What DNS says of it now is noted. Raises ValueError, QueueRefusal."""
    dns = config.dns
    resolver = Resolver(dns.servers or None, dns.port, timeout_s=dns.timeout_s)
    found = await domain_records.look(resolver, config, row)
    said = {record: list(words) for record, words in found.items()}
    return await ask(questions.domain_looked, name=row["name"], found=said, changed_ms=row["changed_ms"])


def with_records(config: Config, row: questions.DomainRow) -> dict[str, Any]:
    """The same, with what has to be published, and how that is."""
    seen = {one["record"]: one for one in row["seen"]}
    records = list[dict[str, Any]]()
    for wanted in domain_records.wanted(config, row):
        said = seen.get(wanted.record)
        records.append({
            **wanted._asdict(), "line": wanted.line, "status": said["status"] if said else "unasked",
            "words": said["words"] if said else "", "at_ms": said["at_ms"] if said else 0,
        })  # fmt: skip
    return {**row, "records": records}
