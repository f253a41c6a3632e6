"""Which ends of processes are failures: the supervisor's own table of processes, in a supervisor of its own."""

import json
import os
import subprocess
import sys
from pathlib import Path

TOP = Path(__file__).resolve().parents[2]
PROGRAM = """
import json, os, signal, sys, time
from zonemta_py.metrics.processes import PROCESSES
from zonemta_py.processes.running import Processes

def ends(status):
    def work():
        if PROCESSES._of("sender-1")[2] <= 1:  # the first one
            os._exit(status)
        time.sleep(60)
    return work

def wait(gone):
    while processes.pid("sender-1") == gone:
        processes.reap()
        time.sleep(0.01)

processes, found = Processes(), {}
for name, status, let_go in (("told", 0, True), ("alone", 0, False), ("broken", 1, True)):
    PROCESSES.__init__()
    if let_go:
        processes.let_go(lambda role: role.startswith("sender"))
    processes.start("sender-1", ends(status))
    first = processes.pid("sender-1")
    wait(first)
    held = "sender-1" not in processes._due
    processes.let_none_go()
    while not processes.pid("sender-1"):
        processes.start_due()
        time.sleep(0.01)
    row = next(one for one in PROCESSES.rows() if one.name == "sender-1")
    found[name] = [held, row.failures, row.failed > 0, row.starts]
    second = processes.pid("sender-1")
    os.kill(second, signal.SIGKILL)
    processes._roles.clear()
    wait(second)
print(json.dumps(found))
"""


def test_what_the_queue_lets_go_is_no_failure() -> None:
    """A sender that ends well because a reload left it nothing: not counted, and not started again before the reload
    has said by which configuration. Any other end is one, with its moment, and another follows at once."""
    ran = subprocess.run(
        [sys.executable, "-c", PROGRAM], env=os.environ | {"PYTHONPATH": str(TOP)}, capture_output=True, text=True,
        timeout=60,
    )  # fmt: skip
    assert ran.returncode == 0, ran.stderr
    assert json.loads(ran.stdout) == {
        "told": [True, 0, False, 2],
        "alone": [False, 1, True, 2],
        "broken": [False, 1, True, 2],
    }
    assert ran.stderr.count("restarting it") == 2
