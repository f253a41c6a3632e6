"""Merged messages: each recipient's own is made here, from the campaign's template and the recipient's values.

A template is fetched and compiled once in a process and kept while there is room, by the name of its content: the same
campaign name with other content is another template. Whoever waits for the same one waits together.

Failures: `make` raises RenderRefused (or TemplateRefused) for values that make no message, which is final, for the
same values will never make one; QueueRefusal where the template cannot be had now.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from email.utils import formatdate
from functools import lru_cache
from typing import TYPE_CHECKING

from zonemta_py.merge.source import Source
from zonemta_py.queue.api import Delivery, Outlet

if TYPE_CHECKING:
    from zonemta_py.merge.render import Compiled

TEMPLATES_BYTES_MAX = 64 * 1024 * 1024
"""Of templates as they are packed; compiled ones are a few times larger."""
WHOLE_BYTES_MAX = 256 * 1024
"""Larger messages stay in pieces: those that are everybody's, attachments, are then in memory once."""


class Templates:
    """The compiled templates of one sender."""

    def __init__(self, outlet: Outlet, bytes_max: int = TEMPLATES_BYTES_MAX) -> None:
        self._outlet, self._bytes_max = outlet, bytes_max
        self._kept: OrderedDict[str, tuple[Compiled, int]] = OrderedDict()
        self._bytes = 0
        self._coming: dict[str, asyncio.Task[Compiled]] = {}

    async def make(self, delivery: Delivery) -> list[bytes] | None:
        """Gives a merged delivery to one recipient its size and its body.

        Of a large one it returns the pieces, and body stays None.
        """
        template = self._known(delivery.template) or await self._fetched(delivery)
        fields = dict(zip(delivery.columns, delivery.values[0] if delivery.values else (), strict=True))
        date = _date(delivery.received_ms // 1000)
        pieces = template.pieces(fields, delivery.recipients[0].address, delivery.campaign, date)
        delivery.size = sum(map(len, pieces))
        if delivery.size > WHOLE_BYTES_MAX:
            return pieces
        delivery.body = b"".join(pieces)
        return None

    def _known(self, name: str) -> Compiled | None:
        found = self._kept.get(name)
        if found is None:
            return None
        self._kept.move_to_end(name)
        return found[0]

    async def _fetched(self, delivery: Delivery) -> Compiled:
        task = self._coming.get(delivery.template)
        if task is None:
            task = asyncio.ensure_future(self._fetch(delivery.campaign, delivery.template))
            self._coming[delivery.template] = task
            task.add_done_callback(lambda _: self._coming.pop(delivery.template, None))
        return await asyncio.shield(task)

    async def _fetch(self, campaign: str, name: str) -> Compiled:
        from zonemta_py.merge.compile import compile as compiled  # most senders never need Jinja2 in memory

        packed = await self._outlet.template(campaign)
        template = compiled(Source.unpack(packed))
        self._kept[name] = template, len(packed)
        self._bytes += len(packed)
        while self._bytes > self._bytes_max and len(self._kept) > 1:
            _, (_, size) = self._kept.popitem(last=False)
            self._bytes -= size
        return template


@lru_cache(64)
def _date(unix_s: int) -> str:
    return formatdate(unix_s, usegmt=True)
