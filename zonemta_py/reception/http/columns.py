"""Checks a campaign's template, and that batches have the columns it needs, when the first batch comes rather than when
the first message bounces. Templates are checked in separate processes (`merge.trial`), one at a time: only requests
that bring a template wait for it."""

from __future__ import annotations

import asyncio
import contextlib
import sys
from collections import OrderedDict
from difflib import get_close_matches
from typing import Protocol

from zonemta_py.mail.addresses.senders import ANYBODY, Senders
from zonemta_py.mail.envelope import Envelope
from zonemta_py.mail.schedule_fields import InvalidValue, Terms, apply
from zonemta_py.merge.trial import TrialResult
from zonemta_py.queue.api import QueueRefusal
from zonemta_py.reception.http.documents.problem import ERRORS_MAX, FieldError, invalid
from zonemta_py.reception.http.keys import NOT_AS, REMEDY

TRIAL_S = 20.0
"""How long checking one template may take."""
_KNOWN_MAX = 1_000
_TOO_MUCH = TrialResult(["checking the template takes too long or too much memory; make it simpler"], {}, {})


class TemplateStore(Protocol):
    """The source of templates."""

    async def template(self, campaign: str) -> bytes:
        """Raises QueueRefusal if there is none."""


class Columns:
    """Caches what campaigns' templates need, as they never change. terms: what their header fields may ask for."""

    def __init__(self, templates: TemplateStore, terms: Terms) -> None:
        self._templates, self._terms = templates, terms
        self._known: OrderedDict[str, TrialResult] = OrderedDict()
        self._turn = asyncio.Semaphore(1)

    async def sound(self, packed: bytes, now_ms: int, senders: Senders = ANYBODY) -> None:
        """Raises RequestProblem for a template that cannot be filled in, or whose author is none of `senders`, before
        it has any recipients."""
        found = await self._look(packed)
        if found.problems:
            raise invalid([FieldError("template", one) for one in found.problems])
        self._apply(found, Envelope("", []), now_ms)
        address = found.author.rpartition("<")[2].rstrip("> \n")
        if senders.bound and ("{" in address or not senders.may(address)):
            raise invalid([FieldError("template", f"is from {address[:80]}, and this key {NOT_AS} that; {REMEDY}")])

    async def check(self, envelope: Envelope) -> None:
        """Applies the template's fields for this server to a batch's envelope.

        Raises RequestProblem for missing columns. An unknown campaign is refused by the queue.
        """
        campaign = envelope.campaign or ""
        found = self._known.get(campaign)
        if found is None:
            try:
                found = await self._look(await self._templates.template(campaign))
            except QueueRefusal:
                return
            self._known[campaign] = found
            if len(self._known) > _KNOWN_MAX:
                self._known.popitem(last=False)
        lacking = [name for name in found.wanted if name not in envelope.columns]
        if lacking:
            raise invalid([_missing(name, found.wanted[name], envelope.columns) for name in lacking[:ERRORS_MAX]])
        self._apply(found, envelope, envelope.received_ms)

    def _apply(self, found: TrialResult, envelope: Envelope, now_ms: int) -> None:
        try:
            apply(envelope, found.said, self._terms, now_ms)
        except InvalidValue as wrong:
            raise invalid([FieldError("template", str(wrong))]) from None

    async def _look(self, packed: bytes) -> TrialResult:
        async with self._turn:
            looking = await asyncio.create_subprocess_exec(
                sys.executable, "-m", "zonemta_py.merge.trial",
                stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.DEVNULL,
            )  # fmt: skip
            try:
                said, _ = await asyncio.wait_for(looking.communicate(packed), TRIAL_S)
            except TimeoutError:
                return _TOO_MUCH
            finally:
                with contextlib.suppress(ProcessLookupError):
                    looking.kill()
            return TrialResult.unpack(said) if said and looking.returncode == 0 else _TOO_MUCH


def _missing(name: str, place: str, columns: list[str]) -> FieldError:
    near = get_close_matches(name, columns, 1)
    return FieldError("columns", f"{place}: the list has no column {name!r}; "
                 + (f"did you mean {near[0]}?" if near else f"it has {', '.join(columns)[:300]}"))  # fmt: skip
