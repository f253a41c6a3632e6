"""A cursor that is missing, damaged or ahead of the journal skips nothing in silence."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from zonemta_py.config import Config
from zonemta_py.events import cursor
from zonemta_py.mail.envelope import Envelope, Recipient
from zonemta_py.queue.recovery.start import open_queue

POSITION = 1_000


@pytest.fixture
def place(tmp_path: Path) -> Path:
    folder = tmp_path / cursor.FOLDER / "hook"
    folder.mkdir(parents=True)
    return folder


def left(place: Path, written: Any, state: dict[str, Any] | None) -> None:
    """What an earlier process has left: a cursor (None: none, str: damaged), a state."""
    if isinstance(written, str):
        (place / cursor.NAME).write_text(written)
    elif written is not None:
        cursor.write(place, written)
    if state is not None:
        (place / cursor.STATE).write_text(json.dumps(state))


@pytest.mark.parametrize("written", [None, "{", POSITION + 500])
def test_the_state_says_where_it_was(place: Path, written: Any, caplog: pytest.LogCaptureFixture) -> None:
    """It is a second old at most: nothing is missed."""
    left(place, written, {"cursor": 700, "last_success_ms": 5})
    assert cursor.found(place.parents[1], place, POSITION) == (700, 0)
    assert "event sink 'hook': its cursor is" in caplog.text
    assert "continues after record 700" in caplog.text


def test_another_journal_is_said_and_counted(place: Path, caplog: pytest.LogCaptureFixture) -> None:
    """State and cursor are ahead: what was between is nowhere, and the figure is in `missed`."""
    left(place, POSITION + 500, {"cursor": POSITION + 500})
    assert cursor.found(place.parents[1], place, POSITION) == (POSITION, 500)
    (record,) = (one for one in caplog.records if "up to 500 records are missed" in one.getMessage())
    assert record.levelname == "ERROR"


def test_a_new_sink_is_new(place: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Nothing is said of it; and one that has a state is none, whatever became of its cursor."""
    assert cursor.found(place.parents[1], place, POSITION) == (None, 0)
    left(place, None, {"cursor": 7})
    cursor.begin(place.parents[1], ["hook", "other"])
    assert not (place / cursor.NAME).exists()
    assert cursor.read(place.parent / "other") == 0
    assert caplog.text == ""


async def test_a_state_without_a_cursor_says_when(tmp_path: Path, place: Path) -> None:
    """An earlier version's: what came after its last success is given, and perhaps some of it again."""
    queue = await open_queue(Config.model_validate({"server": {"folder": tmp_path}, "queue": {"reserve_bytes": 0}}))
    try:
        for number in range(5):
            await queue.accept(Envelope("a@b.test", [Recipient(f"r{number}@x.test")]), b"Subject: x\r\n\r\n")
        await queue.core.disk.journal.stable()
        position = 5
        left(place, None, {"last_success_ms": 1})
        assert cursor.found(tmp_path, place, position) == (0, 0)
    finally:
        queue.close()
