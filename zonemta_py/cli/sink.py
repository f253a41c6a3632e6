"""`zonemta sink`: the built-in destination for tests and trials, with a live table of what came."""

from __future__ import annotations

import errno
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from zonemta_py.cli.terminal.errors import CommandError, Exit

if TYPE_CHECKING:
    from rich.table import Table

    from zonemta_py.sink import Sink, SinkError

_DOMAINS_SHOWN = 20


def sink(
    listen: Annotated[list[str] | None, typer.Option(metavar="ADDRESS:PORT", help="Repeatable.")] = None,
    rule: Annotated[
        list[str] | None, typer.Option(help="Reply by pattern and share: 'rcpt:/@slow/ 450 later, 30%'.")
    ] = None,
    latency: Annotated[float, typer.Option(metavar="SECONDS", help="Delay before every reply.")] = 0.0,
    dot_latency: Annotated[
        float, typer.Option(metavar="SECONDS", help="Delay before the reply to the final dot.")
    ] = 0.0,
    jitter: Annotated[float, typer.Option(metavar="SHARE", help="Vary each delay by this share, 0 to 1.")] = 0.0,
    rate_limit: Annotated[
        float, typer.Option(metavar="N", help="Refuse messages above this rate per second from one client address.")
    ] = 0.0,
    rate_burst: Annotated[float, typer.Option(metavar="N", help="Burst of that rate; 0: one second's worth.")] = 0.0,
    rate_code: Annotated[
        int, typer.Option(metavar="CODE", help="Reply code of the refusal; 421 closes the connection.")
    ] = 421,
    control: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help='JSON with rates, {"rate_limit": 20}; read again when it changes.'),
    ] = None,
    seed: Annotated[int | None, typer.Option(help="Random seed, for repeatable shares and jitter.")] = None,
    starttls: Annotated[
        bool, typer.Option("--starttls", help="Offer STARTTLS, with a self-signed certificate.")
    ] = False,
    record: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write the counters to this file as JSON.")
    ] = None,
    log: Annotated[Path | None, typer.Option(metavar="FILE", help="Write one line of JSON per message.")] = None,
    events: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Write one line of JSON per connection, message and rate refusal."),
    ] = None,
    per_second: Annotated[bool, typer.Option("--per-second", help="Add counts per second to the record.")] = False,
    checksum: Annotated[bool, typer.Option("--checksum", help="Add each body's SHA-256 to the log.")] = False,
    store: Annotated[Path | None, typer.Option(metavar="DIR", help="Keep every message as a file.")] = None,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="No live table.")] = False,
) -> None:
    """Accept mail and discard it: a fast test destination with configurable latency and replies. Ctrl-C stops it."""
    from zonemta_py.sink import SinkError, SinkOptions, run_sink

    defaults = SinkOptions()
    options = SinkOptions(
        listen=tuple(listen or defaults.listen), rules=tuple(rule or ()),
        capabilities=(*defaults.capabilities, *(("STARTTLS",) if starttls else ())),
        latency_s=latency, dot_latency_s=dot_latency, jitter=jitter, seed=seed,
        rate_limit=rate_limit, rate_burst=rate_burst, rate_code=rate_code, control=control,
        record=record, log=log, events=events, per_second=per_second, checksum=checksum, store=store,
    )  # fmt: skip
    try:
        counters = run_sink(options, _started if quiet or not sys.stdout.isatty() else _live)
    except SinkError as error:
        raise CommandError(_code(error), str(error)) from None
    print(f"{counters.messages:,} messages for {counters.recipients:,} recipients, {counters.bytes:,} bytes")


def _code(error: SinkError) -> Exit:
    """A port in use is not a usage error."""
    cause = error.__context__
    taken = isinstance(cause, OSError) and cause.errno == errno.EADDRINUSE
    return Exit.UNAVAILABLE if taken else Exit.USAGE


def _started(sink: Sink) -> None:
    where = ", ".join(
        f"{address}:{port}" for (address, _), port in zip(sink.options.addresses(), sink.ports, strict=True)
    )
    print(f"sink listens on {where}", flush=True)


def _live(sink: Sink) -> None:
    """Shows the table until the process ends; rich repaints it from a thread of its own."""
    import atexit

    from rich.live import Live

    _started(sink)
    live = Live(get_renderable=lambda: _table(sink), refresh_per_second=4)
    live.start()
    atexit.register(live.stop)


def _table(sink: Sink) -> Table:
    from rich.table import Table

    counters = sink.counters
    table = Table(
        title=f"{counters.messages:,} messages over {counters.connections:,} connections, {counters.open} open"
    )
    table.add_column("domain")
    table.add_column("recipients", justify="right")
    for domain, count in sorted(dict(counters.domains).items(), key=lambda item: -item[1])[:_DOMAINS_SHOWN]:
        table.add_row(domain, f"{count:,}")
    table.add_row("all", f"{counters.recipients:,}")
    return table
