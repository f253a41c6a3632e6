"""A queue's part in a set of several: it carries out the orders that all have, leases only as long as it knows all of
them, and shares limits.

The authority lets it lease until a moment of the machine's monotonic clock, and only once it has carried out all
orders. An order counts as given when every queue has carried it out or may lease no more. So nothing is leased anywhere
against an order that has been answered, also where a queue has stood still, or has just started.
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

from zonemta_py.disk.files import replace_file
from zonemta_py.queue.api import QueueRefusal
from zonemta_py.queue.questions.question import given
from zonemta_py.queue.queue import LocalQueue

NOTE = "orders"
"""The file in a queue's folder with the number of the last order that it has carried out."""
DONE, REFUSED = "done", "refused"


def noted(folder: Path) -> int:
    """0: it has carried out none. Raises ValueError with one sentence, OSError."""
    path = folder / NOTE
    try:
        return int(path.read_text())
    except FileNotFoundError:
        return 0
    except ValueError:
        raise ValueError(
            f"{path}: is no number; remove the file, then it carries out again all orders that are kept"
        ) from None


class Member:
    """Of the queue in this process. Raises OSError."""

    def __init__(self, queue: LocalQueue) -> None:
        self._queue, self._path = queue, queue.core.config.folder / NOTE
        try:
            self.number = noted(queue.core.config.folder)
        except ValueError:  # orders can be carried out twice
            self.number = 0
        self._until = 0.0
        self._one = asyncio.Lock()

    def may_lease(self) -> bool:
        return self._queue.core.clock.monotonic() < self._until

    async def carry_out(self, number: int, question: str, arguments: dict[str, Any], sure: bool) -> list[Any]:
        async with self._one:
            try:
                with given(sure) as order:
                    answer = [DONE, await self._queue.answer(question, arguments), order.settled]
            except QueueRefusal as refusal:
                if not sure:
                    return [REFUSED, refusal.reply.text]
                raise  # it is tried again: others have it
            except ValueError as error:
                answer = [REFUSED, str(error)]
                if not sure:
                    return answer
            if number > self.number:
                await asyncio.to_thread(replace_file, self._path, str(number).encode(), 0o600)
                self.number = number
            return answer

    async def share(self, until: float, messages: list[Any], wait_s: float) -> list[Any]:
        held = self.may_lease()
        self._until = max(self._until, until)
        if not held:
            self._queue.core.changed()
        await asyncio.sleep(wait_s)
        return []
