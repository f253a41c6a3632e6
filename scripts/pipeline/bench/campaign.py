"""A campaign from CSV to the sink, beside the same mail handed in one by one over SMTP.

    .venv/bin/python scripts/pipeline/bench/campaign.py [--recipients 20000] [--folder /var/tmp]

20 KB of HTML, 6 fields, three providers. Prints recipients/s from the command's start to the sink's last message, and
the bytes that the MTA's processes wrote to disk for each recipient (/proc/PID/io).
"""

from __future__ import annotations

import argparse
import asyncio
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

TOP = Path(__file__).resolve().parents[3]
sys.path[:0] = [str(TOP / "scripts"), str(TOP / "scripts" / "trials"), str(TOP / "scripts" / "pipeline")]

from kills_inject import ZONEMTA, Node  # noqa: E402

FIELDS = ("first_name", "last_name", "city", "month", "offer", "token")
DOMAINS = ("gmail.com", "outlook.com", "yahoo.com")
SESSIONS = 20
IDLE_S = 30
_MARK = "mark@gmail.com"


def write_input(folder: Path, recipients: int) -> None:
    """list.csv, and a template: 20 KB of HTML as newsletters have it, tables with styles and words that differ."""
    with (folder / "list.csv").open("w") as file:
        file.write(",".join(("email", *FIELDS)) + "\n")
        for n in range(recipients):
            file.write(",".join((_address(n), *_values(n).values())) + "\n")
    chance = random.Random(1)
    words = ["".join(chance.choices("aeiounrstlmdkbg", k=chance.randint(2, 9))) for _ in range(1_500)]
    weights = [1 / (rank + 3) for rank in range(len(words))]

    def sentence() -> str:
        return " ".join(chance.choices(words, weights, k=14)).capitalize() + "."

    blocks = []
    for number in range(22):
        link = f"https://news.sender.net/{chance.randrange(16**10):010x}"
        color = f"#{chance.randrange(16**6):06x}"
        style = f"padding:{number + 4}px 24px;font:16px/24px Georgia,serif;color:{color}"
        told = " ".join(sentence() for _ in range(5))
        button = f'<a href="{link}" style="color:{color}">{sentence()}</a>'
        blocks.append(f'<tr><td style="{style}"><h2>{sentence()}</h2><p>{told}</p>{button}</td></tr>\n')
    body = (
        "<html><body><h1>Hello {{ first_name }} {{ last_name }}</h1><p>{{ city }} in {{ month }}: {{ offer }}</p>\n"
        f'<table>{"".join(blocks)}</table><a href="https://news.sender.net/u/{{{{ token }}}}">Leave</a></body></html>\n'
    )
    (folder / "letter.html").write_text(body)
    (folder / "letter.toml").write_text(
        'subject = "{{ first_name }}, your {{ month }}"\nfrom = "news@sender.net"\nhtml = "letter.html"\n'
        'text = "letter.txt"\n'
    )
    (folder / "letter.txt").write_text("Hello {{ first_name }} {{ last_name }}: {{ offer }}, see the other part.\n")


def _address(n: int) -> str:
    return f"user{n}@{DOMAINS[n % 3]}"


def _values(n: int) -> dict[str, str]:
    rows = (f"First{n % 997}", f"Last{n % 1999}", f"City{n % 301}", "May", f"seats {n % 13}", f"t{n:08x}")
    return dict(zip(FIELDS, rows, strict=True))


def campaign(folder: Path, node: Node) -> None:
    """The command, whole: Spark's start, plan, injection."""
    files = [str(folder / "list.csv"), "--template", str(folder / "letter.toml")]
    more = ["--plans", str(folder), "--config", str(node.config), "--bounds", "none", "--yes"]
    command = [*ZONEMTA, "campaign", "send", *files, "--name", "bench", *more]
    subprocess.run(command, check=True, cwd=TOP, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)


def one_by_one(folder: Path, node: Node, recipients: int) -> None:
    """The same messages over SMTP, SESSIONS at once, each connection used for all of its share."""
    asyncio.run(_submit(node.smtp, _message(folder), recipients))


def _message(folder: Path) -> bytes:
    """One rendered message with a mark for the address and for each field; the client puts the recipient's there."""
    from zonemta_py.merge.compile import compile
    from zonemta_py.merge.load import load

    values = {name: f"Mark{name.replace('_', '')}" for name in FIELDS}
    date = "Thu, 01 Jan 2026 00:00:00 +0000"
    return compile(load(folder / "letter.toml")).render(values, _MARK, "bench", date)


async def _submit(port: int, message: bytes, recipients: int) -> None:
    numbers = iter(range(recipients))
    marks = [(f"Mark{name.replace('_', '')}".encode(), name) for name in FIELDS]

    async def session() -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        await reader.readline()
        await _say(reader, writer, b"EHLO bench\r\n")
        for n in numbers:
            address, own = _address(n).encode(), message
            values = _values(n)
            for mark, name in marks:
                own = own.replace(mark, values[name].encode())
            await _say(reader, writer, b"MAIL FROM:<news@sender.net>\r\n")
            await _say(reader, writer, b"RCPT TO:<" + address + b">\r\n")
            await _say(reader, writer, b"DATA\r\n")
            await _say(reader, writer, own.replace(_MARK.encode(), address) + b".\r\n")
        writer.close()

    await asyncio.gather(*(session() for _ in range(SESSIONS)))


async def _say(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, text: bytes) -> None:
    writer.write(text)
    while (line := await reader.readline())[3:4] == b"-":
        pass
    if line[:1] not in b"23":
        raise RuntimeError(f"the MTA says {line.decode().strip()}")


def measured(folder: Path, recipients: int, send: Callable[[Node], None]) -> tuple[float, float]:
    """Recipients/s, and bytes written to disk for each."""
    with Node(folder, workers=0) as node:
        before, begin = node.written_bytes(), time.monotonic()
        send(node)
        last, changed = 0, time.monotonic()
        with node.sink_log.open("rb") as log:
            while last < recipients and time.monotonic() - changed < IDLE_S:
                time.sleep(0.2)
                if new := log.read().count(b"\n"):
                    last, changed = last + new, time.monotonic()
        took = changed - begin
        print(f"  {last:,} of {recipients:,} came in {took:.1f} s", flush=True)
        return last / took, (node.written_bytes() - before) / max(1, last)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--recipients", type=int, default=20_000)
    parser.add_argument("--folder", type=Path, default=Path("/var/tmp"))
    given = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="bench-campaign-", dir=given.folder))
    try:
        write_input(folder, given.recipients)
        print(f"{len(_message(folder)):,} bytes a message")
        fast = measured(folder / "a", given.recipients, lambda node: campaign(folder, node))
        print(f"campaign: {fast[0]:,.0f} recipients/s, {fast[1]:,.0f} bytes written each")
        slow = measured(folder / "b", given.recipients, lambda node: one_by_one(folder, node, given.recipients))
        print(f"one by one over SMTP: {slow[0]:,.0f} recipients/s, {slow[1]:,.0f} bytes written each")
        print(f"{fast[0] / slow[0]:.1f} times as fast, {fast[1] / slow[1]:.1%} of the bytes")
    finally:
        shutil.rmtree(folder)


if __name__ == "__main__":
    main()
