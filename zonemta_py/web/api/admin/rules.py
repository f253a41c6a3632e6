"""/v1/rules: the rules that say what replies mean, and which of them matches one."""

from __future__ import annotations

import asyncio
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Query, Request, Response
from pydantic import Field

from zonemta_py.config import Config, ConfigError
from zonemta_py.config.section import shipped
from zonemta_py.mail.rules.rule import reply_of
from zonemta_py.mail.rules.rules import Rules, rule_row
from zonemta_py.queue.lifecycle.classification import load
from zonemta_py.queue.suppression.explain_reply import explained
from zonemta_py.web.api.admin import bodies, where
from zonemta_py.web.api.admin.operation import asked, operation, tagged
from zonemta_py.web.authentication import answer
from zonemta_py.web.documents import models
from zonemta_py.web.documents.derived import OpenRow
from zonemta_py.web.documents.problem import FieldError, RequestProblem, invalid
from zonemta_py.zones.site import Providers

router = APIRouter(prefix="/v1/rules")
Stage = Literal[
    "connect", "banner", "ehlo", "tls", "tls-policy", "auth", "mail", "rcpt", "data", "body", "dot", "dns", "report"
]


class RuleRow(OpenRow):
    rule: str
    asks: str
    """What it asks of a reply."""
    action: dict[str, Any]
    """What differs from doing nothing."""
    file: str
    kind: str = Field(alias="class")


class ExplainedRow(RuleRow):
    """What the first rule, which decides, has beside the others, and what those have that have no say."""

    judged: str = ""
    """The class that such a reply gets: the rule's, or that of the opinion."""
    about: str = ""
    """Of whom the reply speaks; "": it names nobody."""
    suppresses: str = ""
    """When such replies put the recipient on the suppression list, such as "after one reply" or "never"."""
    opinion: str = ""
    """Why a small statistical model names another class than the rule; "": the rule's class holds."""
    disagree: list[str] = Field(default_factory=list)
    """Rules that match too, and mean something else."""
    barred: str = ""
    """Why this rule has no say though its conditions hold."""


@router.get("", **operation("read", "The rules for replies", list[RuleRow], tagged=True))
async def every(
    request: Request,
    kind: Annotated[where.Class | None, Query(alias="class", description="Only rules of this class.")] = None,
) -> Response:
    """In the order in which they are asked."""
    rules = await asyncio.to_thread(_load, asked(request)[0].config)
    return tagged(request, [rule_row(rule) for rule in rules.rules if kind in (None, rule.kind)])


@router.get("/explain", **operation("read", "Which rules match a reply", list[ExplainedRow]))
async def explain(
    request: Request,
    reply: Annotated[bodies.ReplyText, Query(description='Such as "550 5.1.1 No such user".')],
    stage: Annotated[Stage, Query(description="When it came.")] = "rcpt",
    provider: Annotated[models.By, Query(description="From which provider; default: any.")] = "",
) -> Response:
    """The first decides, and says what comes of it; the others would match too, but those that are `barred`, which come
    last. None, or only such: the class is undefined."""
    config = asked(request)[0].config
    if provider and provider not in (known := await asyncio.to_thread(_providers, config)):
        raise invalid(
            [FieldError("query provider", f"there is no provider {provider!a}; use one of {', '.join(known)}")]
        )
    rules = await asyncio.to_thread(_load, config)
    try:
        found = explained(rules, reply_of(reply), stage, provider, config.suppression)
    except ValueError as error:
        raise invalid([FieldError("query reply", str(error))]) from None
    return answer(found.rows())


def _load(config: Config) -> Rules:
    try:
        return load(config)
    except ConfigError as error:
        raise RequestProblem("conflict", str(error)) from None


def _providers(config: Config) -> list[str]:
    try:
        return Providers.load(config.dns.providers or shipped("providers.toml")).names
    except ConfigError as error:
        raise RequestProblem("conflict", str(error)) from None
