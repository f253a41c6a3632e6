"""GET /v1/events of a real MTA, whose queue process is killed, and which is drained in the end."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

from tests.web.events.follower import PATIENCE_S, Follower


def test_the_queue_is_killed_and_the_stream_goes_on(tmp_path: Path) -> None:
    """Every event comes once, over the same connection. A drain does not wait for that, but ends the stream as an
    answer ends; it goes on behind its last event after a start."""
    from ports import free_port
    from survival.rig import Mta

    port = free_port()
    more = f"[http]\nenabled = true\nport = {port}\n"
    mta = Mta(tmp_path / "queue", free_port(), home=tmp_path / "home", more=more)
    mta.start()
    try:
        token = _token(mta)
        one = Follower(f"http://127.0.0.1:{port}/v1/events", token, type=["suspended", "resumed"])
        assert one.answered() == 200
        for number, order in enumerate(("stop", "lift")):
            mta.ask(order, kind="zone", name="bulk")
            one.until(number + 1)
            if number < 1:
                before = [pid for pid, role in mta.children().items() if role == "queue"]
                assert mta.kill("queue")
                end = time.monotonic() + PATIENCE_S
                while [pid for pid, role in mta.children().items() if role == "queue"] in ([], before):
                    assert time.monotonic() < end
                    time.sleep(0.02)
                _taking(mta)
        assert [kind for kind, _, _ in one.rows] == ["suspended", "resumed"]
        assert not one.over.is_set(), "the connection stayed"
        mta.ask("stop", kind="zone", name="bulk")
        mta.ask("drain", for_s=60)
        assert mta.waited() == 0
        assert one.over.wait(PATIENCE_S)
        assert one.whole, "it was no reset"
        last, seen = one.last, [kind for kind, _, _ in one.rows[2:]]
    finally:
        mta.end()
    (mta.folder / "http.token").unlink()
    mta.config_file.write_text(mta.config_file.read_text().replace("position_s = 0.5", "position_s = 0.6"))
    mta.start()
    try:
        token = _token(mta)
        one = Follower(f"http://127.0.0.1:{port}/v1/events", token, type=["configuration_changed"], since="2020-01-01")
        one.until(1)
        assert one.rows[0][2]["data"] == {"changed": ["queue.position_s"]}
        one.hang_up()
        one = Follower(f"http://127.0.0.1:{port}/v1/events", token, last, type=["suspended", "resumed"])
        mta.ask("lift", kind="zone", name="bulk")
        assert one.until(2 - len(seen))[-1] == "resumed"
        one.hang_up()
    finally:
        mta.end()


def _token(mta: Any) -> str:
    """Once the queue and HTTP are there."""
    _taking(mta)
    end = time.monotonic() + PATIENCE_S
    while not (mta.folder / "http.token").exists():
        assert time.monotonic() < end, mta.log.read_text()
        time.sleep(0.05)
    return str((mta.folder / "http.token").read_text().strip())


def _taking(mta: Any) -> None:
    end = time.monotonic() + PATIENCE_S
    while True:
        try:
            mta.ask("size")
            return
        except Exception:
            assert time.monotonic() < end, mta.log.read_text()
            time.sleep(0.05)
