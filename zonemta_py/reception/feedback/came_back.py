"""The part of a mail transaction that is for addresses of ours."""

from __future__ import annotations

from zonemta_py.mail.addresses.ours import Ours
from zonemta_py.reception.feedback.proof import SentBy
from zonemta_py.reception.feedback.returns import Returns


class CameBack:
    """What a transaction has for addresses of ours: the beginning of the message, kept. stranger: it takes a place."""

    __slots__ = ("_client", "_kept", "_pieces", "_returns", "_size", "_stranger", "ours")

    def __init__(self, returns: Returns, client: str, stranger: bool) -> None:
        self.ours: dict[str, Ours] = {}
        self._returns, self._client, self._stranger = returns, client, stranger
        self._pieces: list[bytes] = []
        self._size = self._kept = 0

    @property
    def zone(self) -> str:
        """The zone that forwarded bounces go by, "" as other mail."""
        return self._returns.forward_zone if self._stranger else ""

    def add(self, content: bytes) -> None:
        self._size += len(content)
        if self._kept < self._returns.read_bytes:
            self._pieces.append(content[: self._returns.read_bytes - self._kept])
            self._kept += len(self._pieces[-1])

    async def take(self, sent: SentBy) -> None:
        """The message is complete. Raises QueueRefusal."""
        beginning = b"".join(self._pieces)
        await self._returns.take([*self.ours.values()], beginning, self._size == self._kept, sent)

    def leave(self) -> None:
        """The transaction is over. Harmless twice."""
        if self._stranger:
            self._stranger = False
            self._returns.leave(self._client)
