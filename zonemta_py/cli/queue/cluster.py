"""`zonemta cluster`: the nodes of the cluster, which queues they serve, and how large the logs of these are."""

from __future__ import annotations

from typing import Annotated

import typer

from zonemta_py.cli.queue.commands import answer
from zonemta_py.cli.terminal.options import AsJson, ConfigFile, Folder, in_force, tabled
from zonemta_py.cli.terminal.output import Telling, print_json, print_table
from zonemta_py.metrics.quantities import size
from zonemta_py.queue import questions

app = typer.Typer()


@app.callback(invoke_without_command=True)
@tabled
def cluster(context: typer.Context, config: ConfigFile = None, folder: Folder = None, json: AsJson = False) -> None:
    """Show the cluster: its nodes, who leads, which queues each serves, and the size of their logs in NATS."""
    if context.invoked_subcommand is not None:
        context.obj = config, folder
        return None
    found = answer(in_force(config, folder), questions.cluster)
    if json:
        return print_json(found)
    print_table(
        f"Cluster {found['cluster']}: {len(found['nodes'])} nodes",
        ("node", "state", "seen", "queued ", "deferred ", "held ", "hostname"),
        [_node(row) for row in found["nodes"]],
        "" if found["leader"] else "No node leads now: orders, and questions to all nodes, wait",
    )
    rows = [(row["queue"], row["node"], row["epoch"], _log(row)) for row in found["queues"]]
    footer = "" if found["connected"] else f"Node {found['node']} is cut off from NATS: this is what it knew before"
    print_table(f"Queues: {len(rows)}", ("queue ", "node", "epoch ", "log"), rows, footer)
    return None


@app.command("move")
def move(
    context: typer.Context,
    queue: Annotated[int, typer.Argument(metavar="QUEUE", help="Number of a queue, as `zonemta cluster` shows it.")],
    node: Annotated[str, typer.Argument(metavar="NODE", help="The node that is to serve it.")],
    config: ConfigFile = None,
    folder: Folder = None,
    json: AsJson = False,
) -> None:
    """Move a queue with all its mail to another node, such as one that was away and is back."""
    of_group = context.obj or (None, None)
    answer(in_force(config or of_group[0], folder or of_group[1]), questions.cluster_move, number=queue, node=node)
    with Telling(json) as tell:
        tell(f"queue {queue} goes to node {node}, which serves it in a moment", queue=queue, node=node)


def _node(row: questions.ClusterNode) -> tuple[object, ...]:
    state = "leads" if row["leads"] else "alive"
    sizes = row["sizes"]
    return (
        row["node"], state if row["alive"] else "dead", f"{row['seen_s']:.0f} s ago", sizes.get("queued", 0),
        sizes.get("deferred", 0), sizes.get("held", 0), row["hostname"],
    )  # fmt: skip


def _log(row: questions.ClusterQueue) -> str:
    log = row["log"]
    return f"{size(log['bytes'])}, {log['last'] - log['first'] + 1:,} blocks" if log else ""
