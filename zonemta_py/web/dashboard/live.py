"""What pages are told while they are open: whether the queue answers, and what happens a second.

However many pages are open, the queue is asked once every LOOK_S, and not at all while none is. A page whose figures
have not changed is told nothing but, now and then, that the stream lives.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator
from typing import Any

from fastapi.sse import format_sse_event

from zonemta_py.queue import questions
from zonemta_py.queue.api import QueueRefusal
from zonemta_py.web.request_context import QueueFace

LOOK_S = 2.0
AWAY_S = 3.0
SILENT_S = 15.0


class Live:
    """The figures of the last look, for all who wait for the next one."""

    def __init__(self, queue: QueueFace) -> None:
        self._queue = queue
        self._listening = 0
        self._looking: asyncio.Task[None] | None = None
        self._text = ""
        self._changed = asyncio.Event()
        self._over = False

    def end(self) -> None:
        """Pages are told no more by this process; they ask the next one."""
        self._over = True
        self._changed.set()

    async def events(self) -> AsyncGenerator[bytes, None]:
        """Server-sent events for one page: `now`, with the figures in JSON, or `away`. Until `end`."""
        yield format_sse_event(retry=2000, comment="zonemta-py")
        self._listening += 1
        try:
            if self._looking is None or self._looking.done():
                self._text = ""
                self._looking = asyncio.ensure_future(self._look())
            said = ""
            while not self._over:
                changed = self._changed
                if self._text and self._text != said:
                    said = self._text
                    yield format_sse_event(event="away" if said == "{}" else "now", data_str=said)
                    continue
                try:
                    async with asyncio.timeout(SILENT_S):
                        await changed.wait()
                except TimeoutError:
                    yield format_sse_event(comment="")
        finally:
            self._listening -= 1

    async def _look(self) -> None:
        """While somebody listens."""
        while self._listening:
            text = await self._asked()
            if text != self._text:
                self._text = text
                self._changed.set()
                self._changed = asyncio.Event()
            await asyncio.sleep(LOOK_S)

    async def _asked(self) -> str:
        try:
            async with asyncio.timeout(AWAY_S):
                rates: dict[str, Any] = await self._queue.ask(questions.now)
                sizes = (await self._queue.ask(questions.size))["total"]
        except (TimeoutError, QueueRefusal, ValueError):
            return "{}"
        names = ("in", "out", "deferred", "bounced")
        history = {name: [round(value, 1) for value in rates["history"].get(name, [])] for name in names}
        return json.dumps({"rates": {name: round(rates[name], 1) for name in names}, "history": history,
                           "sizes": sizes})  # fmt: skip
