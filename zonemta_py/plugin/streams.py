"""The hooks that see a message while it streams in: message_analyze, message_rewrite, message_headers, message_store.

Blocks pass through bounded pipes, so a message of any size costs each plugin at most BLOCKS_MAX blocks of memory
besides what it keeps itself, and a plugin that lags slows its client down. The time limit counts only while a
plugin is what we wait for, not while it waits for the client.

Failures: `on_headers`, `feed` and `finish` raise verdicts; then the message is refused: call `abort` (any number of
times), discard the rest of it and answer with the verdict's reply. What `sink` raises passes through.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from typing import TYPE_CHECKING

from zonemta_py.plugin import mime
from zonemta_py.plugin.calls import Round
from zonemta_py.plugin.pipes import Reader, Rewriting, finish, readers

if TYPE_CHECKING:
    from zonemta_py.mail.envelope import Envelope
    from zonemta_py.mail.headers import Headers
    from zonemta_py.plugin.host import Host

Sink = Callable[[bytes], Awaitable[None]]
"""Stores the next bytes of the body: any number but 0."""

HOOKS = ("message_analyze", "message_rewrite", "message_headers", "message_store")


class BodyHooks:
    """All of them for one message. Made when the header section is complete, `headers` being its fields.

    Call in this order: `await on_headers()`, which may change headers (store `headers.build()` and the empty line after
    it); `await feed(block)` for the bytes after the empty line; `await finish()` at the end, before the commit. What
    is to be stored as body reaches `sink` during these calls, in order.
    """

    def __init__(self, host: Host, envelope: Envelope, headers: Headers, sink: Sink, contents: bool = True) -> None:
        """contents: False: only message_headers is called, as plugins have seen the body."""
        self._contents = contents
        self._host, self._envelope, self._headers, self._sink = host, envelope, headers, sink
        self._analysts: list[Reader] = []
        self._keepers: list[Reader] = []
        self._splitter: mime.Splitter | None = None
        self._rewriting: Rewriting | None = None

    @property
    def unread(self) -> str:
        """As of `Info`."""
        return self._splitter.unread if self._splitter is not None else ""

    @staticmethod
    def wanted(host: Host) -> bool:
        """Whether any plugin implements any of these hooks; if not, pass the bytes on without this class."""
        return any(map(host.listens, HOOKS))

    async def on_headers(self) -> None:
        """Shows the header section as received to message_analyze, then lets message_headers change it."""
        received = self._headers.build() + b"\r\n"
        self._analysts = self._readers("message_analyze")
        self._keepers = self._readers("message_store")
        await _show(self._analysts, received)
        await self._host.call("message_headers", envelope=self._envelope, headers=self._headers)
        if self._contents and self._host.listens("message_rewrite"):
            self._splitter = mime.Splitter(self._headers)
            await self._follow(self._splitter.begin())

    async def feed(self, block: bytes) -> None:
        """Takes the next bytes of the body as they arrive."""
        await _show(self._analysts, block)
        if self._splitter is None:
            await self._store(block)
        else:
            await self._follow(self._splitter.feed(block))

    async def finish(self) -> None:
        """Waits for every plugin to finish. Raises the first verdict, in the order of the hooks."""
        if self._splitter is not None:
            await self._follow(self._splitter.finish())
        await finish((*self._analysts, *self._keepers))

    def abort(self) -> None:
        """Releases everything: client gone, or message refused."""
        for reader in (*self._analysts, *self._keepers):
            reader.abort()
        if self._rewriting is not None:
            self._rewriting.abort()

    def _readers(self, name: str) -> list[Reader]:
        return readers(self._host.calls(name), {"envelope": self._envelope}) if self._contents else []

    async def _follow(self, events: Iterable[mime.Event]) -> None:
        for event in events:
            if isinstance(event, mime.MimeBody):
                await (self._rewriting.feed(event.raw) if self._rewriting else self._store(event.raw))
            elif isinstance(event, mime.Other):
                await self._store(event.raw)
            elif isinstance(event, mime.Begin):
                await self._offer(event)
            elif self._rewriting is not None:
                await self._rewriting.finish()
                self._rewriting = None

    async def _offer(self, begin: mime.Begin) -> None:
        """Asks every plugin for the node, and sends its header section as they left it."""
        before = begin.node.headers.build()
        rewriting = Rewriting(self._store)
        calls, arguments = self._host.calls("message_rewrite"), {"envelope": self._envelope, "node": begin.node}
        round_ = Round(calls[0], arguments)  # it listens: see `on_headers`
        for call in calls:
            await rewriting.ask(call, arguments, round_)
        if rewriting.start():
            self._rewriting = rewriting
        after = begin.node.headers.build()
        if begin.raw:  # the root's fields are the message's, which are not stored by us
            await self._store(begin.raw if after == before else after + begin.rest)

    async def _store(self, block: bytes) -> None:
        if block:
            await _show(self._keepers, block)
            await self._sink(block)


async def _show(readers: list[Reader], block: bytes) -> None:
    for reader in readers:
        await reader.feed(block)
