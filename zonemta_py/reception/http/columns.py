"""Does a batch bring what its campaign's template asks for? Found out with the first batch, not by the first bounce."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from typing import Protocol

from zonemta_py.merge.compile import problems
from zonemta_py.merge.source import Source
from zonemta_py.queue.api import QueueRefusal
from zonemta_py.reception.http.problem import Fault, invalid

_KNOWN_MAX = 1_000


class Templates(Protocol):
    """Who has them."""

    async def template(self, campaign: str) -> bytes:
        """Raises QueueRefusal where there is none."""


class Columns:
    """Remembers which columns serve which campaign: templates do not change."""

    def __init__(self, templates: Templates) -> None:
        self._templates = templates
        self._known: OrderedDict[tuple[str, ...], None] = OrderedDict()

    async def check(self, campaign: str, columns: list[str]) -> None:
        """Raises Problem for columns that leave a field of the template open. No such campaign: the queue says so."""
        key = (campaign, *columns)
        if key in self._known:
            return
        try:
            packed = await self._templates.template(campaign)
        except QueueRefusal:
            return
        found = await asyncio.to_thread(lambda: problems(Source.unpack(packed), columns))
        if found:
            raise invalid([Fault("columns", str(one)) for one in found])
        self._known[key] = None
        if len(self._known) > _KNOWN_MAX:
            self._known.popitem(last=False)
