"""Large bodies for tests: how they are made, put in and read again, and what is on the disk for them."""

import random
from pathlib import Path
from typing import Any

from zonemta_py.disk import body_file
from zonemta_py.mail.envelope import Envelope, Recipient
from zonemta_py.mail.limits import CHUNK_BYTES
from zonemta_py.queue.api import accept_whole

NOISE = random.Random(9).randbytes(CHUNK_BYTES)
LARGE = b"Subject: large\r\n\r\n" + b"".join(NOISE[n:] + NOISE[:n] for n in range(12))
TRICKLE = b"Subject: small\r\n\r\nHi\r\n"


def mail(address: str = "bob@x.test", body: bytes = LARGE, origin: str = "192.0.2.1") -> Envelope:
    return Envelope("ann@src.test", [Recipient(address)], len(body), origin=origin, received_ms=1_700_000_000_000)


async def put(queue: Any, address: str = "bob@x.test", body: bytes = LARGE) -> str:
    return str((await accept_whole(queue, mail(address, body), body)).id)


async def body_of(queue: Any, delivery: Any) -> bytes:
    return b"".join([await queue.chunk(delivery.id, number) for number in range(1, delivery.chunks + 1)])


def bodies(home: Any) -> list[str]:
    return body_file.ids(home.folder / body_file.FOLDER)


def disk_bytes(folder: Path) -> int:
    return sum(path.stat().st_blocks * 512 for path in folder.rglob("*") if path.is_file())


async def begin(queue: Any, chunks: int, client: str = "") -> Any:
    one = queue.begin(client)
    for number in range(chunks):
        await one.write(NOISE[number:] + NOISE[:number])
    return one
