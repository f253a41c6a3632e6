"""`zonemta ring show|check`: sizes, the newest page, damage; while the ring is in use too."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from zonemta_py.cli.terminal.errors import Exit
from zonemta_py.disk.ring.ring import Ring

PAGE = 4096


@pytest.fixture
def ring(tmp_path: Path) -> Path:
    """Of 8 pages, 11 of which were written with two records each: it has looped."""
    made = Ring.create(tmp_path / "events.ring", 8)
    for number in range(22):
        made.append(b"%04d" % number)
        if number % 2:
            made.flush()
    made.abandon()
    return tmp_path / "events.ring"


def test_what_is_in_it(zonemta: Callable[..., Any], ring: Path) -> None:
    used = Ring.open(ring)
    shown = zonemta("ring", "show", str(ring))
    assert shown.code == 0
    for words in (
        "pages 8",
        "pages written 8",
        "records in them 16",
        "newest page 2",
        "direction falling",
        "looped yes",
    ):
        assert words in " ".join(shown.out.replace("│", " ").split()), words
    found = json.loads(zonemta("ring", "show", str(ring), "--json").out)
    assert (found["partly filled pages"], found["pages to be read"], found["clean end"]) == (8, 8, False)
    used.close()
    assert json.loads(zonemta("ring", "show", str(ring), "--json").out)["clean end"] is True


def test_pages_are_checked(zonemta: Callable[..., Any], ring: Path) -> None:
    whole = zonemta("ring", "check", str(ring))
    assert (whole.code, whole.out) == (0, "8 pages with 16 records are whole, 0 damaged\n")
    data = bytearray(ring.read_bytes())
    data[PAGE + 5 * PAGE + 20] ^= 1
    ring.write_bytes(data)
    ran = zonemta("ring", "check", str(ring))
    assert (ran.code, ran.out) == (Exit.PROBLEMS, "7 pages with 14 records are whole, 1 damaged\n")
    assert ran.err == f"zonemta: {ring}: page 5 is damaged; its records are lost\n"
    found = json.loads(zonemta("ring", "check", str(ring), "--json").out)
    assert found == {"pages": 7, "records": 14, "damaged": [5]}


def test_what_a_person_can_get_wrong(zonemta: Callable[..., Any], tmp_path: Path) -> None:
    (tmp_path / "text").write_text("hello")
    for name, code, words in (
        ("text", Exit.DATA, "is not a ring, or its metadata is damaged"),
        ("none", Exit.NO_INPUT, "cannot be read (No such file or directory); name a ring file"),
        (".", Exit.NO_INPUT, "cannot be read (Is a directory); name a ring file"),
    ):
        ran = zonemta("ring", "show", str(tmp_path / name))
        assert (ran.code, ran.out) == (code, "")
        assert words in ran.err
        assert len(ran.err.splitlines()) == 1
