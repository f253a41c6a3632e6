"""Merged messages: each recipient's message is made here, from the campaign's template and the recipient's values.

A template is fetched and compiled once per process and cached by a hash of its content, as space allows. It is fetched
by its campaign's name, which may have another text by then: what came is made use of only if its hash is the one asked
for. Concurrent requests for one template share its compilation, which runs
in a thread. A template that is slow to fill in gets half of the sender's time at most, one message at a time, so that
other mail does not wait for it. What is being rendered is recorded (`queue.poison`), in case it kills the sender.

Failures: `make` raises RenderRefused (or TemplateRefused) for values from which no message can be made, which is final
since they will never work; QueueRefusal if the template cannot be fetched now, or is another than the lease says.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from dataclasses import dataclass
from functools import lru_cache
from time import perf_counter
from typing import TYPE_CHECKING

from zonemta_py.delivery.message.body import WHOLE_BYTES_MAX
from zonemta_py.delivery.message.outgoing import LinkMaker
from zonemta_py.mail.fields import date
from zonemta_py.queue.api import OTHER_TEMPLATE, Delivery, Dispatch, QueueRefusal, template_name
from zonemta_py.queue.poison import RENDERING, UNDER_WAY, Subject

if TYPE_CHECKING:
    from zonemta_py.merge.render import Compiled

TEMPLATES_BYTES_MAX = 64 * 1024 * 1024
"""Packed size of cached templates; compiled ones are a few times larger."""
SLOW_S = 0.003
"""A message that takes longer to render waits until no other is urgent; ordinary ones take a fiftieth of it."""


@dataclass(slots=True)
class CachedTemplate:
    """A template in memory. bytes: its packed size. slow: its latest message took long."""

    template: Compiled
    bytes: int
    slow: bool = False


class Templates:
    """The compiled templates of one sender. links: makes those that a template prints; None: there are none."""

    def __init__(
        self, dispatch: Dispatch, bytes_max: int = TEMPLATES_BYTES_MAX, links: LinkMaker | None = None
    ) -> None:
        self._dispatch, self._bytes_max, self._links = dispatch, bytes_max, links
        self._kept: OrderedDict[str, CachedTemplate] = OrderedDict()
        self._bytes = 0
        self._coming: dict[str, asyncio.Task[CachedTemplate]] = {}
        self._turn = asyncio.Lock()

    async def make(self, delivery: Delivery) -> list[bytes] | None:
        """Sets size and body of a merged delivery to one recipient.

        For a large one it returns the pieces, and the body stays None: those common to all, such as attachments, are in
        memory once.
        """
        kept = self._known(delivery.template) or await self._fetched(delivery)
        if kept.slow:
            async with self._turn:
                pieces, took_s = self._pieces(kept, delivery)
                await asyncio.sleep(took_s)
        else:
            pieces, took_s = self._pieces(kept, delivery)
        kept.slow = took_s > SLOW_S
        delivery.size = sum(map(len, pieces))
        if delivery.size > WHOLE_BYTES_MAX:
            return pieces
        delivery.body = b"".join(pieces)
        return None

    def _pieces(self, kept: CachedTemplate, delivery: Delivery) -> tuple[list[bytes], float]:
        """The message, and how long rendering took."""
        fields = dict(zip(delivery.columns, delivery.values[0] if delivery.values else (), strict=True))
        if kept.template.links and self._links is not None:
            fields = self._links.fields(delivery, kept.template.links) | fields
        address = delivery.recipients[0].address
        began = perf_counter()
        before = UNDER_WAY.begin("", RENDERING, Subject("", delivery.lease, address))
        try:
            tracking = self._links.tracking(delivery) if self._links is not None else None
            date = _date(delivery.received_ms // 1000)
            pieces = kept.template.pieces(
                fields, address, delivery.campaign, date, tracking=tracking, number=delivery.id
            )
        finally:
            UNDER_WAY.end(before)
        return pieces, perf_counter() - began

    def _known(self, name: str) -> CachedTemplate | None:
        found = self._kept.get(name)
        if found is None:
            return None
        self._kept.move_to_end(name)
        return found

    async def _fetched(self, delivery: Delivery) -> CachedTemplate:
        task = self._coming.get(delivery.template)
        if task is None:
            task = asyncio.ensure_future(self._fetch(delivery.campaign, delivery.template))
            self._coming[delivery.template] = task
            task.add_done_callback(lambda _: self._coming.pop(delivery.template, None))
        return await asyncio.shield(task)

    async def _fetch(self, campaign: str, name: str) -> CachedTemplate:
        from zonemta_py.merge.compile import compile as compiled  # most senders never need Jinja2 in memory
        from zonemta_py.merge.source import TemplateSource

        packed = await self._dispatch.template(campaign)
        if template_name(packed) != name:
            raise QueueRefusal(OTHER_TEMPLATE)
        template = await asyncio.to_thread(lambda: compiled(TemplateSource.unpack(packed)))
        kept = self._kept[name] = CachedTemplate(template, len(packed))
        self._bytes += kept.bytes
        while self._bytes > self._bytes_max and len(self._kept) > 1:
            _, gone = self._kept.popitem(last=False)
            self._bytes -= gone.bytes
        return kept


_date = lru_cache(64)(date)
