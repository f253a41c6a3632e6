"""`zonemta accounts`: how much each account may hand in, and what it has used."""

from __future__ import annotations

from zonemta_py.cli.queue.commands import answer
from zonemta_py.cli.terminal.in_force import in_force
from zonemta_py.cli.terminal.options import AsJson, ConfigFile, Folder, tabled
from zonemta_py.cli.terminal.output import moment, print_json, print_table
from zonemta_py.queue import questions


@tabled
def accounts(config: ConfigFile = None, folder: Folder = None, json: AsJson = False) -> None:
    """List the quotas of [[accounts]]: usage, and when each resets."""
    rows = answer(in_force(config, folder), questions.accounts)
    if json:
        print_json(rows)
        return
    cells = [
        (row["account"], row["what"], row["quota"], row["used"], row["left"], moment(row["anew_ms"])) for row in rows
    ]
    footer = "" if rows else "No account has a quota; [[accounts]] in the configuration gives one"
    print_table(f"Quotas: {len(rows)}", ("account", "of", "quota", "used ", "left ", "begins anew"), cells, footer)
