"""The `zonemta` command. `run` goes straight to its own module: the server's processes never load typer or rich.

Called by the name of another program, as by a link /usr/sbin/sendmail, it is that program.
"""

from __future__ import annotations

import gc
import io
import os
import sys

_CALLED = {"sendmail": ["sendmail"], "newaliases": ["sendmail", "-bi"]} | {
    name: [name] for name in ("mailq", "qshape", "postqueue", "postsuper")
}


def in_order() -> None:
    """What goes to standard output and to standard error comes in this order where both are one file or pipe."""
    try:
        together = os.path.sameopenfile(sys.stdout.fileno(), sys.stderr.fileno())
        if together and isinstance(sys.stdout, io.TextIOWrapper):
            sys.stdout.reconfigure(line_buffering=True)
    except (OSError, ValueError, AttributeError):  # one of them is closed, or none of the system's
        return


def main() -> int:
    arguments = [*_CALLED.get(os.path.basename(sys.argv[0]), ()), *sys.argv[1:]]
    if arguments[:1] in (["--version"], ["-V"]):
        from zonemta_py.cli.version import program

        print(program())
        return 0
    if arguments[:1] == ["run"]:
        gc.disable()  # a start only imports, so there is nothing to collect; `supervisor` and `children` enable it
        from zonemta_py.cli.run.commands import main as run

        return run(arguments[1:])
    if arguments[:1] == ["sendmail"] and arguments[1:] != ["--help"]:
        from zonemta_py.cli.send.sendmail import main as sendmail

        return sendmail(arguments[1:])
    gc.disable()  # until the command begins (`app`)
    from zonemta_py.cli.app import main as command

    in_order()
    return command(arguments)


if __name__ == "__main__":
    sys.exit(main())
