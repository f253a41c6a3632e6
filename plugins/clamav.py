"""Has ClamAV's clamd scan each message while it arrives: infected mail is refused, discarded, or held for an operator.

    [plugins]
    enabled = ["clamav"]

    [plugins.options.clamav]
    socket = "unix:/run/clamav/clamd.ctl"
    action = "reject"
    failing = "closed"

A message is read as it arrives; 256 KB at most are in memory, what is longer streams to clamd. `bytes_max` should be
clamd's StreamMaxLength: longer messages are not scanned, which is counted, or refused (`too_large = "reject"`). Held
mail goes out when an operator releases it (`zonemta queue release`). Mail of campaigns is made only when it is sent,
and not scanned.

When clamd is down, slower than `timeout_s` after the last byte, or answers nonsense, mail is deferred with 451
(`failing = "closed"`), or goes on without a scan, which is counted and logged (`failing = "open"`). timeout_s must be
below plugins.timeout_s.
"""

from __future__ import annotations

import asyncio
import re
import struct
from collections.abc import AsyncIterator
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, field_validator

from zonemta_py.plugin import Delivery, Drop, Envelope, Headers, Hold, PluginApi, Reject, Stream

HELD_BYTES_MAX = 262_144
"""Of a message in memory; longer ones are sent on as they arrive."""
ANSWER_BYTES_MAX = 4_096
NOTE = "clamav"
"""Where `envelope.notes` has the name of what was found in mail to be held."""

_SOCKET = re.compile(r"unix:(?P<path>/.+)|tcp:(?P<host>.+):(?P<port>\d+)")
_FOUND = re.compile(r"stream: (.+) FOUND")


class Options(BaseModel):
    """[plugins.options.clamav]"""

    model_config = ConfigDict(extra="forbid", use_attribute_docstrings=True)

    socket: str = "unix:/run/clamav/clamd.ctl"
    """unix:/path or tcp:host:port."""
    timeout_s: float = Field(4, gt=0)
    """For connecting, each write, and the answer after the last byte; below plugins.timeout_s."""
    failing: Literal["open", "closed"] = "closed"
    """open: mail goes on without a scan; closed: it is deferred."""
    action: Literal["reject", "drop", "hold"] = "reject"
    """What becomes of infected mail."""
    bytes_max: int = Field(25_000_000, gt=0)
    """Longer messages are not scanned."""
    too_large: Literal["accept", "reject"] = "accept"
    """What becomes of those."""
    connections: int = Field(20, ge=1, le=1000)
    """At the same time, of each receiver; further messages wait, timeout_s at most."""

    @field_validator("socket")
    @classmethod
    def _check_socket(cls, value: str) -> str:
        if not _SOCKET.fullmatch(value):
            raise ValueError("write unix:/path or tcp:host:port")
        return value


class ClamavFailed(Exception):
    """clamd cannot be asked, or does not answer as it should. One sentence."""


class _TooLarge(Exception):
    """Than what is scanned."""


_api: PluginApi
_options: Options
_places: asyncio.Semaphore


def setup(api: PluginApi, options: Options) -> None:
    """Checks what can be checked without clamd."""
    global _api, _options, _places
    _api, _options, _places = api, options, asyncio.Semaphore(options.connections)
    if options.timeout_s >= api.timeout_s:
        raise ValueError(
            f"timeout_s = {options.timeout_s:g} must be below plugins.timeout_s, which is {api.timeout_s:g}"
        )


async def message_analyze(envelope: Envelope, stream: Stream) -> None:
    """Scans, and does what is to be done."""
    try:
        found = await _scanned(stream)
    except _TooLarge:
        _api.count("too_large")
        if _options.too_large == "reject":
            raise Reject(552, f"5.3.4 Only messages up to {_options.bytes_max} bytes can be scanned") from None
    except (ClamavFailed, OSError, EOFError, TimeoutError) as error:
        late = f"it does not answer within {_options.timeout_s:g} s"
        said = late if isinstance(error, TimeoutError) else str(error)
        sentence = f"clamd at {_options.socket}: {said}; start it, or correct socket and timeout_s"
        if _options.failing == "closed":
            raise ClamavFailed(f'{sentence}, or let mail pass meanwhile by failing = "open"') from error
        _api.count("passed_unscanned")
        _api.log.warning("%s; a message passes without its scan", sentence)
    else:
        _api.count("infected" if found else "clean")
        if found:
            _act(envelope, found)


async def sender_headers(delivery: Delivery, headers: Headers) -> None:
    """Holds what is infected, once."""
    found = delivery.notes.get(NOTE)
    if found and not any(delivery.attempts):
        raise Hold(f"infected with {found}")


def _act(envelope: Envelope, found: str) -> None:
    """Raises verdicts."""
    if _options.action == "reject":
        raise Reject(554, f"5.7.1 This message is infected with {found}")
    if _options.action == "drop":
        raise Drop(f"infected with {found}")
    envelope.notes[NOTE] = found[:200]


async def _scanned(stream: Stream) -> str:
    """What was found, "" nothing. Raises _TooLarge, ClamavFailed, OSError, EOFError, TimeoutError."""
    held, size = bytearray(), 0
    async for block in stream:
        held += block
        size += len(block)
        if size > _options.bytes_max:
            raise _TooLarge
        if size > HELD_BYTES_MAX:
            break
    async with asyncio.timeout(_options.timeout_s) as begins:
        await _places.acquire()
    writer = None
    try:
        async with asyncio.timeout_at(begins.when()):
            reader, writer = await _connected()
            writer.write(b"zINSTREAM\0")
            await _send(writer, bytes(held))
        held.clear()
        await _send_rest(writer, stream, size)
        async with asyncio.timeout(_options.timeout_s):
            writer.write(struct.pack("!I", 0))
            return _read(await reader.readuntil(b"\0"))
    except asyncio.IncompleteReadError:
        raise EOFError("it has hung up before it has answered") from None
    except asyncio.LimitOverrunError:
        raise ClamavFailed("it does not speak clamd's protocol") from None
    finally:
        _places.release()
        if writer is not None:
            writer.close()


async def _send_rest(writer: asyncio.StreamWriter, stream: AsyncIterator[bytes], size: int) -> None:
    async for block in stream:
        size += len(block)
        if size > _options.bytes_max:
            raise _TooLarge
        async with asyncio.timeout(_options.timeout_s):
            await _send(writer, block)


async def _send(writer: asyncio.StreamWriter, block: bytes) -> None:
    if block:
        writer.write(struct.pack("!I", len(block)) + block)
        await writer.drain()


async def _connected() -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    where = _SOCKET.fullmatch(_options.socket)
    assert where is not None
    if where["path"]:
        return await asyncio.open_unix_connection(where["path"], limit=ANSWER_BYTES_MAX)
    return await asyncio.open_connection(where["host"].strip("[]"), int(where["port"]), limit=ANSWER_BYTES_MAX)


def _read(answer: bytes) -> str:
    """Raises ClamavFailed."""
    said = answer.rstrip(b"\0\n").decode("ascii", "replace")
    if said == "stream: OK":
        return ""
    found = _FOUND.fullmatch(said)
    if found is None:
        raise ClamavFailed(f"it answers {said[:100]!r}")
    return found[1]
