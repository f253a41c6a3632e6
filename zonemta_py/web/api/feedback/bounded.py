"""What came back, told by a key or a webhook with a scope: only about its own mail, and only for its own lists.

A row that names a message is about that message's tenant and campaign, whatever else it says; one whose message nobody
knows is what the key says of its own. What follows from a bounce, a complaint or an unsubscribe is kept to a scope of
the suppression list that is the key's: a customer who invents bounces harms nobody else.
"""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

from zonemta_py.mail.list_id import campaign_scope
from zonemta_py.queue import questions
from zonemta_py.queue.api import EVERYBODY, Feedback
from zonemta_py.reception.scope import KeyScope, names
from zonemta_py.reception.suppression_scopes import is_own, written
from zonemta_py.web.request_context import RequestContext
from zonemta_py.wire.frames import feedback_row

_SUPPRESSES = ("bounce", "complaint", "unsubscribe")


class _Outside(Exception):
    """Why it is not in the scope; a part of a sentence."""


class _About(NamedTuple):
    """Whose a row is."""

    campaign: str
    tenant: str


async def bind(here: RequestContext, scope: KeyScope, who: str, rows: list[Feedback]) -> list[str]:
    """Makes each row one of the scope; why it cannot be one, "" if it is. who: the key or webhook. Raises
    QueueRefusal."""
    bare = [replace(row, campaign="", tenant="", zone="") for row in rows]
    ties = await here.queue.ask(questions.feedback_ties, rows=[feedback_row(row) for row in bare])
    refused = list[str]()
    for row, (message, campaign, tenant, known) in zip(rows, ties, strict=True):
        try:
            if message and known:
                about = _of_message(scope, campaign, tenant)
            else:
                about = await _claimed(here, scope, row, campaign)
            row.scope = _effect(scope, row, about)
        except _Outside as outside:
            refused.append(str(outside))
            continue
        row.campaign, row.tenant, row.zone = about.campaign, about.tenant, ""
        row.name = f"{who} {row.name}" if row.name else ""
        refused.append("")
    return refused


def _of_message(scope: KeyScope, campaign: str, tenant: str) -> _About:
    if not scope.covers(tenant, campaign):
        raise _Outside("its message is not in this key's scope; leave it out")
    return _About(campaign, tenant)


async def _claimed(here: RequestContext, scope: KeyScope, row: Feedback, campaign: str) -> _About:
    """Of no message that is known. campaign: that the report itself speaks of."""
    if row.message:
        raise _Outside("its message is not in this key's scope; leave it out")
    campaign = campaign or row.campaign
    if not campaign and scope.campaigns:
        campaign = _only("campaign", scope.campaigns)
    if campaign:
        if not await here.owns(scope, campaign):
            raise _Outside(f"the campaign {campaign[:80]!r} is not in this key's scope; leave it out")
        of = await here.queue.ask(questions.campaign_tenant, name=campaign)
        if row.tenant and of not in (row.tenant, EVERYBODY):
            raise _Outside(f"the campaign {campaign[:80]!r} is not of the tenant {row.tenant[:80]!r}; leave that out")
        if of != EVERYBODY:
            return _About(campaign, of or "")
    tenant = row.tenant or (_only("tenant", scope.tenants) if scope.tenants else "")
    if scope.tenants and tenant not in scope.tenants:
        raise _Outside(f"the tenant {tenant[:80]!r} is not in this key's scope; name one of {names(scope.tenants)}")
    return _About(campaign, tenant)


def _only(what: str, own: frozenset[str]) -> str:
    if len(own) == 1:
        return next(iter(own))
    raise _Outside(f"it names neither a message that is known nor a {what}; name one of {names(own)}"[:300])


def _effect(scope: KeyScope, row: Feedback, about: _About) -> str:
    """The scope of what follows from it."""
    if row.kind not in _SUPPRESSES:
        return row.scope
    whole = f"tenant:{about.tenant}", f"campaigns:{about.tenant}", f"list:{about.tenant}/"
    own = [*whole] if about.tenant and not scope.campaigns else []
    own += [campaign_scope(about.campaign, about.tenant)] if about.campaign else []
    if row.scope and not is_own(own, row.scope):
        known = ", ".join(map(written, own))
        raise _Outside(f"the scope {row.scope[:80]!r} is not its own; use one of {known}, or none")
    if not own:
        raise _Outside("it is of neither a tenant nor a campaign, so nobody's list has room for it; leave it out")
    if row.kind == "unsubscribe" and not row.scope and len(own) > 1:
        return own[1]
    return row.scope or own[0]
