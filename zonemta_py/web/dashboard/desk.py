"""What all pages share: the queue, templates, who asks, and what was just done.

Failures: QueueAway, if the queue's process does not answer in time; NoPage, with one sentence for whoever asked.
"""

from __future__ import annotations

import asyncio
import secrets
from collections import OrderedDict
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

from jinja2 import ChoiceLoader, Environment, PackageLoader
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response

from zonemta_py.queue.api import QueueFault, QueueRefusal
from zonemta_py.queue.questions.question import A, P, Question
from zonemta_py.web.dashboard import words
from zonemta_py.web.dashboard.sessions import LoginSession
from zonemta_py.web.dashboard.words import Wrong
from zonemta_py.web.request_context import RequestContext

HOME = "/dashboard"
ANSWER_S = 8.0
LATE_S = 0.5
"""If it is this process that has stood still for so long, the answer may be there, and only has to be read."""
FORM_BYTES_MAX = 64 * 1024
_KEPT = 1_000
_TEMPLATES = ("templates", "templates/frame")
HEADERS = {
    "content-security-policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self';"
        " form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
    ),
    "x-frame-options": "DENY",
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "permissions-policy": "camera=(), geolocation=(), microphone=()",
    "cache-control": "no-store",
}


class QueueAway(Exception):
    """One sentence."""


class NoPage(Exception):
    """Why there is none: status, sentence."""

    def __init__(self, status: int, sentence: str) -> None:
        super().__init__(sentence)
        self.status = status


class Done(NamedTuple):
    """What an order did, in a sentence; how to take it back. undo: the order that does, with `undo_with`; "": none.
    there: the page that shows it, if not the one it was ordered from."""

    said: str
    how: str
    undo: str = ""
    undo_with: Mapping[str, str] = MappingProxyType({})
    undo_label: str = "Undo"
    there: str = ""


class Desk:
    """One for the process."""

    def __init__(self, here: RequestContext) -> None:
        self.here, self.config = here, here.config
        self._pages = Environment(
            loader=ChoiceLoader([PackageLoader(__package__, one) for one in _TEMPLATES]), autoescape=True,
            trim_blocks=True, lstrip_blocks=True,
        )  # fmt: skip
        self._pages.filters.update(words.FILTERS)
        self._pages.globals.update(words.GLOBALS)
        self.there: frozenset[str] = frozenset()
        """The paths of pages and the names of orders that there are."""
        self._done: OrderedDict[str, tuple[str, Done]] = OrderedDict()

    async def ask(self, question: Question[P, A], *_: P.args, **arguments: P.kwargs) -> A:
        """Raises QueueAway; Wrong with what the queue says against the question."""
        asked = asyncio.ensure_future(self.here.queue.ask(question, *_, **arguments))
        try:
            for patience_s in (ANSWER_S, LATE_S):
                await asyncio.wait((asked,), timeout=patience_s)
            if not asked.done():
                raise QueueAway(f"the queue's process has not answered for {ANSWER_S:.0f} seconds")
            return asked.result()
        except QueueFault:
            raise
        except QueueRefusal as refusal:
            raise QueueAway(f"the queue's process says: {refusal.reply.text}") from None
        except ValueError as error:
            raise Wrong(str(error)) from None
        finally:
            asked.cancel()

    def page(self, request: Request, name: str, code: int = 200, **values: Any) -> Response:
        """The template of that name, in the frame of all pages."""
        session: LoginSession | None = getattr(request.state, "session", None)
        done = self._take(session, request.query_params.get("done", "")) if session else None
        text = self._pages.get_template(f"{name}.html.j2").render(
            here=_here(request), path=request.url.path, session=session, may_operate=session is not None
            and may_operate(session), hostname=self.here.site.hostname, done=done, home=HOME,
            there_are=self.there, **values,
        )  # fmt: skip
        return HTMLResponse(text, code)

    # -- what was done

    def keep(self, session: LoginSession, done: Done) -> str:
        """Its name, for the address of the next page."""
        name = secrets.token_urlsafe(9)
        self._done[name] = session.name, done
        while len(self._done) > _KEPT:
            self._done.popitem(last=False)
        return name

    def _take(self, session: LoginSession, name: str) -> Done | None:
        whose, done = self._done.get(name, ("", None))
        return done if whose == session.name else None


def _here(request: Request) -> str:
    query = request.url.query
    return request.url.path + (f"?{query}" if query else "")


def may_operate(session: LoginSession) -> bool:
    """Whether this key's orders are carried out."""
    return session.holder.role in ("operate", "admin")
