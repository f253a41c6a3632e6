"""What a message costs in each process, counted (`scripts/bench --count`), against the numbers in counts.json.

They may fall; where one rises, the commit that writes down the new number says why:

    scripts/bench --count --json tests/cost/counts.json
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from benchmark.counted import FIGURES, SHAPES, Counters, Counts, built, count

WRITTEN: dict[str, Counts] = json.loads(Path(__file__).with_name("counts.json").read_text())["this"]
LEEWAY = {"queue": 0.015}
"""Where threads decide what goes together."""
FALLEN = 0.9


@pytest.mark.skipif(shutil.which("cc") is None, reason="NOT TESTED: there is no C compiler to count with")
def test_a_message_costs_no_more(tmp_path: Path) -> None:
    """Calls, allocations, bytes, transfers, syncs: of text over one connection and over many, to 50, and of 100 KB."""
    found, more, less = count(tmp_path), list[str](), list[str]()
    assert {name: set(by) for name, by in found.items()} == {name: set(by) for name, by in WRITTEN.items()}
    for name in SHAPES:
        for role, figures in found[name].items():
            for figure in FIGURES:
                now, written = figures[figure], WRITTEN[name][role][figure]
                line = f"{name} {role}: {now:,} {figure.replace('_', ' ')} a message, {written:,} are written down"
                if now > written * (1 + LEEWAY.get(role, 0.002)) + 1:
                    more.append(line)
                if now < written * FALLEN - 2:
                    less.append(line)
    assert more == [], "a message costs more than before"
    assert less == [], "a message costs less than before: scripts/bench --count --json tests/cost/counts.json"


KNOWN = """
import ctypes, os, socket, sys
ctypes.PyDLL(sys.argv[1]).count_python()
def called(): pass
for _ in range(1000): called()
mine, other = socket.socketpair()
mine.sendall(b"x" * 100)
with open(sys.argv[2], "wb", buffering=0) as file:
    file.write(b"y" * 50)
    for _ in range(3): os.fdatasync(file)
if os.fork() == 0:
    for _ in range(200): called()
    os._exit(0)
os.wait()
"""


@pytest.mark.skipif(shutil.which("cc") is None, reason="NOT TESTED: there is no C compiler to count with")
def test_what_is_counted_is_what_was_done(tmp_path: Path) -> None:
    """Calls by the parent and by its child, bytes to a socket and to a file, syncs."""
    library, counters = built(tmp_path), Counters(tmp_path / "counters")
    environment = os.environ | {"LD_PRELOAD": str(library), "ZONEMTA_COUNTERS": str(counters.path)}
    subprocess.run([sys.executable, "-c", KNOWN, library, tmp_path / "file"], env=environment, check=True)
    parent, child = (dict(zip(FIGURES, row, strict=True)) for row in counters.read().values())
    assert 1000 <= parent["calls"] < 1100
    assert 200 <= child["calls"] < 220
    assert (parent["socket_bytes"], parent["file_bytes"], parent["syncs"], child["syncs"]) == (100, 50, 3, 0)
    assert parent["allocations"] > 0
