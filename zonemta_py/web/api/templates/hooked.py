"""A campaign's template as plugins want it: their content hooks run when it is taken, once for all of its messages."""

from __future__ import annotations

import asyncio

from zonemta_py.mail.envelope import Envelope
from zonemta_py.merge.html.markup import protect
from zonemta_py.merge.problems import TemplateRefused
from zonemta_py.merge.source import TemplateSource
from zonemta_py.plugin import templates
from zonemta_py.plugin.verdicts import Drop
from zonemta_py.web.documents.problem import FieldError, invalid
from zonemta_py.web.request_context import RequestContext, Visit


async def shown(here: RequestContext, who: Visit, template: bytes, name: str, sender: str, tenant: str) -> bytes:
    """A template that is sound. Raises RequestProblem, with the place in it, where a plugin refuses it; Verdict, where
    it may be tried again."""
    host = here.site.host
    if not templates.looked_at(host):
        return template
    envelope = Envelope(sender, [], campaign=name, tenant=tenant or None)
    session = here.address(envelope, who)
    try:
        made = await templates.shown(host, envelope, session, template)
    except templates.TemplateStopped as stopped:
        verdict = stopped.verdict
        if not verdict.reply.permanent and not isinstance(verdict, Drop):
            raise verdict from None
        place = f"template.{stopped.place}" if stopped.place else "template"
        raise invalid([FieldError(place, stopped.sentence)]) from None
    if made != template:
        await asyncio.to_thread(_check_places, made)
        await here.templates.sound(made, here.site.clock_ms(), who.key, plugins=True)
    return made


def _check_places(made: bytes) -> None:
    """Fields may stand elsewhere than the author had them. Raises RequestProblem."""
    html = TemplateSource.unpack(made).html
    try:
        if html is not None:
            protect(html)
    except TemplateRefused as refused:
        wrong = [f"as plugins leave it: {problem}" for problem in refused.problems]
        raise invalid([FieldError("template.html", one) for one in wrong]) from None
