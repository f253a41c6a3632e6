"""`send` for `spark-submit`: a plan that `zonemta campaign send --plan-only` wrote goes to the nodes from a cluster.

The plan's folder must be one that driver and workers all see. The key is read from ZONEMTA_API_KEY or a file. Needs
neither the template's tools nor the MTA's configuration: all of that is in the plan.
"""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from zonemta_py.logs.causes import cause

if TYPE_CHECKING:
    Commands = argparse._SubParsersAction[argparse.ArgumentParser]


def add(commands: Commands) -> None:
    command = commands.add_parser("send", help="send a campaign's plan to its nodes")
    command.add_argument("plan", type=Path, metavar="PLAN", help="the plan, a folder NAME.plan")
    command.add_argument("--nodes", required=True, metavar="URL,…")
    command.add_argument(
        "--key-file", type=Path, metavar="FILE", help="file with the API key; default: the key in ZONEMTA_API_KEY"
    )
    command.add_argument("--day", type=int, default=0, help="last day of the plan to send now")
    command.add_argument("--patience", type=float, default=600, metavar="S")


def run(given: argparse.Namespace) -> int:
    """Exit status: 0, or 2 with one sentence on stderr."""
    from zonemta_py.pipeline.nodes.client import NodeAccess, NodeGone, NodeRefused
    from zonemta_py.pipeline.nodes.nodes import OtherNodes, bind, stored
    from zonemta_py.pipeline.prepare.plan import rows
    from zonemta_py.pipeline.send.campaign import CampaignStopped, send
    from zonemta_py.pipeline.send.errors import InjectionFailed
    from zonemta_py.pipeline.spark.session import Unavailable, session

    try:
        key = given.key_file.read_text("utf-8") if given.key_file else os.environ.get("ZONEMTA_API_KEY", "")
        nodes = tuple(url.strip() for url in given.nodes.split(",") if url.strip())
        campaign = stored(given.plan)
        target = NodeAccess(nodes, key.strip(), given.patience)
        bind(given.plan, target, campaign.name)
        outcome = send(rows(session(), given.plan), campaign, target, given.day)
    except (CampaignStopped, InjectionFailed, NodeGone, NodeRefused, OtherNodes) as error:
        print(f"zonemta: {error}", file=sys.stderr)
        return 2
    except (Unavailable, ValueError, OSError) as error:
        print(f"zonemta: {cause(error)}", file=sys.stderr)
        return 2
    counts = f"{outcome.accepted:,} accepted, {outcome.suppressed:,} suppressed, {outcome.repeated:,} repeated"
    print(f"{campaign.name}: {counts}")
    return 0
