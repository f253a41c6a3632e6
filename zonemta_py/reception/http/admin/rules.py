"""/v1/rules: the rules that say what replies mean, and which of them matches one."""

from __future__ import annotations

import asyncio
from typing import Annotated, Literal

from fastapi import APIRouter, Query, Request, Response

from zonemta_py.config import Config, ConfigError
from zonemta_py.config.section import shipped
from zonemta_py.mail.rules.rule import reply_of
from zonemta_py.mail.rules.rules import Rules
from zonemta_py.mail.rules.shown import row
from zonemta_py.queue.lifecycle.classification import load
from zonemta_py.reception.http.admin import bodies, rows, where
from zonemta_py.reception.http.admin.operation import asked, operation, tagged
from zonemta_py.reception.http.authentication import answer
from zonemta_py.reception.http.documents import models
from zonemta_py.reception.http.documents.problem import FieldError, RequestProblem, invalid
from zonemta_py.zones.site import Providers

router = APIRouter(prefix="/v1/rules")
Stage = Literal[
    "connect", "banner", "ehlo", "tls", "tls-policy", "auth", "mail", "rcpt", "data", "body", "dot", "dns", "report"
]


@router.get("", **operation("read", "The rules for replies", list[rows.RuleRow], tagged=True))
async def every(
    request: Request,
    kind: Annotated[where.Class | None, Query(alias="class", description="Only rules of this class.")] = None,
) -> Response:
    """In the order in which they are asked."""
    rules = await asyncio.to_thread(_load, asked(request)[0].config)
    return tagged(request, [row(rule) for rule in rules.rules if kind in (None, rule.kind)])


@router.get("/explain", **operation("read", "Which rules match a reply", list[rows.RuleRow]))
async def explain(
    request: Request,
    reply: Annotated[bodies.ReplyText, Query(description='Such as "550 5.1.1 No such user".')],
    stage: Annotated[Stage, Query(description="When it came.")] = "rcpt",
    provider: Annotated[models.By, Query(description="From which provider; default: any.")] = "",
) -> Response:
    """The first decides; the others would match too. None: the class is undefined."""
    config = asked(request)[0].config
    if provider and provider not in (known := await asyncio.to_thread(_providers, config)):
        raise invalid(
            [FieldError("query provider", f"there is no provider {provider!a}; use one of {', '.join(known)}")]
        )
    rules = await asyncio.to_thread(_load, config)
    try:
        matching = rules.matching(reply_of(reply), stage, provider)
    except ValueError as error:
        raise invalid([FieldError("query reply", str(error))]) from None
    return answer([row(rule) for rule in matching])


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
