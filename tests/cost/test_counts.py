"""What a message costs in each process, counted (`scripts/bench --count`), against the numbers in counts.json.

They may fall; where one rises, the commit that writes down the new number says why:

    scripts/bench --count --json tests/cost/counts.json
"""

from __future__ import annotations

import json
import os
import platform
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from benchmark.counted import FIGURES, SHAPES, Counters, Counts, built, count

DOCUMENT = json.loads(Path(__file__).with_name("counts.json").read_text())
WRITTEN: dict[str, Counts] = DOCUMENT["this"]
LEEWAY = {"queue": 0.08, "receiver": 0.01, "sender": 0.01}
"""In the queue threads decide what goes together; elsewhere the machine decides in how many pieces a message comes."""
OTHER_PYTHON = 0.05
"""More where they were counted with another Python, whose library calls other functions."""
TRANSFERS, ROUND = 0.3, 100
"""How many system calls move the same bytes is for the machine to say; where figures are large one more is none."""
FALLEN = 0.85


@pytest.mark.skipif(shutil.which("cc") is None, reason="NOT TESTED: there is no C compiler to count with")
def test_a_message_costs_no_more(tmp_path: Path) -> None:
    """Calls, allocations, bytes, transfers, syncs: of text over one connection and over many, to 50, and of 100 KB."""
    found = count(tmp_path / "0")
    for again in ("1", "2", "3"):  # on a busy machine the least takes longer to come
        if not _more(found):
            break
        found = _least(found, count(tmp_path / again))
    assert {name: set(by) for name, by in found.items()} == {name: set(by) for name, by in WRITTEN.items()}
    assert _more(found) == [], "a message costs more than before"
    less = [line for now, written, _, line in _lines(found) if now < written * FALLEN - 2]
    assert less == [], "a message costs less than before: scripts/bench --count --json tests/cost/counts.json"


def _lines(found: dict[str, Counts]) -> Iterator[tuple[int, int, float, str]]:
    """Of each figure: what it is, what is written down, the most that it may be, and the first two in words."""
    other = OTHER_PYTHON * (platform.python_version() != DOCUMENT["python"])
    for name in SHAPES:
        for role, figures in found[name].items():
            for figure in FIGURES:
                now, written = figures[figure], WRITTEN[name][role][figure]
                words = f"{name} {role}: {now:,} {figure.replace('_', ' ')} a message, {written:,} are written down"
                leeway = (TRANSFERS if figure == "transfers" else LEEWAY[role]) + other
                yield now, written, written * (1 + leeway) + (1 if written > ROUND else 0), words


def _more(found: dict[str, Counts]) -> list[str]:
    return [line for now, _, most, line in _lines(found) if now > most]


def _least(one: dict[str, Counts], other: dict[str, Counts]) -> dict[str, Counts]:
    return {
        name: {
            role: {figure: min(n, other[name][role][figure]) for figure, n in figures.items()}
            for role, figures in by.items()
        }
        for name, by in one.items()
    }


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
