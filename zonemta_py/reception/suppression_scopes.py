"""The part of the suppression list that a scope (`reception.scope`) covers: entries of its tenants and campaigns.

Entries for all mail, or for a zone, concern every tenant: whoever has a scope neither sees nor changes them.
"""

from __future__ import annotations

from typing import cast

from zonemta_py.mail.list_id import campaign_scope
from zonemta_py.queue import questions
from zonemta_py.queue.api import EVERYBODY, Admin
from zonemta_py.reception.scope import KeyScope, OutOfScope

CAMPAIGNS_MAX = 1_000
"""Campaigns of a scope, the newest, that are shown, and whose own entries are looked at."""


async def people_scopes(queue: Admin, scope: KeyScope) -> list[str] | None:
    """Names of the entries' scopes, in order; None: all. "list:TENANT/": all lists of a tenant; campaigns likewise.

    An entry of an earlier version for a campaign of whatever tenant is an operator's."""
    if not scope.bound:
        return None
    found = set[str]()
    if not scope.campaigns:
        found |= {f"{kind}:{tenant}" for tenant in scope.tenants if tenant for kind in ("tenant", "campaigns")}
        found |= {f"{kind}:{tenant}/" for tenant in scope.tenants if tenant for kind in ("list", "campaign")}
        if "" in scope.tenants:
            own = [row for row in await own_campaigns(queue, scope) if not row["tenant"]]
            found |= {campaign_scope(row["name"], "") for row in own}
        return sorted(found)
    for name in scope.campaigns:
        tenant = await queue.ask(questions.campaign_tenant, name=name)
        tenants = scope.tenants or {tenant or ""}
        found |= {campaign_scope(name, "" if tenant == EVERYBODY else tenant) for tenant in tenants}
    return sorted(found)


async def own_campaigns(queue: Admin, scope: KeyScope) -> list[questions.CampaignRow]:
    """The newest campaigns in the scope, CAMPAIGNS_MAX at most."""
    found, after = list[questions.CampaignRow](), ""
    while len(found) < CAMPAIGNS_MAX:
        page = await queue.ask(questions.campaigns, after=after)
        if not page:
            break
        found += [row for row in page if scope.covers(EVERYBODY if row["of_all"] else row["tenant"], row["name"])]
        after = page[-1]["name"]
    return found[:CAMPAIGNS_MAX]


def is_own(mine: list[str], scope: str) -> bool:
    """Whether it is one of these."""
    return scope in mine or ("/" in scope and f"{scope.rpartition('/')[0]}/" in mine)


def own_scope(mine: list[str], wanted: str | None, kind: str) -> str:
    """The scope of a new entry; not given: the only tenant's or campaign's, for an unsubscribe its campaigns'. Raises
    OutOfScope."""
    if wanted is None:
        usual = [one for one in mine if one.startswith("campaigns:" if kind == "unsubscribe" else "tenant:")] or mine
        if len(usual) == 1:
            return usual[0]
    elif is_own(mine, wanted):
        return wanted
    if not mine:
        raise OutOfScope("has neither a tenant nor a campaign whose entries it could change; give its account a tenant")
    what = f"is not for the scope {wanted!r}" if wanted else "has several scopes, and the entry names none"
    raise OutOfScope(f"{what}; use one of {', '.join(map(written, mine))}"[:400])


def written(scope: str) -> str:
    """As a sentence has it."""
    return f"{scope}NAME" if scope[-1] == "/" else scope


def entries_of(row: questions.SuppressionRowsOf | None, mine: list[str] | None) -> list[questions.SuppressionRow]:
    """An address's entries (the answer to `questions.suppression`) that are in one of these scopes."""
    if row is None:
        return []
    first = cast(questions.SuppressionRow, {name: value for name, value in row.items() if name != "others"})
    rows = [first, *row["others"]]
    return [one for one in rows if mine is None or is_own(mine, one["scope"])]


async def page_of(
    queue: Admin, mine: list[str], after: str, limit: int, kind: str | None, wanted: str | None
) -> questions.SuppressionRows:
    """As "suppressions", scope by scope: nothing else is read, and no cursor names anybody else. Raises ValueError."""
    scopes = mine if wanted is None else [wanted] if is_own(mine, wanted) else []
    within = after.rpartition(" ")[2]
    begin = next((number for number, one in enumerate(scopes) if is_own([one], within)), None) if after else 0
    if begin is None:
        raise ValueError(f"{after!r} is not a cursor of these pages; begin again without it")
    rows: list[questions.SuppressionRow] = []
    for scope in scopes[begin:]:
        page = await queue.ask(questions.suppressions, after=after, limit=limit - len(rows), kind=kind, scope=scope)
        rows, after = rows + page["rows"], ""
        if page["next"] is not None or len(rows) >= limit:
            return {"rows": rows, "next": page["next"] or f"{rows[-1]['address']} {rows[-1]['scope']}"}
    return {"rows": rows, "next": None}
