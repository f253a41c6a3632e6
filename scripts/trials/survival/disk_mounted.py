"""File systems of their own, tmpfs and ext4: full to the last byte, full of mail, full of broken-off bodies, read-only.

Only root can mount. Whatever happens, what was mounted is unmounted when the trial ends.
"""

from __future__ import annotations

import asyncio
import os
import random
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

from survival.client import Client
from survival.disk import BUSY, Progress, Trial
from survival.ledger import Ledger
from survival.letters import Letter, letter
from survival.rig import PATIENCE_S, Mta, sink

KINDS = ("tmpfs", "ext4")
_HEAVY = 1_000_000
"""Letters of this number and more are heavy, and for zone bulk."""
_HEAVY_BYTES = 3_000_000
_SIZE_MB = 64
_MOUNTED = "zonemta-test-"
_HOLDING = 6


def cannot_mount() -> str:
    """Why no file system can be mounted here; empty if one can."""
    return "" if os.geteuid() == 0 else "only root can mount a file system"


def _run(*command: str | Path) -> str:
    """Raises CalledProcessError."""
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT).stdout.decode()


@contextmanager
def mounted(place: Path, kind: str, size_mb: int = _SIZE_MB) -> Iterator[None]:
    """A file system of that size. Raises CalledProcessError."""
    _unmount_left()
    place.mkdir(parents=True, exist_ok=True)
    if kind == "tmpfs":
        _run("mount", "-t", "tmpfs", "-o", f"size={size_mb}m", f"{_MOUNTED}{os.getpid()}", place)
    else:
        with image(place).open("wb") as file:
            file.truncate(size_mb << 20)
        _run("mkfs.ext4", "-q", "-F", "-m", "0", "-E", "lazy_itable_init=0,lazy_journal_init=0", image(place))
        mount_image(place)
    try:
        yield
    finally:
        unmount(place)
        image(place).unlink(missing_ok=True)


def image(place: Path) -> Path:
    """The file that holds the ext4; its name tells whose it is."""
    return place.with_name(f"{_MOUNTED}{os.getpid()}")


def mount_image(place: Path) -> None:
    """Again, too; an error of the file system makes it read-only."""
    _run("mount", "-o", "loop,errors=remount-ro", image(place), place)


def unmount(place: Path) -> None:
    """By force where somebody is in it still."""
    if subprocess.run(["umount", place], capture_output=True, check=False).returncode and os.path.ismount(place):
        subprocess.run(["umount", "--lazy", place], check=True)


def _unmount_left() -> None:
    """What trials that were killed have left mounted."""
    for row in Path("/proc/self/mounts").read_text().splitlines():
        source, place = row.split()[:2]
        backing = Path("/sys/block", Path(source).name, "loop/backing_file")
        name = Path(backing.read_text().strip()).name if backing.exists() else source
        owner = name.removeprefix(_MOUNTED)
        if name.startswith(_MOUNTED) and owner.isdecimal() and not Path("/proc", owner).exists():
            subprocess.run(["umount", "--lazy", place.encode().decode("unicode_escape")], check=True)


@cache
def _noise(number: int) -> bytes:
    line_bytes = bytes(65 if byte in b"\0\r\n." else byte for byte in range(256))
    noise = random.Random(number % 8).randbytes(_HEAVY_BYTES).translate(line_bytes)
    return b"".join(noise[at : at + 76] + b"\r\n" for at in range(0, len(noise), 76))


def _letter(number: int, attempt: int = 0) -> Letter:
    one = letter(number, attempt)
    if number < _HEAVY:
        return one
    return one._replace(recipients=[f"heavy-{one.name}@bulk.test"], data=one.data + _noise(number % 8))


def _named(name: str) -> Letter:
    number, _, attempt = name.partition(".")
    return _letter(int(number), int(attempt))


class _Filling(Trial):
    """`fill`: from now on heavy mail is handed in that waits, until it is let go."""

    filling = False
    heavy = _HEAVY

    def fill(self) -> None:
        self.mta.ask("stop", kind="zone", name="bulk")
        self.filling = True

    def let_go(self) -> None:
        self.filling = False
        self.mta.ask("lift", kind="zone", name="bulk")

    async def session(self) -> None:
        while True:
            if self.filling:
                self.heavy += 1
                await self.client.hand_in(range(self.heavy, self.heavy + 1), 1)
            else:
                self.next += 1
                await self.client.hand_in(range(self.next, self.next + 1), 1)


async def full(
    folder: Path, *, kind: str, rounds: int, by: str = "another", progress: Progress = lambda done, note: None
) -> dict[str, Any]:
    """A small disk that is filled again and again by "another" program, to the last byte, or by "mail" that waits."""
    ledger = Ledger(make=_named)
    ballast = folder / "disk" / "ballast"
    async with sink(ledger, rules=BUSY) as running:
        with mounted(folder / "disk", kind):
            mta = Mta(folder / "disk" / "queue", running.port, home=folder)
            mta.start()
            try:
                await mta.taking()
                client = Client(mta.port, ledger, make=_letter)
                trial = _Filling(mta, ledger, ballast.unlink, client)
                strike: Callable[[], None] = lambda: _fill(ballast)  # noqa: E731
                if by == "mail":
                    trial.heal, strike = trial.let_go, trial.fill
                for number in range(rounds):
                    await trial.blow(number, 452, strike)
                    progress(number + 1, f"full by {by}, and free again")
                return {"kind": kind, "rounds": rounds, **await trial.figures(ledger, running, 452)}
            finally:
                mta.end()


async def broken_off(
    folder: Path, *, kind: str, rounds: int, progress: Progress = lambda done, note: None
) -> dict[str, Any]:
    """Clients fill a small disk with bodies that they never end; letters of others are taken all the while."""
    ledger = Ledger()
    refused, held = 0, 0
    async with sink(ledger, rules=BUSY) as running:
        with mounted(folder / "disk", kind):
            mta = Mta(folder / "disk" / "queue", running.port, home=folder)
            mta.start()
            try:
                await mta.taking()
                trial = Trial(mta, ledger, lambda: None)
                replies = trial.client.replies
                for number in range(rounds):
                    held_by = await asyncio.gather(*(_hold(mta.port) for _ in range(_HOLDING)))
                    before = replies[250]
                    await trial.hand_in(lambda before=before: replies[250] >= before + 10)  # type: ignore[misc]
                    for index, (reader, writer) in enumerate(held_by):
                        if index == 0:
                            writer.write(b"\r\n.\r\n")
                            held += 1
                            refused += (await _reply(reader)).startswith("452")
                        writer.transport.abort()
                    progress(number + 1, f"{_HOLDING} bodies were broken off")
                figures = await trial.figures(ledger, running, 250)
                return {"kind": kind, "rounds": rounds, "refused of those ended": f"{refused} of {held}", **figures}
            finally:
                mta.end()


async def _hold(port: int) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """A client that has sent 15 MB of a message, and no end of it."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    await _reply(reader)
    for line in ("EHLO client.test", "MAIL FROM:<>", "RCPT TO:<never@one.test>", "DATA"):
        writer.write(line.encode() + b"\r\n")
        await _reply(reader)
    writer.write(b"Subject: never\r\n\r\n")
    for _ in range(5):
        writer.write(_noise(0))
        await writer.drain()
    return reader, writer


async def _reply(reader: asyncio.StreamReader) -> str:
    while (line := (await reader.readline()).decode())[3:4] == "-":
        continue
    return line.rstrip()


async def read_only(folder: Path, *, rounds: int, progress: Progress = lambda done, note: None) -> dict[str, Any]:
    """An error makes an ext4 read-only under the running MTA. Linux never takes that back while it is mounted: so the
    MTA is ended each time, the file system checked and mounted again.
    """
    ledger = Ledger()
    place, repaired = folder / "disk", 0
    async with sink(ledger, rules=BUSY) as running:
        with mounted(place, "ext4", 256):
            mta = Mta(place / "queue", running.port, home=folder)

            def heal() -> None:
                nonlocal repaired
                mta.end()
                unmount(place)
                repaired += subprocess.run(
                    ["e2fsck", "-p", image(place)], stdout=subprocess.DEVNULL, check=False
                ).returncode
                mount_image(place)
                mta.start()

            mta.start()
            try:
                await mta.taking()
                trial = Trial(mta, ledger, heal)
                trial.again_s = PATIENCE_S  # the file system's check, its mount and the MTA's start are in it
                for number in range(rounds):
                    await trial.blow(number, 451, lambda: _fail(place))
                    await mta.taking()
                    progress(number + 1, "read-only, and mounted again")
                said = "Read-only file system" in mta.log.read_text(errors="replace")
                figures = await trial.figures(ledger, running, 451)
                if not said:
                    figures["broken"].append("the log does not say that the file system is read-only")
                return {"rounds": rounds, "e2fsck": repaired, **figures}
            finally:
                mta.end()


def _fail(place: Path) -> None:
    """Lets the file system meet an error, as of a bad block."""
    device = _run("findmnt", "-no", "SOURCE", place).strip()
    Path(f"/sys/fs/ext4/{Path(device).name}/trigger_fs_error").write_text("zonemta trial")


def _fill(ballast: Path) -> None:
    """Takes all the space there is."""
    with ballast.open("wb", buffering=0) as file:
        for block in (1 << 20, 4096, 1):
            try:
                while file.write(bytes(block)) == block:
                    pass
            except OSError:
                continue
