"""The group `zonemta events`."""

from __future__ import annotations

import typer

from zonemta_py.cli.events.sinks import dead, forget_sink, replay, sinks
from zonemta_py.cli.events.tail import tail

app = typer.Typer(help="Show, replay and manage events: see docs/EVENTS.md.", no_args_is_help=True)
app.command("tail")(tail)
app.command("sinks")(sinks)
app.command("dead")(dead)
app.command("replay")(replay)
app.command("forget-sink")(forget_sink)


@app.command()
def schema() -> None:
    """Print the JSON Schema of all events."""
    from zonemta_py.cli.terminal.output import print_json
    from zonemta_py.events.schema import json_schema

    print_json(json_schema())
