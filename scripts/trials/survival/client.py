"""An SMTP client that believes nothing but a 250 after the dot, and hands in again whatever did not get one.

Each session pipelines MAIL, RCPT and DATA (RFC 2920). A connection that breaks, a 4xx or 421 anywhere is followed by a
pause and another attempt, under another name; anything else than 250, 354 and 4xx ends the trial.
"""

from __future__ import annotations

import asyncio
import re
from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

from survival.ledger import Ledger
from survival.letters import Letter, letter

_DOT = re.compile(rb"^\.", re.MULTILINE)
REPLY_S = 60.0


class Refused(Exception):
    """A 4xx. `code` is the reply's."""

    def __init__(self, line: str) -> None:
        super().__init__(line)
        self.code = int(line[:3])


class Client:
    """Hands in letters over several sessions. replies: how often each code came after the dot (or instead of it)."""

    def __init__(
        self, port: int, ledger: Ledger, *, pause_s: float = 0.02, make: Callable[..., Letter] = letter, **same: Any
    ) -> None:
        """make: the letter of a number and an attempt, with what is `same` for all."""
        self.port, self.ledger, self.pause_s, self._make = port, ledger, pause_s, partial(make, **same)
        self.replies: Counter[int] = Counter()
        self.broken = 0

    async def hand_in(self, numbers: range, sessions: int = 10) -> None:
        """Returns when every letter has its 250."""
        rest = iter(numbers)
        async with asyncio.TaskGroup() as group:
            for _ in range(sessions):
                group.create_task(self._session(rest))

    async def _session(self, rest: Iterator[int]) -> None:
        session = _Session(self)
        try:
            for number in rest:
                attempt = 0
                while not await session.give(self._make(number, attempt)):
                    attempt += 1
                    await asyncio.sleep(self.pause_s)
        finally:
            session.drop()

    async def give(self, connection: Connection, message: Letter) -> None:
        """One attempt. Raises Refused, OSError, EOFError."""
        self.ledger.open(message)
        await connection.transaction(message)
        self.ledger.acknowledge(message)
        self.count(250)

    def count(self, code: int) -> None:
        self.replies[code] += 1


class _Session:
    """A connection that is opened when it is needed, and again when it broke."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._connection: Connection | None = None

    async def give(self, message: Letter) -> bool:
        """One attempt; whether it got its 250."""
        try:
            if self._connection is None:
                self._connection = await Connection.open(self._client.port)
            await self._client.give(self._connection, message)
            return True
        except Refused as refused:
            self._client.count(refused.code)
            if refused.code == 421:
                self.drop()
        except (OSError, EOFError, TimeoutError):
            self._client.broken += 1
            self.drop()
        return False

    def drop(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None


class Connection:
    """One SMTP session, greeted."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer

    @classmethod
    async def open(cls, port: int) -> Connection:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        connection = cls(reader, writer)
        try:
            await connection._expect(220)
            writer.write(b"EHLO client.test\r\n")
            await connection._expect(250)
        except BaseException:
            writer.close()
            raise
        return connection

    async def transaction(self, message: Letter, parameters: str = "") -> None:
        """parameters: of MAIL, with a space before each."""
        commands = [
            f"MAIL FROM:<{message.sender}>{parameters}",
            *(f"RCPT TO:<{to}>" for to in message.recipients),
            "DATA",
        ]
        self._writer.write("".join(command + "\r\n" for command in commands).encode())
        replies = [await self._reply() for _ in commands]
        if replies[-1][:3] == "354":
            whole = all(reply[:3] == "250" for reply in replies[:-1])
            body = _DOT.sub(b"..", message.data) if whole else b""
            self._writer.write(body + b".\r\n")
            await self._writer.drain()
            replies.append(await self._reply())
            if not whole:  # nobody must take a letter for some of its recipients as handed in
                raise next(Refused(reply) for reply in replies if reply[0] != "2")
        for reply in replies:
            if reply[0] == "4":
                self._writer.write(b"RSET\r\n")
                await self._reply()
                raise Refused(reply)
            if reply[:3] not in ("250", "354"):
                raise AssertionError(f"the MTA said {reply!r} to {message.name}")

    async def _expect(self, code: int) -> None:
        reply = await self._reply()
        if not reply.startswith(str(code)):
            raise Refused(reply)

    async def _reply(self) -> str:
        while True:
            async with asyncio.timeout(REPLY_S):
                line = await self._reader.readline()
            if not line.endswith(b"\n"):
                raise EOFError("the connection ended in a reply")
            if line[3:4] != b"-":
                return line.decode().rstrip()

    def close(self) -> None:
        self._writer.close()
