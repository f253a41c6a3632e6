"""What the files of the queues say of an MTA that does not run: each is opened for itself, recovered, and read.

`python -m survival.at_rest CONFIG` prints one JSON object for each queue. recipients: [id, address, state, zone];
suppressed: [address, scope, kind]; stops: [kind, name]; tasks: [done, undone] by id; campaigns: figures by name;
doubts: [id, address].
"""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

from zonemta_py.config import load
from zonemta_py.disk import keys
from zonemta_py.queue.core.state import FAMILY
from zonemta_py.queue.suppression.entry import Suppressed
from zonemta_py.queues import layout, moving

STOPS = ("zone", "destination", "domain", "tenant", "campaign")


def said(config_file: Path) -> list[dict[str, Any]]:
    """Of each queue. No process of the MTA may run."""
    done = subprocess.run(
        [sys.executable, "-m", "survival.at_rest", config_file],
        stdout=subprocess.PIPE, env=os.environ | {"PYTHONPATH": str(Path(__file__).resolve().parents[1])},
        cwd=Path(__file__).resolve().parents[3], check=True,
    )  # fmt: skip
    return [json.loads(line) for line in done.stdout.splitlines()]


async def _read(config_file: Path) -> None:
    for config in layout.each(load(config_file)):
        queue = await moving.resting(config)
        queue.tasks.engine.rest()
        await queue.position()
        await queue.core.disk.lines.stable()
        core, store = queue.core, queue.core.disk.store
        rows, families = list[list[str]](), {name.encode(): str(state.value) for name, state in FAMILY.items()}
        for family, state in families.items():
            for key in store.keys(family + b" ", keys.end(family + b" ")):
                place = keys.place(key)
                rows.append([place.id, place.recipient, state, place.zone])
        listed = [
            Suppressed.kept(*row)
            for family in (keys.SUPPRESSED, keys.SUPPRESSED_IN)
            for row in store.scan(family, keys.end(family))
        ]
        doubts = (key.decode().split(" ", 2)[1:] for key in store.keys(keys.IN_DOUBTS, keys.end(keys.IN_DOUBTS)))
        found = {
            "recipients": sorted(rows),
            "suppressed": sorted([one.address, one.scope, one.kind] for one in listed),
            "stops": sorted([row[0], row[1]] for row in core.schedule.policy.state()["stops"] if row[0] in STOPS),
            "tasks": {str(task.number): [task.done, task.undone] for task in core.tasks.by_number.values()},
            "campaigns": {name: asdict(core.campaigns.tally(name)) for name in core.campaigns.by_name},
            "doubts": sorted(doubts),
        }
        print(json.dumps(found))
        moving.abandon(queue)


if __name__ == "__main__":
    asyncio.run(_read(Path(sys.argv[1])))
    sys.stdout.flush()
    os._exit(0)  # the queues' threads never end by themselves
