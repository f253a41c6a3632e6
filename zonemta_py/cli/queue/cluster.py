"""`zonemta cluster`: the nodes of the cluster, which queues they serve, and how large the logs of these are."""

from __future__ import annotations

import asyncio
import shutil
import time
from json import dumps
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from zonemta_py.cli.queue.backup import alone, copied, gather
from zonemta_py.cli.queue.commands import answer
from zonemta_py.cli.terminal import when
from zonemta_py.cli.terminal.errors import CommandError, Exit, from_os
from zonemta_py.cli.terminal.options import AsJson, ConfigFile, Folder, in_force, tabled
from zonemta_py.cli.terminal.output import Telling, bar, counted, print_json, print_table
from zonemta_py.config import Config
from zonemta_py.metrics.quantities import size
from zonemta_py.queue import questions
from zonemta_py.queues import layout

if TYPE_CHECKING:
    from zonemta_py.cluster.verify import Verified

app = typer.Typer()
IDLE_MAX, IDLE_S = 3, 0.5
"""So often, and so long after each time, mail is waited for that cannot move just now."""
GONE_S = 3600.0
"""A node that has been dead for longer, and has no queue, is not shown."""
_COMPARED = ("keys", "records", "bodies")


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
    owners = {row["node"] for row in found["queues"]}
    gone = [row for row in found["nodes"] if not row["alive"] and row["seen_s"] > GONE_S and row["node"] not in owners]
    shown = [row for row in found["nodes"] if row not in gone]
    said = [] if found["leader"] else ["No node leads now: orders, and questions to all nodes, wait"]
    said += [f"{counted(len(gone), 'dead node')} without a queue left out; --json has all"] if gone else []
    print_table(
        f"Cluster {found['cluster']}: {len(shown)} nodes",
        ("node", "state", "seen", "queued ", "deferred ", "held ", "alone ", "configuration", "hostname"),
        [_node(row) for row in shown],
        "; ".join(said),
    )
    away = [(zone, row["node"], count) for row in found["nodes"] for zone, count in row["away"].items()]
    if away:
        print_table(
            "Mail of zones that its node cannot send", ("zone", "on node", "recipients "), away,
            "It goes to a node that can, as soon as one is alive; `zonemta explain ZONE` says what it waits for",
        )  # fmt: skip
    rows = [(row["queue"], row["node"], row["epoch"], _log(row)) for row in found["queues"]]
    footer = "" if found["connected"] else f"Node {found['node']} is cut off from NATS: this is what it knew before"
    print_table(f"Queues: {len(rows)}", ("queue ", "node", "epoch ", "log"), rows, footer)
    return None


@app.command("move")
def move(
    context: typer.Context,
    queue: Annotated[
        int | None, typer.Argument(metavar="QUEUE", help="Number of a queue, as `zonemta cluster` shows it.")
    ] = None,
    node: Annotated[str, typer.Argument(metavar="NODE", help="The node that is to serve it.")] = "",
    zone: Annotated[str, typer.Option("--zone", help="Instead of a queue: the waiting mail of this zone.")] = "",
    to: Annotated[str, typer.Option("--to", help="The node that gets it; its configuration must have the zone.")] = "",
    giver: Annotated[str, typer.Option("--from", help="Only what waits on this node; default: on all others.")] = "",
    config: ConfigFile = None,
    folder: Folder = None,
    json: AsJson = False,
) -> None:
    """Move a queue with all its mail to another node, such as one that was away and is back; or, with --zone, the
    messages of a zone, each exactly once, while all goes on. What is being delivered stays until it has its result."""
    of_group = context.obj or (None, None)
    chosen = in_force(config or of_group[0], folder or of_group[1])
    if zone or to or giver:
        if not (zone and to) or queue is not None:
            raise CommandError(Exit.USAGE, "give QUEUE and NODE, or --zone ZONE --to NODE, and --from NODE too")
        return _move_zone(chosen, zone, to, giver, json)
    if queue is None or not node:
        raise CommandError(Exit.USAGE, "give QUEUE and NODE, or --zone ZONE --to NODE")
    answer(chosen, questions.cluster_move, number=queue, node=node)
    with Telling(json) as tell:
        tell(f"queue {queue} goes to node {node}, which serves it in a moment", queue=queue, node=node)
    return None


def _move_zone(chosen: Config, zone: str, to: str, giver: str, json: bool) -> None:
    """Until nothing moves any more."""
    messages = recipients = idle = 0
    with Telling(json) as tell, bar(f"zone {zone} to node {to}") as shown:
        while True:
            step = answer(chosen, questions.cluster_move_zone, zone=zone, to=to, giver=giver)
            messages, recipients = messages + step["messages"], recipients + step["recipients"]
            shown(recipients, recipients + step["left"])
            idle = 0 if step["messages"] else idle + 1
            if not step["left"] or idle == IDLE_MAX:
                break
            if idle:
                time.sleep(IDLE_S)
        left = f"; {step['left']:,} stay for now" if step["left"] else ""
        why = "".join(f"; {one}" for one in dict.fromkeys(step["why"]))
        tell(
            f"{recipients:,} recipients of {messages:,} messages of zone {zone} are on node {to} now{left}{why}",
            zone=zone, to=to, messages=messages, recipients=recipients, left=step["left"], why=step["why"],
        )  # fmt: skip


@app.command("balance")
def balance(
    context: typer.Context,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only show what would move.")] = False,
    config: ConfigFile = None,
    folder: Folder = None,
    json: AsJson = False,
) -> None:
    """Move messages so that nodes hold about as many waiting recipients of each zone that several of them can send.
    Each message moves exactly once, while all goes on."""
    of_group = context.obj or (None, None)
    chosen = in_force(config or of_group[0], folder or of_group[1])
    found = answer(chosen, questions.cluster_balance, dry_run=True)
    steps, moved, idle = found["steps"], 0, 0
    total = sum(step["recipients"] for step in steps)
    with bar("balancing") as shown:
        while not dry_run and found["steps"] and idle < IDLE_MAX:
            found = answer(chosen, questions.cluster_balance)
            moved += found["recipients"]
            idle = 0 if found["recipients"] else idle + 1
            shown(moved, max(total, moved))
            if idle:
                time.sleep(IDLE_S)
            found = answer(chosen, questions.cluster_balance, dry_run=True)
    if json:
        return print_json({"steps": steps, "recipients": moved, "left": found["steps"]})
    rows = [(step["zone"], step["giver"], step["taker"], step["recipients"]) for step in steps]
    said = "" if dry_run or not steps else f"{moved:,} recipients have moved"
    print_table("What would move" if dry_run else "To move", ("zone", "from", "to", "recipients "), rows, said)
    return None


@app.command("config")
@tabled
def versions(
    context: typer.Context,
    history: Annotated[bool, typer.Option("--history", help="List the versions, and what each has changed.")] = False,
    diff: Annotated[
        str, typer.Option("--diff", metavar="NODE", help="Show where that node's configuration is behind.")
    ] = "",
    config: ConfigFile = None,
    folder: Folder = None,
    json: AsJson = False,
) -> None:
    """Show what the configurations of all nodes must have alike, in its newest version."""
    of_group = context.obj or (None, None)
    found = answer(in_force(config or of_group[0], folder or of_group[1]), questions.cluster_versions)
    if json:
        return print_json(found)
    if diff:
        node = next((row for row in found["nodes"] if row["node"] == diff), None)
        if node is None:
            raise CommandError(Exit.USAGE, f"there is no node {diff!r}; `zonemta cluster` shows them")
        rows = [(key, _value(own), _value(theirs)) for key, own, theirs in node["differs"]]
        print_table(f"Node {diff}", ("key", "there", "in the cluster's newest version"), rows, _footer(bool(rows)))
        return None
    newest, now_ms = found["versions"][-1:], time.time_ns() // 1_000_000
    if history:
        listed = [
            (
                row["number"],
                when.since(row["ms"], now_ms),
                row["node"],
                row["by"],
                ", ".join(key for key, _, _ in row["changes"]),
            )
            for row in reversed(found["versions"])
        ]
        print_table("Versions", ("number ", "time", "node", "by", "changed"), listed)
        return None
    values = [(key, _value(value)) for row in newest for key, value in sorted(row["values"].items())]
    title = f"Version {newest[0]['number']}, of node {newest[0]['node']}" if newest else "No version"
    print_table(title, ("key", "value"), values)
    return None


def _footer(behind: bool) -> str:
    said = "Of each limit the stricter holds there; correct its file, and `zonemta reload` it"
    return said if behind else "It has the newest version"


def _value(value: object) -> str:
    return value if isinstance(value, str) else dumps(value, ensure_ascii=False)


@app.command("verify")
def verify(
    context: typer.Context, config: ConfigFile = None, folder: Folder = None, json: AsJson = False
) -> None:  # fmt: skip
    """Compare what this node's queues have on its disk with what their logs in NATS have. Mail keeps flowing. Exit
    status 1: they differ."""
    of_group = context.obj or (None, None)
    chosen = in_force(config or of_group[0], folder or of_group[1])
    if not chosen.cluster.enabled:
        raise CommandError(Exit.CONFIG, "this MTA is in no cluster (cluster.name), so its queues have no logs")
    from zonemta_py.cluster.nats import NatsError

    with alone(chosen.folder):
        made = copied(chosen)
        try:
            gather(chosen.folder, made)
            found = asyncio.run(_verified(chosen, made))
        except NatsError as error:
            raise CommandError(Exit.TEMPORARY, str(error)) from None
        except OSError as error:
            raise from_os(error) from None
        finally:
            shutil.rmtree(made, ignore_errors=True)
    if json:
        print_json({str(number): one._asdict() for number, one in found.items()})
    else:
        rows = [(number, *(one.counts.get(what, 0) for what in _COMPARED), len(one.differences))
                for number, one in found.items()]  # fmt: skip
        print_table("Compared", ("queue ", *(f"{what} " for what in _COMPARED), "differences "), rows)
        lines = [(number, line) for number, one in found.items() for line in one.differences]
        if lines:
            print_table("Differences", ("queue ", "what"), lines)
    if any(one.differences for one in found.values()):
        raise CommandError(Exit.PROBLEMS)


async def _verified(config: Config, made: Path) -> dict[int, Verified]:
    """By queue. made: copies of all queues' folders. Raises NatsError, OSError."""
    from zonemta_py.cluster.log_stream import QueueLogStream
    from zonemta_py.cluster.nats import Nats
    from zonemta_py.cluster.verify import verify as compared

    nats = await Nats.connect(config.cluster, f"{config.node} verifies")
    try:
        return {
            number: await compared(
                QueueLogStream(nats, config.cluster.name, number), number, layout.folder_of(made, number)
            )
            for number in layout.numbers(made)
        }
    finally:
        await nats.close()


def _node(row: questions.ClusterNode) -> tuple[object, ...]:
    state = "leads" if row["leads"] else "alive"
    sizes = row["sizes"]
    return (
        row["node"], state if row["alive"] else "dead", f"{row['seen_s']:.0f} s ago", sizes.get("queued", 0),
        sizes.get("deferred", 0), sizes.get("held", 0), row["alone"]["messages"], _version(row["agreed"]),
        row["hostname"],
    )  # fmt: skip


def _version(row: questions.NodeAgreed) -> str:
    if row["differs"]:
        more = f" and {len(row['differs']) - 1} more" if len(row["differs"]) > 1 else ""
        return f"behind: {row['differs'][0][0]}{more}"
    return f"version {row['version']}" if row["version"] else ""


def _log(row: questions.ClusterQueue) -> str:
    log = row["log"]
    return f"{size(log['bytes'])}, {log['last'] - log['first'] + 1:,} blocks" if log else ""
