"""The `zonemta` command. `run` goes straight to its own module: the server's processes never load typer or rich."""

from __future__ import annotations

import gc
import sys


def main() -> int:
    arguments = sys.argv[1:]
    if arguments[:1] in (["--version"], ["-V"]):
        from zonemta_py.cli.version import program

        print(program())
        return 0
    if arguments[:1] == ["run"]:
        gc.disable()  # a start only imports, so there is nothing to collect; `supervisor` and `children` enable it
        from zonemta_py.cli.run.commands import main as run

        return run(arguments[1:])
    from zonemta_py.cli.app import main as command

    return command(arguments)


if __name__ == "__main__":
    sys.exit(main())
