"""One more recovery, in a process of its own: opens a stopped queue, makes all of it true, and checks everything.

`python -m survival.recover CONFIG` prints the check's problems as a JSON list; harmless ones do not count.
"""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from pathlib import Path

from zonemta_py.config import load
from zonemta_py.queue.recovery.offline import check
from zonemta_py.queue.recovery.start import open_queue
from zonemta_py.queues import layout


def problems(config_file: Path) -> list[str]:
    """What is wrong with the queue of that configuration, after a recovery."""
    done = subprocess.run(
        [sys.executable, "-m", "survival.recover", config_file],
        stdout=subprocess.PIPE,
        env=os.environ | {"PYTHONPATH": str(Path(__file__).resolve().parents[1])},
        cwd=Path(__file__).resolve().parents[3],
        check=True,
    )
    return list(json.loads(done.stdout))


async def _problems(config_file: Path) -> list[str]:
    whole, found = load(config_file), list[str]()
    for config in layout.each(whole):
        queue = await open_queue(config)
        await queue.position()  # with it, all that recovery found out is in the store
        await queue.core.disk.lines.stable()
        queue.core.disk.store.close()
        found += [str(problem) for problem in (await check(config)).problems if problem.severity != "harmless"]
    return found


if __name__ == "__main__":
    print(json.dumps(asyncio.run(_problems(Path(sys.argv[1])))), flush=True)
    os._exit(0)  # the queue's threads never end by themselves
