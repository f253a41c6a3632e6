"""A server that treats each recipient as a test says, and what tests of several messages per lease share."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Mapping

from zonemta_py.config import Config, Zone
from zonemta_py.delivery.context import SenderContext
from zonemta_py.delivery.dns.destination import DnsDestinationResolver
from zonemta_py.delivery.smtp.connections import Connections
from zonemta_py.delivery.tls.policy import TlsPolicies
from zonemta_py.merge.compile import prepare
from zonemta_py.merge.source import TemplateSource, Text
from zonemta_py.plugin.host import Host
from zonemta_py.queue.api import BOUNCED, DEFERRED, DELIVERED, RELEASED, Result, template_name

TEMPLATE = prepare(
    TemplateSource("t", Text("For {{ name }}"), Text("news@d.example"), text=Text("Hello {{ name }}"))
).pack()
TEMPLATE_NAME = template_name(TEMPLATE)
VERDICTS = {DELIVERED: "delivered", DEFERRED: "deferred", BOUNCED: "bounced", RELEASED: "released"}


class PickyServer:
    """ways: name of a recipient → where it is refused ("mail", "rcpt", "data", "dot": 4xx; with ! 5xx), or where the
    connection ends ("cut-mail", "cut-dot": before the reply; "cut-after": behind it; "421", "421-dot": with that, in
    place of MAIL's or the last).

    strict: what comes behind a message before its reply is an error that ends the connection (Exim's words).
    taken: names whose message was accepted. together: envelopes that came with the end of the message before.
    """

    def __init__(self, ways: Mapping[str, str], keywords: tuple[str, ...], strict: bool) -> None:
        self.ways, self.keywords, self.strict = ways, keywords, strict
        self.taken: list[str] = []
        self.connections = self.together = 0
        self.port = 0

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        with contextlib.suppress(ConnectionError, EOFError):
            await self._talk(reader, writer)
        writer.close()

    async def _talk(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"220 here\r\n")
        name = ""
        while line := (await reader.readline()).decode():
            verb = line[:4].upper()
            if verb == "EHLO":
                lines = ["server", *self.keywords]
                writer.write("".join(f"250{' ' if one == lines[-1] else '-'}{one}\r\n" for one in lines).encode())
            elif verb == "MAIL":
                name = self._coming(reader)
                if self.ways.get(name) == "421":
                    writer.write(b"421 4.3.2 closing\r\n")
                    return
                self._reply("mail", name, b"250 2.1.0 ok\r\n", writer)
            elif verb == "RCPT":
                name = line.partition("<")[2].partition("@")[0]
                self._reply("rcpt", name, b"250 2.1.5 ok\r\n", writer)
            elif verb == "DATA":
                if self.ways.get(name, "").strip("!") in ("mail", "rcpt"):
                    writer.write(b"503 5.5.1 no recipients\r\n")
                elif self._reply("data", name, b"354 go\r\n", writer):
                    await self._message(name, reader, writer)
            else:
                writer.write(b"250 2.0.0 ok\r\n")

    def _coming(self, reader: asyncio.StreamReader) -> str:
        """Whose the transaction will be: the RCPT came in the same write."""
        held = bytes(reader._buffer)  # type: ignore[attr-defined]
        return held.partition(b"<")[2].partition(b"@")[0].decode()

    def _reply(self, point: str, name: str, usual: bytes, writer: asyncio.StreamWriter) -> bool:
        way = self.ways.get(name, "")
        if way in (f"cut-{point}", f"421-{point}"):
            writer.write(b"421 4.3.2 closing\r\n" if way[:3] == "421" else b"")
            raise EOFError
        if way.strip("!") != point:
            writer.write(usual)
            return True
        writer.write(b"550 5.1.1 never\r\n" if way.endswith("!") else b"450 4.2.0 not now\r\n")
        return False

    async def _message(self, name: str, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        body = await reader.readuntil(b"\r\n.\r\n")
        assert f"Subject: For {name}\r\n".encode() in body
        early = bool(reader._buffer)  # type: ignore[attr-defined]
        self.together += early
        if self._reply("dot", name, b"250 2.0.0 taken\r\n", writer):
            self.taken.append(name)
        if self.ways.get(name) == "cut-after":
            raise EOFError
        if early and self.strict:
            writer.write(b"554 SMTP synchronization error\r\n")
            await writer.drain()
            raise EOFError


def verdicts(result: Result) -> list[str]:
    """By recipient."""
    found = {index: VERDICTS[outcome.verdict] for outcome in result.outcomes for index in outcome.recipients}
    assert sum(len(outcome.recipients) for outcome in result.outcomes) == len(found)
    return [found[index] for index in sorted(found)]


class Dispatch:
    """parts: results of those that were answered while others were under way."""

    def __init__(self) -> None:
        self.parts: list[Result] = []

    async def template(self, campaign: str) -> bytes:
        return TEMPLATE

    def settle_part(self, result: Result) -> None:
        self.parts.append(result)


def means_of(dispatch: Dispatch) -> SenderContext:
    zone = Zone(name="default", default=True, tls="none", allow_private=True)
    config = Config(zones=[zone])
    names = DnsDestinationResolver(config)
    tls = TlsPolicies(config, names, None)
    return SenderContext(config, dispatch, Host.empty(), names, tls, Connections(), "mta.test")  # type: ignore[arg-type]
