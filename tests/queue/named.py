"""A queue as one sender sees it."""

from zonemta_py.queue.api import Delivery
from zonemta_py.queue.queue import LocalQueue


class Named:
    """A LocalQueue as one sender sees it; `close` is the end of that sender."""

    def __init__(self, queue: LocalQueue, name: str) -> None:
        self._queue, self._name = queue, name
        self.accept, self.begin, self.settle, self.chunk, self.template, self.ask = (
            queue.accept, queue.begin, queue.settle, queue.chunk, queue.template, queue.ask,
        )  # fmt: skip
        self.feedback = queue.feedback
        self.extend, self.ack, self.nack, self.abandon, self.peek = (
            queue.extend, queue.ack, queue.nack, queue.abandon, queue.peek,
        )  # fmt: skip

    async def lease(self, most: int) -> list[Delivery]:
        return await self._queue.lease(most, self._name)

    async def pull(
        self, queue: str, most: int = 1, reserve_s: float = 0, wait_s: float = 0, remote: str = ""
    ) -> list[Delivery]:
        return await self._queue.pull(queue, most, reserve_s, wait_s, remote, self._name)

    def close(self) -> None:
        self._queue.lost(self._name)
        self._queue.over(self._name)
