"""`zonemta top` on a real queue: by textual's pilot, and as a process at a terminal."""

import asyncio
import os
import pty
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Callable
from fcntl import ioctl
from functools import partial
from pathlib import Path
from typing import Any

from textual.widgets import DataTable, Footer, Static

from zonemta_py.cli.queue.commands import answer
from zonemta_py.cli.terminal.errors import Exit
from zonemta_py.cli.watch.screen import Top
from zonemta_py.config import Config
from zonemta_py.mail.envelope import Envelope, Recipient
from zonemta_py.queue.queue import LocalQueue

BODY = b"Subject: Hello\r\n\r\nHi\r\n"
ZONES = [{"name": "default", "default": True}, {"name": "bulk", "recipient_domains": ["z.org"]}]


async def put(queue: LocalQueue) -> None:
    for address in ("a@x.org", "b@x.org", "c@[red]y.org", "a@z.org"):
        await queue.accept(Envelope("ann@example.com", [Recipient(address)], len(BODY)), BODY)


def cells(app: Top) -> list[list[str]]:
    table = app.query_one(DataTable)
    return [[str(cell) for cell in table.get_row_at(number)] for number in range(table.row_count)]


def shown(app: Top, *names: str) -> list[list[str]]:
    """The cells of these columns; "" for one that is left out."""
    there = [str(column.label).rstrip("▾") for column in app.query_one(DataTable).ordered_columns]
    return [[row[there.index(name)] if name in there else "" for name in names] for row in cells(app)]


def said(app: Top, where: str) -> str:
    return str(app.query_one(where, Static).content)


async def until(true: Callable[[], bool]) -> None:
    end = time.monotonic() + 60
    while not true():
        assert time.monotonic() < end
        await asyncio.sleep(0.02)


async def test_all_of_it(served: Callable[..., Any], tmp_path: Path) -> None:
    """Zones and destinations with their counts; sorted; suspended after y alone, and resumed; what is away is said."""
    queue = await asyncio.to_thread(served, zones=ZONES)
    await asyncio.to_thread(queue.do, put)
    config = Config.model_validate({"server": {"folder": tmp_path}})
    app = Top(partial(answer, config), 3600)
    async with app.run_test(size=(80, 24)) as pilot:
        await until(lambda: len(cells(app)) == 2)
        assert shown(app, "zone", "out/s", "queued") == [["default", "0.0", "3"], ["bulk", "0.0", "1"]]
        assert "4 queued, 0 leased" in said(app, "#rates")
        await pilot.press("d")
        await until(lambda: len(cells(app)) == 3)
        assert shown(app, "domain", "queued") == [["x.org", "2"], ["[red]y.org", "1"], ["z.org", "1"]]
        await pilot.press("s", "n")
        await until(lambda: said(app, "#said") == "not done: suspend domain x.org")
        assert await asyncio.to_thread(answer, config, "standing") == []
        await pilot.press("s")
        assert said(app, "#said") == "suspend domain x.org? y does it, any other key does not"
        await pilot.press("y")
        await until(lambda: said(app, "#said") == "done: suspend domain x.org")
        assert shown(app, "domain", "suspended")[0] == ["x.org", "in zonemta top"]
        (row,) = await asyncio.to_thread(answer, config, "standing")
        assert (row["kind"], row["name"], row["cause"]) == ("domain", "x.org", "in zonemta top")
        await pilot.press("p")
        await until(lambda: cells(app)[:1] != [] and cells(app)[0][:2] == ["domain", "x.org"])
        await pilot.press("r", "y")
        await until(lambda: said(app, "#said") == "done: resume domain x.org")
        assert cells(app) == []
        await pilot.press("z", "o", "o", "o", "o", "o")
        await until(lambda: [row[0] for row in cells(app)] == ["bulk", "default"])
        await asyncio.to_thread(queue.close)
        await app.look()
        assert "no queue answers at" in said(app, "#said")
        assert len(cells(app)) == 2, "what was known last"
        queue = await asyncio.to_thread(served, zones=ZONES)
        await app.look()
        assert (said(app, "#said"), len(cells(app))) == ("", 2)
        await pilot.press("q")
    assert app.return_code == 0


async def test_how_much_goes_where(served: Callable[..., Any], tmp_path: Path) -> None:
    """By domain: delivered, deferred and bounced a second, also where nothing waits any more. Where a terminal is
    narrow, the least important columns are left out, and come back with the room."""
    queue = await asyncio.to_thread(served)

    async def deliver(local: LocalQueue) -> None:
        for number in range(2000):
            local.core.counters.destinations.add(
                [f"u{number}@busy-mail.example"], "bounced" if number < 500 else "delivered"
            )

    await asyncio.to_thread(queue.do, put)
    await asyncio.to_thread(queue.do, deliver)
    app = Top(partial(answer, Config.model_validate({"server": {"folder": tmp_path}})), 3600)
    async with app.run_test(size=(120, 24)) as pilot:
        await pilot.press("d")
        await until(lambda: len(cells(app)) == 4)
        names = ("domain", "out/s", "deferred/s", "bounced/s", "queued", "held")
        name, out, deferred, bounced, *waiting = shown(app, *names)[-1]
        assert (name, deferred, waiting) == ("busy-mail.example", "0.0", ["0", "0"])
        assert float(out.replace(",", "")) > float(bounced.replace(",", "")) > 0
        for width, left_out in ((80, {"held", "bounced/s"}), (60, {"held", "bounced/s", "deferred/s"}), (120, set())):
            await pilot.resize_terminal(width, 24)
            await pilot.pause()
            assert {name for name in names if shown(app, name)[0] == [""]} == left_out
            assert app.query_one(DataTable).virtual_size.width <= width
            assert app.query_one(Footer).virtual_size.width <= width


def test_at_a_terminal(served: Callable[..., Any], tmp_path: Path) -> None:
    """Begun, seen and ended by q, as a person does; elsewhere one sentence says what to do instead."""
    served().do(put)
    command = [sys.executable, "-m", "zonemta_py", "top", "--folder", str(tmp_path)]
    piped = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (piped.returncode, "`zonemta status`" in piped.stderr) == (Exit.USAGE, True)
    ours, theirs = pty.openpty()
    ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
    environment = os.environ | {"TERM": "xterm-256color"}
    with subprocess.Popen(command, stdin=theirs, stdout=theirs, stderr=theirs, env=environment) as process:
        os.close(theirs)
        text, typed = b"", False
        while True:
            try:
                block = os.read(ours, 65_536)
            except OSError:
                break
            if not block:
                break
            text += block
            if not typed and b"default" in text and b"4 queued" in text:
                os.write(ours, b"q")
                typed = True
        assert process.wait(60) == 0
    os.close(ours)
    assert typed


def test_without_textual(tmp_path: Path) -> None:
    """One sentence with the remedy."""
    script = (
        "import sys; sys.modules['textual'] = None; sys.stdout.isatty = lambda: True\n"
        "sys.argv = ['zonemta', 'top']\nfrom zonemta_py.__main__ import main\nsys.exit(main())"
    )
    ran = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert ran.returncode == Exit.UNAVAILABLE
    assert ran.stderr == "zonemta: zonemta top needs textual; `pip install 'zonemta-py[terminal]'` installs it\n"
