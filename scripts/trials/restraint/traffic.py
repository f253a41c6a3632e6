"""Mail for the trials, handed in over several sessions by clients that start again whenever the MTA is killed."""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from survival.client import Connection, Refused
from survival.letters import Letter

_LINE = b"What may not go yet waits, and everybody can see for what and until when it does." + b"\r\n"
AGAIN_S = 0.05


@dataclass(frozen=True, eq=False)
class Flow:
    """Messages that are alike. recipients, sizes (bytes of the body): taken in turns. fields: X-Campaign …"""

    domain: str
    recipients: tuple[int, ...] = (1,)
    sizes: tuple[int, ...] = (400,)
    fields: Mapping[str, str] = field(default_factory=dict)

    def letters(self, count: int) -> Iterator[Letter]:
        turns = zip(itertools.cycle(self.recipients), itertools.cycle(self.sizes), strict=False)
        for number, (recipients, size) in enumerate(itertools.islice(turns, count)):
            name = f"{number}@{self.domain}"
            head = {"Message-ID": f"<{name}>", "From": "writer@letters.test", "Subject": name} | dict(self.fields)
            text = "".join(f"{key}: {value}\r\n" for key, value in head.items()) + "\r\n"
            body = (_LINE * (size // len(_LINE) + 1))[: max(size, 2) - 2] + b"\r\n"
            addresses = [f"r{number}.{index}@{self.domain}" for index in range(recipients)]
            yield Letter(name, "writer@letters.test", addresses, text.encode() + body)


class Feeder:
    """accepted: name of a message → the UNIX time of its 250."""

    def __init__(self, port: int) -> None:
        self._port = port
        self.accepted: dict[str, float] = {}

    async def feed(self, letters: Iterable[Letter], sessions: int = 10) -> None:
        """Returns when all are accepted."""
        rest = iter(letters)
        async with asyncio.TaskGroup() as group:
            for _ in range(sessions):
                group.create_task(self._session(rest))

    async def _session(self, rest: Iterator[Letter]) -> None:
        connection: Connection | None = None
        try:
            for letter in rest:
                while True:
                    try:
                        connection = connection or await Connection.open(self._port)
                        await connection.transaction(letter)
                        break
                    except (OSError, EOFError, TimeoutError, Refused):
                        connection = _closed(connection)
                        await asyncio.sleep(AGAIN_S)
                self.accepted[letter.name] = time.time()
        finally:
            _closed(connection)


def _closed(connection: Connection | None) -> None:
    if connection is not None:
        connection.close()


def by_turns(flows: Mapping[Flow, int]) -> Iterator[Letter]:
    """The flows' letters mixed, so that all of them are as far at any time."""
    whole = max(flows.values(), default=0)
    left = {index: (flow.letters(count), count) for index, (flow, count) in enumerate(flows.items())}
    given = dict.fromkeys(left, 0)
    for step in range(1, whole + 1):
        for index, (letters, count) in left.items():
            while given[index] * whole < step * count:
                given[index] += 1
                yield next(letters)
