"""What eats bytes from outside, each as a function of bytes that raises if a rule is broken.

`test_fuzz.py` runs them over the corpus and over what hypothesis thinks of, `scripts/fuzz` for as long as one likes.
The rules: nothing but the failures a parser is documented to have; no byte lost; the same result wherever blocks are
cut; and less than CPU_S_MAX for any input of BYTES_MAX.
"""

from __future__ import annotations

import asyncio
import functools
import logging
import re
import shutil
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from aiosmtpd.proxy_protocol import get_proxy

from tests.fuzz import http_targets
from tests.reception.conftest import MemoryIntake
from zonemta_py.config import Config, Signing
from zonemta_py.delivery.smtp.dialogue import Dialogue
from zonemta_py.mail.address import AddressRefused, parse_mail, parse_rcpt
from zonemta_py.mail.addresses.authors import author_domain, authors
from zonemta_py.mail.addresses.senders import Senders
from zonemta_py.mail.dkim.signature import Fields
from zonemta_py.mail.headers import Headers, decode, split
from zonemta_py.mail.lines import Decoder, Stuffer
from zonemta_py.plugin import mime
from zonemta_py.plugin.host import Host
from zonemta_py.queue.recovery.start import open_queue
from zonemta_py.reception.connection_limits import ConnectionLimits
from zonemta_py.reception.listener import ListenerSettings
from zonemta_py.reception.login import Login
from zonemta_py.reception.smtp.session import ServerSession
from zonemta_py.wire.server import ClientConnection

BYTES_MAX = 100_000
CPU_S_MAX = 3.0
Target = Callable[[bytes], None]
_REPLY = re.compile(rb"([2-5]\d\d-[^\r\n]*\r\n)*[2-5]\d\d [^\r\n]*\r\n")
_EMPTY_LINE = b"\r\n\r\n"


class BrokenRule(AssertionError):
    """What the input shows."""


def rule(holds: object, sentence: str) -> None:
    if not holds:
        raise BrokenRule(sentence)


class Wire:
    """A transport that keeps what is written, and fails as a real one does."""

    def __init__(self) -> None:
        self.written, self.closed = b"", False

    def write(self, data: bytes) -> None:
        self.written += data

    def writelines(self, pieces: tuple[bytes, ...]) -> None:
        self.written += b"".join(pieces)

    def close(self) -> None:
        self.closed = True

    abort = close

    def is_closing(self) -> bool:
        return self.closed

    def get_extra_info(self, name: str) -> Any:
        return ("127.0.0.1", 25) if name in ("peername", "sockname") else None

    def get_write_buffer_size(self) -> int:
        return 0

    def pause_reading(self) -> None:
        """Those who ask for it get no more here anyway."""

    resume_reading = pause_reading

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """Nothing is ever buffered."""

    def set_protocol(self, protocol: object) -> None:
        """There is but one."""


@functools.cache
def loop() -> asyncio.AbstractEventLoop:
    logging.disable(logging.ERROR)
    return asyncio.new_event_loop()


def blocks(data: bytes) -> list[bytes]:
    """Cut where the input itself says."""
    size = max(1 + (data[0] if data else 0) * 7, len(data) // 500)
    return [data[at : at + size] for at in range(0, len(data), size)]


def smtp(data: bytes) -> None:
    """A whole connection: every reply is one, and what is stored is what was accepted."""
    loop().run_until_complete(_smtp(data))


@functools.cache
def _site() -> ListenerSettings:
    config = Config.model_validate({"server": {"hostname": "mx.test"}, "limits": {"errors_per_connection": 1000}})
    return ListenerSettings(
        config, config.listeners[0], MemoryIntake(), Host.empty(), ConnectionLimits(config.limits), Login({})
    )


async def _smtp(data: bytes) -> None:
    site, wire = _site(), Wire()
    site.submission.kept.clear()  # type: ignore[attr-defined]
    door = ServerSession(site)
    door.connection_made(wire)
    for block in blocks(data):
        if wire.closed:
            break
        door.data_received(block)
        await _settled(door)
    await _settled(door)
    door.connection_lost(None)
    rule(_REPLY.sub(b"", wire.written) == b"", f"no reply: {wire.written[-200:]!r}")
    kept = len(site.submission.kept)  # type: ignore[attr-defined]
    rule(wire.written.count(b"OK: queued as") == kept, "what is acknowledged is what is stored")
    rule(len(site.gate) == 0, "a place is taken by nobody")


async def _settled(door: ServerSession) -> None:
    for _ in range(10_000):
        if door._task is not None:
            await asyncio.wait([door._task])
        elif door._resting:
            await asyncio.sleep(0)
        else:
            return


def body(data: bytes) -> None:
    """DATA: cut anywhere it is the same; a message decoded, stuffed and decoded again is the message."""
    whole, cut = Decoder(10**6, 10**5), Decoder(10**6, 10**5)
    content = whole.feed(data)
    pieces = b""
    for block in blocks(data):
        if cut.done:
            cut.rest += block
        else:
            pieces += cut.feed(block)
    ends = [(one.done, one.rest, one.refusal) for one in (whole, cut)]
    rule(ends[0] == ends[1], "it depends on where blocks are cut")
    if whole.refusal is not None:
        return
    rule(pieces == content, "it depends on where blocks are cut")
    if whole.done:
        rule(b"\r" not in content.replace(b"\r\n", b"") and content[-2:] in (b"\r\n", b""), "a bare line end came in")
        stuffer, again = Stuffer(), Decoder(10**7, 10**7)
        sent = b"".join(map(stuffer.stuff, blocks(content))) + stuffer.end()
        rule(again.feed(sent) == content and again.done, "it does not arrive as it was")
        rule(again.rest == b"", "a second message was smuggled out")


def proxy(data: bytes) -> None:
    """PROXY headers: understood or not, but never anything else."""
    loop().run_until_complete(_proxy(data))


class _Bytes:
    """As the listener's reader."""

    def __init__(self, data: bytes) -> None:
        self._data = data

    async def read(self, n: int = 65_535) -> bytes:
        taken, self._data = self._data[:n], self._data[n:]
        return taken

    async def readexactly(self, n: int) -> bytes:
        if len(self._data) < n:
            raise asyncio.IncompleteReadError(self._data, n)
        return await self.read(n)

    async def readuntil(self, separator: bytes = b"\n") -> bytes:
        end = self._data.find(separator, 0, 108)
        if end < 0:
            raise asyncio.LimitOverrunError("no end of line", len(self._data))
        return await self.read(end + len(separator))


async def _proxy(data: bytes) -> None:
    try:
        found = await get_proxy(_Bytes(data))  # type: ignore[arg-type]
    except (OSError, asyncio.IncompleteReadError):
        return
    rule(not found.valid or isinstance(str(found.src_addr), str), "an address is one")


def parts(data: bytes) -> None:
    """MIME: every byte comes out again, in order, wherever blocks are cut; what is found does not depend on it."""
    headers, end = split(data)
    content = data[end:].removeprefix(b"\r\n")
    found = [_parts(headers, [content]), _parts(headers, blocks(content))]
    rule(found[0] == found[1], "it depends on where blocks are cut")
    rule(found[0][0] == content, "a byte was lost")


def _parts(headers: Headers, pieces: list[bytes]) -> tuple[bytes, list[tuple[Any, ...]]]:
    splitter = mime.Splitter(headers)
    events = list(splitter.begin())
    for piece in pieces:
        events += splitter.feed(piece)
    events += splitter.finish()
    begun = [event.node for event in events if isinstance(event, mime.Begin)]
    raw = b"".join(getattr(event, "raw", b"") for event in events)
    return raw, [(node.content_type, node.charset, node.filename, node.encoding, node.path) for node in begun]


def header(data: bytes) -> None:
    """Header sections: no byte lost; what is shown is clean text; who is signed for is among the authors."""
    data = data.removesuffix(b"\r\n") + b"\r\n"  # as all that has passed reception
    headers, end = split(data)
    rule(headers.build() == data[:end], "a byte was lost")
    for name, value in [*headers][:50]:
        shown = decode(value)
        rule(shown.isprintable() or not re.search("[\x00-\x1f\x7f-\x9f\u2028\u2029]", shown), "a control is shown")
        rule(len(headers.decoded(name)) <= 200, "a value is longer than asked for")
    selection = _fields().of(data[:end])
    domain = author_domain(selection.author)
    if domain:
        text = selection.author.decode("utf-8", "replace")
        rule(domain in {one.rpartition("@")[2] for one in authors(text)}, "signed for whom it is not from")
        ours = Senders(["nobody.invalid"])
        rule(ours.refused([text]) is not None, "from whom it may not be")


@functools.cache
def _fields() -> Fields:
    signing = Signing()
    return Fields(signing.canonicalization, signing.headers, signing.oversign)


def address(data: bytes) -> None:
    """Arguments of MAIL and RCPT: an address and parameters, or a refusal."""
    try:
        text = data.decode()
    except UnicodeDecodeError:  # the listener refuses it
        return
    for parse in (parse_mail, lambda text: parse_rcpt(text, smtputf8=True)):
        try:
            found = parse(text)
        except AddressRefused as refused:
            rule(400 <= refused.reply.code < 600, "a refusal is none")
            continue
        one = found[0].address if isinstance(found, tuple) else found.address
        rule(not re.search(r"[\x00-\x1f\x7f]", one), "a control came in with an address")


def replies(data: bytes) -> None:
    """What servers say: the same replies wherever blocks are cut, until it is broken."""
    found = []
    for pieces in ([data], blocks(data)):
        dialogue = Dialogue(Wire(), loop())  # type: ignore[arg-type]
        for piece in pieces:
            if dialogue.broken is None:
                dialogue.data_received(piece)
        found.append(dialogue._replies)
        rule(all(200 <= reply.code < 600 for reply in dialogue._replies), "a code is none")
    rule(found[0][: len(found[1])] == found[1][: len(found[0])], "it depends on where blocks are cut")


def frames(data: bytes) -> None:
    """The unix socket: a queue that hears anything goes on, and nothing of it reaches the disk as trouble."""
    loop().run_until_complete(_frames(data))


@functools.cache
def _folder() -> Path:
    return Path(tempfile.mkdtemp(prefix="fuzz-"))


async def _frames(data: bytes) -> None:
    queue, wire = await _queue(), Wire()
    connection = ClientConnection(queue)
    connection.connection_made(wire)  # type: ignore[arg-type]
    for block in blocks(data):
        if not wire.closed:
            connection.data_received(block)
    await asyncio.sleep(0)
    tasks = list(connection._tasks)
    connection.connection_lost(None)
    await asyncio.gather(*tasks, return_exceptions=True)
    rule(queue.core.disk.lines.trouble is None, "the store is in trouble")


_QUEUES: list[Any] = []


async def _queue() -> Any:
    if not _QUEUES:
        config = Config.model_validate({"server": {"folder": _folder()}, "queue": {"reserve_bytes": 0}})
        _QUEUES.append(await open_queue(config))
    return _QUEUES[0]


async def _stop(queue: Any) -> None:
    core = queue.core
    await core.disk.lines.stable()
    await core.disk.journal.stable()
    core.ready, core.stopping = False, True
    queue.close()


def close() -> None:
    """Gives back what targets keep between inputs."""
    for queue in _QUEUES:
        loop().run_until_complete(_stop(queue))
    if _QUEUES:
        _QUEUES.clear()
        shutil.rmtree(_folder())
    logging.disable(logging.NOTSET)


TARGETS: dict[str, Target] = {
    "smtp": smtp, "body": body, "proxy": proxy, "parts": parts, "header": header, "address": address,
    "replies": replies, "frames": frames, "template": http_targets.template, "json": http_targets.json_body,
}  # fmt: skip


def run(name: str, data: bytes) -> None:
    """Raises whatever the target does, and BrokenRule where it takes too long."""
    data = data[:BYTES_MAX]
    begun = time.thread_time()
    TARGETS[name](data)
    rule(time.thread_time() - begun < CPU_S_MAX, f"it took {time.thread_time() - begun:.1f} s")
