"""Sends a sample newsletter to 1,000 recipients in three domains through a real MTA to a sink, all on loopback.

Starts `zonemta sink` and `zonemta run`, hands in one personal message per recipient, waits until everything has been
tried, prints what happened and what to do next, and stops what it started. One destination turns 5 % away for now, so
that there is something deferred to look at. The queue's folder stays where it is.
"""

from __future__ import annotations

import argparse
import json
import signal
import smtplib
import socket
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from email.message import EmailMessage
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from zonemta_py.wire.blocking_client import QueueGone, ask

DOMAINS = ("example.com", "example.net", "example.org")
SHY = r"rcpt:/@example\.org$/ 450 4.2.1 mailbox busy, 5%"
SESSIONS = 4
PATIENCE_S = 60.0
ZONEMTA = [sys.executable, "-m", "zonemta_py"]
PARAGRAPH = "Every message that was accepted is on stable storage, and every reply that came back is too. " * 4


class Failure(Exception):
    """One sentence: what went wrong."""


def main() -> int:
    options = _options()
    console = Console()
    folder = options.folder or Path(tempfile.mkdtemp(prefix="zonemta-quickstart-"))
    folder.mkdir(parents=True, exist_ok=True)
    mta_port, sink_port = _ports(options.port)
    try:
        with _running(folder, mta_port, sink_port):
            seconds, left = _send(console, folder, mta_port, options.recipients)
        _report(console, folder, options.recipients, seconds, left)
        _next(console, folder, sink_port)
    except Failure as failure:
        print(f"quickstart: {failure}", file=sys.stderr)
        return 1
    return 0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="scripts/quickstart", description="Sends a sample newsletter through the MTA."
    )
    parser.add_argument("--port", type=int, default=2525, help="the MTA's port; the sink gets the next; 0: free ones")
    parser.add_argument("--folder", type=Path, help="where the queue lives; default: a new one under /tmp")
    parser.add_argument("--recipients", type=int, default=1000, help="how many get the newsletter (default 1000)")
    return parser.parse_args()


def _ports(wanted: int) -> tuple[int, int]:
    """Two free ports: those wanted, or where they are taken (or 0 is wanted) others."""
    with socket.socket() as one, socket.socket() as two:
        for probe, port in ((one, wanted), (two, wanted and wanted + 1)):
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                probe.bind(("127.0.0.1", 0))
        return one.getsockname()[1], two.getsockname()[1]


@contextmanager
def _running(folder: Path, mta_port: int, sink_port: int) -> Iterator[None]:
    """A sink and an MTA that listen, and are gone again afterwards. Raises Failure if one does not come up."""
    sink = ["sink", "--quiet", "--listen", f"127.0.0.1:{sink_port}", "--record", str(_record(folder)), "--rule", SHY]
    mta = ["run", "--folder", str(folder), "--listen", f"127.0.0.1:{mta_port}", "--relay", f"127.0.0.1:{sink_port}"]
    with (
        _process(sink, folder / "sink.log", lambda: _listens(sink_port)),
        _process(mta, folder / "zonemta.log", lambda: _listens(mta_port) and _serves(folder)),
    ):
        yield


@contextmanager
def _process(arguments: Sequence[str], log: Path, answers: Callable[[], bool]) -> Iterator[None]:
    with log.open("wb") as output:
        process = subprocess.Popen([*ZONEMTA, *arguments], stdout=output, stderr=output)
    try:
        end = time.monotonic() + PATIENCE_S
        while not answers():
            if process.poll() is not None or time.monotonic() > end:
                raise Failure(
                    f"`zonemta {arguments[0]}` does not answer: {log.read_text().strip() or 'it says nothing'}"
                )
            time.sleep(0.02)
        yield
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait()


def _listens(port: int) -> bool:
    with closing(socket.socket()) as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def _serves(folder: Path) -> bool:
    try:
        return bool(ask(folder, "size"))
    except QueueGone:
        return False


def _send(console: Console, folder: Path, port: int, count: int) -> tuple[float, dict[str, int]]:
    """Hands everything in and waits until all of it was tried. Returns seconds, and recipients deferred by domain."""
    columns = (TextColumn("{task.description:>10}"), BarColumn(40), MofNCompleteColumn(), TimeElapsedColumn())
    start = time.monotonic()
    with Progress(*columns, console=console) as progress, ThreadPoolExecutor(SESSIONS) as pool:
        accepted, tried = progress.add_task("accepted", total=count), progress.add_task("tried", total=count)
        shares = [range(first, count, SESSIONS) for first in range(SESSIONS)]
        sessions = [pool.submit(_session, port, share, lambda: progress.advance(accepted)) for share in shares]
        before, moved = -1.0, start
        while time.monotonic() < moved + PATIENCE_S:  # it may take long, but not stand still
            over = all(session.done() for session in sessions)
            total = _size(folder)["total"]
            waiting = total["queued"] + total["leased"]
            done = max(0.0, progress.tasks[accepted].completed - waiting)
            if done != before:
                before, moved = done, time.monotonic()
            progress.update(tried, completed=done)
            if over and not waiting:
                break
            time.sleep(0.05)
        try:
            for session in sessions:
                session.result(timeout=0)
        except (OSError, smtplib.SMTPException, TimeoutError) as error:
            raise Failure(f"the server did not take everything ({error}); see {folder / 'zonemta.log'}") from None
    deferred = {row["name"]: row["deferred"] for row in _size(folder, "sizes", by="domain")["rows"]}
    return time.monotonic() - start, deferred


def _size(folder: Path, question: str = "size", **about: str) -> Any:
    try:
        return ask(folder, question, **about)
    except QueueGone as error:
        raise Failure(f"{error}; see {folder / 'zonemta.log'}") from None


def _session(port: int, numbers: range, accepted: Callable[[], None]) -> None:
    with smtplib.SMTP("127.0.0.1", port, timeout=PATIENCE_S) as client:
        for number in numbers:
            client.send_message(_newsletter(number))
            accepted()


def _newsletter(number: int) -> EmailMessage:
    message = EmailMessage()
    message["From"] = "The Daily Queue <news@example.com>"
    message["To"] = _address(number)
    message["Subject"] = f"Number {number + 1}: nothing was lost today"
    message.set_content(f"Dear reader {number + 1},\n\n{PARAGRAPH}\n")
    message.add_alternative(f"<h1>Dear reader {number + 1}</h1><p>{PARAGRAPH}</p>", subtype="html")
    return message


def _address(number: int) -> str:
    return f"reader{number + 1}@{DOMAINS[number % len(DOMAINS)]}"


def _report(console: Console, folder: Path, count: int, seconds: float, deferred: dict[str, int]) -> None:
    accepted = Counter(_address(number).partition("@")[2] for number in range(count))
    delivered = json.loads(_record(folder).read_text())["domains"]
    table = Table("destination")
    for name in ("accepted", "delivered", "deferred"):
        table.add_column(name, justify="right")
    for domain in DOMAINS:
        row = (accepted[domain], delivered.get(domain, 0), deferred.get(domain, 0))
        table.add_row(domain, *(f"{number:,}" for number in row))
    console.print(table)
    done, later = sum(delivered.values()), sum(deferred.values())
    console.print(f"{count:,} accepted, {done:,} delivered, {later:,} deferred in {seconds:.1f} seconds.")
    if done + later != count:
        raise Failure(f"{count - done - later} recipients are neither delivered nor deferred; see {folder}")


def _next(console: Console, folder: Path, sink_port: int) -> None:
    console.print(
        f"\nThe deferred ones wait in {folder} and are tried again in about 5 minutes. What next?\n"
        f"  .venv/bin/zonemta journal dump --folder {folder} | less     what happened, record by record\n"
        f"  .venv/bin/zonemta sink --listen 127.0.0.1:{sink_port} &\n"
        f"  .venv/bin/zonemta run --folder {folder} --relay 127.0.0.1:{sink_port} &    go on where it stopped\n"
        f"  .venv/bin/zonemta queue list --folder {folder}     what is waiting\n"
        "  config/newsletter.toml, config/relay.toml, config/routing.toml     your own configuration\n",
        soft_wrap=True,
    )


def _record(folder: Path) -> Path:
    return folder / "sink.json"


if __name__ == "__main__":
    sys.exit(main())
