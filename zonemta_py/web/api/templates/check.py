"""Checks a campaign's template, and that batches have the columns it needs, when the first batch comes rather than when
the first message bounces. Templates are looked at in separate processes (`workshop`)."""

from __future__ import annotations

from collections import OrderedDict
from difflib import get_close_matches
from typing import Literal, Protocol

from zonemta_py.mail.addresses.senders import Senders
from zonemta_py.mail.envelope import Envelope
from zonemta_py.mail.list_id import FIELD
from zonemta_py.mail.schedule_fields import InvalidValue, Terms, apply
from zonemta_py.merge.source import LINKS
from zonemta_py.merge.trial import TrialResult
from zonemta_py.queue import questions
from zonemta_py.queue.api import OTHER_TEMPLATE, QueueRefusal, template_name
from zonemta_py.queue.questions.question import A, P, Question
from zonemta_py.web.api.templates.workshop import TOO_MUCH, Workshop
from zonemta_py.web.documents.problem import ERRORS_MAX, FieldError, invalid
from zonemta_py.web.keys import NOT_AS, REMEDY, Holder

_KNOWN_MAX = 1_000


class TemplateStore(Protocol):
    """The source of templates."""

    async def template(self, campaign: str) -> bytes:
        """Raises QueueRefusal if there is none."""

    async def ask(self, question: Question[P, A], *args: P.args, **arguments: P.kwargs) -> A:
        """Raises ValueError, QueueRefusal."""
        raise NotImplementedError


class TemplateCheck:
    """Caches what templates need, by their content: a campaign may get another one. terms: what their header fields may
    ask for. linked: there is a listener for links in mail, so templates may print links to it. asked: names of the
    fields by which zones and plugins choose, which a batch's envelope needs, too. chosen: of those that come back with
    what is told (`mail.metadata`)."""

    def __init__(
        self, templates: TemplateStore, terms: Terms, linked: bool = False, asked: frozenset[str] = frozenset(),
        chosen: tuple[str, ...] = (),
    ) -> None:  # fmt: skip
        self._templates, self._terms, self._linked, self._asked = templates, terms, linked, asked
        self._chosen = chosen
        self._known: OrderedDict[str, TrialResult] = OrderedDict()
        self.workshop = Workshop()

    async def sound(self, packed: bytes, now_ms: int, who: Holder, plugins: bool = False) -> None:
        """Raises RequestProblem for a template that cannot be filled in, or whose author the key may not send as,
        before it has any recipients. plugins: they have seen it."""
        found = await self.look(packed, who.name)
        if plugins:
            found = found._replace(problems=[f"as plugins leave it: {one}" for one in found.problems])
        elif found.notes:
            raise invalid([FieldError("template", "has notes, which only plugins make; pack it without")])
        self._refuse(found, now_ms, who.senders)

    async def prepared(self, packed: bytes, now_ms: int, who: Holder) -> TrialResult:
        """The same of a template that is not prepared yet; what there is to know of it, and itself."""
        found = await self.look(packed, who.name, "prepare")
        self._refuse(found, now_ms, who.senders)
        return found

    def _refuse(self, found: TrialResult, now_ms: int, senders: Senders) -> None:
        if found.problems:
            raise invalid([FieldError("template", one) for one in found.problems])
        self._apply(found, Envelope("", []), now_ms)
        address = found.author.rpartition("<")[2].rstrip("> \n")
        if senders.bound and ("{" in address or not senders.may(address)):
            raise invalid([FieldError("template", f"is from {address[:80]}, and this key {NOT_AS} that; {REMEDY}")])

    async def check(self, envelope: Envelope, who: Holder) -> None:
        """Applies the template's fields for this server to a batch's envelope, and its List-Id.

        Raises RequestProblem for missing columns. An unknown campaign is refused by the queue.
        """
        try:
            found = await self._found(envelope.campaign or "", who.name)
        except (QueueRefusal, ValueError):
            return
        there = {*envelope.columns, *(LINKS if self._linked else ())}
        lacking = [name for name in found.wanted if name not in there]
        if lacking:
            raise invalid([_missing(name, found.wanted[name], envelope.columns) for name in lacking[:ERRORS_MAX]])
        self._apply(found, envelope, envelope.received_ms)
        if found.notes:
            envelope.notes = {**found.notes, **envelope.notes}
        if found.list_id:
            envelope.headers = {**envelope.headers, FIELD: found.list_id}
        if self._chosen:
            fixed = found.fixed or {}
            envelope.chosen = {name: fixed[name] for name in self._chosen if name in fixed}
        if self._asked:
            known = {
                name: value for name, value in (found.fixed or {}).items() if name in self._asked and name != FIELD
            }
            envelope.headers = {**envelope.headers, **known}

    async def fits(self, campaign: str, packed: bytes, holder: str) -> None:
        """Raises RequestProblem for a template that asks for what the campaign's recipients may lack, QueueRefusal."""
        try:
            found = await self._found(campaign, holder)
        except ValueError:
            return  # the queue says what is wrong
        there = {*found.wanted, *(LINKS if self._linked else ())}
        wanted = (await self.look(packed, holder)).wanted
        if lacking := [name for name in wanted if name not in there]:
            what = "which the present one does not, so that recipients may lack it; leave it out"
            raise invalid([FieldError("template", f"{wanted[one]}: asks for {one!r}, {what}") for one in lacking])

    async def _found(self, campaign: str, holder: str) -> TrialResult:
        """What its template needs, or those it will be chosen from; of which list it is, unless they differ."""
        own, *others = await self._templates.ask(questions.campaign_templates, name=campaign)
        found = await self._looked(own, holder)
        wanted, list_id, fixed = dict(found.wanted), found.list_id, found.fixed or {}
        noted = dict(found.notes or {})
        for one in others:
            other = await self._looked(one, holder)
            wanted |= other.wanted
            noted = {**(other.notes or {}), **noted}
            list_id = list_id if list_id == other.list_id else ""
            fixed = {name: value for name, value in fixed.items() if (other.fixed or {}).get(name) == value}
        return found._replace(wanted=wanted, list_id=list_id, fixed=fixed, notes=noted or None)

    async def _looked(self, one: list[str], holder: str) -> TrialResult:
        """one: the campaign and the name of its template. Raises QueueRefusal, also for a campaign that has just got
        another template."""
        campaign, template = one
        found = self._known.get(template)
        if found is not None:
            self._known.move_to_end(template)
            return found
        packed = await self._templates.template(campaign)
        if template_name(packed) != template:
            raise QueueRefusal(OTHER_TEMPLATE)
        found = self._known[template] = await self.look(packed, holder)
        if len(self._known) > _KNOWN_MAX:
            self._known.popitem(last=False)
        return found

    def _apply(self, found: TrialResult, envelope: Envelope, now_ms: int) -> None:
        try:
            apply(envelope, found.said, self._terms, now_ms)
        except InvalidValue as wrong:
            raise invalid([FieldError("template", str(wrong))]) from None

    async def look(self, packed: bytes, holder: str, what: Literal["look", "prepare"] = "look") -> TrialResult:
        """What there is to know of a template, or what is wrong with it. holder: the name of the key that asks. Raises
        RequestProblem (429) if its templates have taken too long."""
        said = await self.workshop.run(what, packed, holder)
        return TrialResult.unpack(said) if said else TrialResult([TOO_MUCH], {}, {})


def _missing(name: str, place: str, columns: list[str]) -> FieldError:
    if name in LINKS:
        remedy = "enable [links] on this server, which then makes it, or add such a column"
        return FieldError("columns", f"{place}: there is no {name!r}; {remedy}")
    near = get_close_matches(name, columns, 1)
    return FieldError("columns", f"{place}: the list has no column {name!r}; "
                 + (f"did you mean {near[0]}?" if near else f"it has {', '.join(columns)[:300]}"))  # fmt: skip
