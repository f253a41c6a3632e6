"""The command tree of `zonemta`, and how its mistakes are reported: one sentence, an exit code (see `errors.Exit`)."""

from __future__ import annotations

from typing import Any

import typer

from zonemta_py.cli import config, fsck, journal, queue, send, sink
from zonemta_py.cli.errors import Exit, Stop, guarded

app = typer.Typer(
    name="zonemta",
    help="An outbound MTA that never forgets and never stalls.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)


@app.command("run", add_help_option=False, context_settings={"allow_extra_args": True, "ignore_unknown_options": True})
def _run(context: typer.Context) -> None:
    """Run the MTA in the foreground (see `zonemta run --help`)."""
    from zonemta_py.cli.run import run

    run(context.args)


app.command("send")(send.send)
app.command("sink")(sink.sink)
app.add_typer(queue.app, name="queue")
app.add_typer(journal.app, name="journal")
app.command("fsck")(fsck.fsck)
app.add_typer(config.app, name="config")


def main(arguments: list[str]) -> int:
    """Runs one command; returns its exit code."""
    return guarded(lambda: _dispatch(arguments))


def _dispatch(arguments: list[str]) -> None:
    try:
        code: Any = app(arguments, standalone_mode=False)
    except typer.Abort:
        raise Stop(Exit.INTERRUPTED) from None
    except Exception as error:
        # typer's own usage errors, wherever it keeps their class: they know how to say themselves.
        raise _usage(error) from None
    if code:
        raise Stop(Exit(code))


def _usage(error: Exception) -> Exception:
    say = getattr(error, "format_message", None)
    if say is None:
        return error
    context = getattr(error, "ctx", None)
    command = context.command_path if context else "zonemta"
    sentence = str(say()).rstrip(".")
    return Stop(Exit.USAGE, f"{sentence}; see `{command} --help`" if sentence else "")  # "": help has been printed
