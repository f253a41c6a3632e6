"""Opens and clicks: a picture, a way on to where a signed link leads, and what the queue is told of them.

They may be many and are worth little each: they are answered at once, and told together, every EVERY_S or AT_ONCE of
them. What was not told when this process ends, or while the queue is away longer than WAITING_MAX of them allow, is
lost, and counted. Of one message, a person's first open counts, and the first click of each link. Nothing else is kept:
no address of a client, no browser.
"""

from __future__ import annotations

import asyncio
import base64
import logging

from zonemta_py.logs.causes import cause
from zonemta_py.mail.addresses.link import UNKNOWN, Link
from zonemta_py.metrics.report import count
from zonemta_py.queue.api import Feedback, QueueRefusal, Reception

log = logging.getLogger(__name__)
EVERY_S = 1.0
AT_ONCE = 500
WAITING_MAX = 20_000
GIF = base64.b64decode("R0lGODlhAQABAIAAAAAAAP///yH5BAEAAAAALAAAAAABAAEAAAIBRAA7")
"""One pixel that is transparent."""


class Interest:
    """Opens and clicks that are still to be recorded."""

    def __init__(self, queue: Reception) -> None:
        self._queue = queue
        self._waiting: dict[tuple[str, str, str, str], Feedback] = {}
        self._telling: asyncio.Task[None] | None = None

    def add(self, link: Link) -> None:
        """link: of an open or a click."""
        key = (link.purpose, link.id, link.recipient, link.target)
        if key in self._waiting:
            return
        if len(self._waiting) >= WAITING_MAX:
            count("zonemta_links_requests_total", ("untold",))
            return
        message = "" if link.id == UNKNOWN else link.id
        self._waiting[key] = Feedback(
            link.purpose, link.recipient, message, campaign=link.campaign, tenant=link.tenant, text=link.target,
            via="link", genuine="token",
        )  # fmt: skip
        count("zonemta_links_requests_total", (link.purpose,))
        if self._telling is None:
            self._telling = asyncio.ensure_future(self._tell())

    async def _tell(self) -> None:
        """Until nothing waits."""
        try:
            while self._waiting:
                if len(self._waiting) < AT_ONCE:
                    await asyncio.sleep(EVERY_S)
                await self.told()
        finally:
            self._telling = None

    async def told(self) -> None:
        """Tells a portion of it."""
        portion = list(self._waiting.items())[:AT_ONCE]
        try:
            await self._queue.feedback([row for _, row in portion])
        except QueueRefusal as error:
            log.warning("opens and clicks wait to be told: %s", cause(error))
            await asyncio.sleep(EVERY_S)
            return
        except ValueError as error:
            log.error("%d opens and clicks cannot be told: %s", len(portion), error)
        for key, _ in portion:
            self._waiting.pop(key, None)

    async def end(self) -> None:
        """This process ends as planned."""
        if self._waiting:
            await self.told()
