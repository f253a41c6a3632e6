"""A process that stood still, with the real MTA: what was answered meanwhile counts."""

from __future__ import annotations

import os
import signal
import threading
import time
from pathlib import Path

import httpx
from ports import free_port
from survival.rig import Mta

from zonemta_py.web.dashboard.desk import ANSWER_S

PATIENCE_S = 60


def test_a_page_is_shown_though_its_process_stood_still(tmp_path: Path) -> None:
    """The queue has answered in time, and nobody could read it."""
    port = free_port()
    more = f"[http]\nenabled = true\ndashboard = true\nport = {port}\n"
    mta = Mta(tmp_path / "queue", 9, home=tmp_path, more=more)
    mta.start()
    shown: list[httpx.Response] = []
    try:
        client = _logged_in(mta, port)
        queue, http = (_process(mta, role) for role in ("queue", "http"))
        os.kill(queue, signal.SIGSTOP)
        asking = threading.Thread(target=lambda: shown.append(client.get("/dashboard")))
        asking.start()
        time.sleep(1.0)
        os.kill(http, signal.SIGSTOP)
        os.kill(queue, signal.SIGCONT)
        time.sleep(ANSWER_S)
        os.kill(http, signal.SIGCONT)
        asking.join(PATIENCE_S)
        assert [one.status_code for one in shown] == [200], [one.text for one in shown]
    finally:
        mta.end()


def _process(mta: Mta, role: str) -> int:
    return next(pid for pid, its in mta.children().items() if its == role)


def _logged_in(mta: Mta, port: int) -> httpx.Client:
    client = httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=PATIENCE_S)
    end = time.monotonic() + PATIENCE_S
    while True:
        try:
            key = (mta.folder / "http.token").read_text().strip()
            assert client.post("/dashboard/login", data={"key": key}).status_code == 303
            assert client.get("/dashboard").status_code == 200
            return client
        except (OSError, httpx.TransportError):
            assert time.monotonic() < end
            time.sleep(0.05)
