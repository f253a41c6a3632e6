"""Asks DNS for the records of sender domains by itself: soon after a change, until all is right; then daily."""

from __future__ import annotations

import asyncio
import logging
import time

from zonemta_py.config import Config
from zonemta_py.disk import domain_book
from zonemta_py.journal.folders import mta_of
from zonemta_py.logs.causes import cause
from zonemta_py.mail.schedule_fields import InvalidValue
from zonemta_py.queue import questions
from zonemta_py.queue.api import QueueRefusal
from zonemta_py.web.sender_domains import AsksQueue, looked

log = logging.getLogger(__name__)

ROUND_S = 20.0
AT_ONCE, IN_ROUND = 8, 500


async def keep_looking(config: Config, ask: AsksQueue) -> None:
    """Until it is canceled."""
    folder, places = mta_of(config.folder), asyncio.Semaphore(AT_ONCE)

    async def one(name: str) -> None:
        async with places:
            row = await ask(questions.domain, name=name)
            if row is not None:
                await looked(ask, config, row)

    while True:
        try:
            names = await asyncio.to_thread(domain_book.due, folder, int(time.time() * 1000), IN_ROUND)
            found = await asyncio.gather(*map(one, names), return_exceptions=True)
            for error in found:
                if isinstance(error, Exception) and not isinstance(error, (QueueRefusal, InvalidValue)):
                    log.error("a sender domain cannot be checked", exc_info=error)
        except domain_book.BookUnreadable as error:
            log.error("sender domains cannot be checked: %s", error)
        except OSError as error:
            log.error("sender domains cannot be checked: %s", cause(error))
        await asyncio.sleep(ROUND_S)
