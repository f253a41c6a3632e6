"""Load generators: Postfix's smtp-source where it is installed, else (or on request) this file as a process.

Both send one command at a time, over so many sessions at once, each with its connection kept or made anew per message.
`python load.py '{"port": …}'` takes the fields of Load as JSON.
"""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import sys
import tempfile
from dataclasses import asdict, dataclass, replace
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # this file is run by its name, too

from benchmark.bodies import body

PATHS = "/usr/sbin:/usr/local/sbin:/usr/bin"


@dataclass(frozen=True)
class Load:
    """bytes, body: how large, and which of bodies.KINDS. recipient: several are numbered in front of it. domains: so
    many below its domain, in turns; own generator only."""

    port: int
    messages: int
    recipients: int = 1
    sessions: int = 20
    bytes: int = 5120
    reuse: bool = True
    recipient: str = "user@dest.test"
    body: str = "letter"
    domains: int = 1

    def command(self, generator: str) -> list[str]:
        """generator: "smtp-source" or "own"."""
        if generator == "own":
            return [sys.executable, __file__, json.dumps(asdict(self))]
        sizes = [f"-s{self.sessions}", "-F", str(self._file()), f"-m{self.messages}", f"-r{self.recipients}"]
        names = ["-f", "sender@src.test", "-t", self.recipient, "-M", "source.bench"]
        keep = ["-d"] if self.reuse else []
        return [smtp_source() or "smtp-source", *sizes, *names, *keep, f"127.0.0.1:{self.port}"]

    def _file(self) -> Path:
        """The message for smtp-source, which ends its lines itself."""
        path = Path(tempfile.gettempdir()) / f"zonemta-bench-{self.body}-{self.bytes}.eml"
        if not path.exists():
            head = b"From: sender@src.test\nTo: list@src.test\nMessage-ID: <bench@src.test>\nSubject: x\n\n"
            mine = path.with_suffix(f".{os.getpid()}")
            mine.write_bytes(head + body(self.body, self.bytes).replace(b"\r\n", b"\n"))
            mine.rename(path)
        return path


def smtp_source() -> str | None:
    return shutil.which("smtp-source", path=PATHS)


class _Source:
    """Sends numbered messages until there are none left."""

    def __init__(self, load: Load) -> None:
        self.load, self.left = load, iter(range(load.messages))
        self.body = body(load.body, load.bytes)

    async def session(self) -> None:
        while (number := next(self.left, None)) is not None:
            reader, writer = await asyncio.open_connection("127.0.0.1", self.load.port)
            await _ask(reader, writer, b"", b"220")
            await _ask(reader, writer, b"EHLO source.bench\r\n", b"250")
            while number is not None:
                await self.message(reader, writer, number)
                number = next(self.left, None) if self.load.reuse else None
            await _ask(reader, writer, b"QUIT\r\n", b"221")
            writer.close()

    async def message(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, number: int) -> None:
        await _ask(reader, writer, b"MAIL FROM:<sender@src.test>\r\n", b"250")
        for name in self.recipients(number):
            await _ask(reader, writer, b"RCPT TO:<%s>\r\n" % name.encode(), b"250")
        await _ask(reader, writer, b"DATA\r\n", b"354")
        header = f"From: sender@src.test\r\nTo: list@src.test\r\nMessage-ID: <{number}@src.test>\r\nSubject: x\r\n\r\n"
        writer.writelines([header.encode(), self.body])
        await writer.drain()
        await _ask(reader, writer, b".\r\n", b"250")

    def recipients(self, number: int) -> list[str]:
        load = self.load
        within = [f"d{(number + i) % load.domains}." if load.domains > 1 else "" for i in range(load.recipients)]
        local, _, domain = load.recipient.partition("@")
        if load.recipients == 1:
            return [f"{local}@{within[0]}{domain}"]
        return [f"{number}-{i}-{local}@{at}{domain}" for i, at in enumerate(within)]


async def _ask(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, data: bytes, want: bytes) -> None:
    writer.write(data)
    while True:
        line = await reader.readline()
        if not line.startswith(want):
            raise SystemExit(f"load: {data[:40]!r} was answered by {line!r}")
        if line[3:4] != b"-":
            return


async def _run(load: Load) -> None:
    source = _Source(load)
    await asyncio.gather(*(source.session() for _ in range(min(load.sessions, load.messages))))


def main() -> None:
    import uvloop

    uvloop.run(_run(replace(Load(0, 0), **json.loads(sys.argv[1]))))


if __name__ == "__main__":
    main()
