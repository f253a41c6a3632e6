"""A real MTA: links over TLS, in a process of their own; its queue is killed between a click and the answer."""

from __future__ import annotations

import contextlib
import os
import signal
import ssl
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import httpx
import trustme

from tests.reception.http.links.conftest import ONE_CLICK, SECRET, path

sys.path.insert(0, str(Path(__file__).parents[4] / "scripts"))
PATIENCE_S = 60


def test_the_queue_is_killed_between_a_click_and_its_answer(tmp_path: Path) -> None:
    """Who heard 200 is on the list; and who waited was answered by the next process of the queue, at once."""
    from ports import free_port
    from survival.rig import Mta

    authority, port = trustme.CA(), free_port()
    authority.issue_cert("127.0.0.1").private_key_and_cert_chain_pem.write_to_path(str(tmp_path / "pem"))
    more = f"""
[links]
enabled = true
port = {port}
certificate = "{tmp_path}/pem"
url = "https://127.0.0.1:{port}"
secrets = ["{SECRET}"]
"""
    mta = Mta(tmp_path / "queue", free_port(), home=tmp_path / "home", more=more)
    mta.start()
    context = ssl.create_default_context()
    authority.configure_trust(context)
    try:
        with httpx.Client(base_url=f"https://127.0.0.1:{port}", verify=context, timeout=PATIENCE_S) as client:
            _until(lambda: client.get("/health").text == "zonemta links\n")
            click = client.post(path(recipient="first@example.com"), data=ONE_CLICK)
            assert (click.status_code, click.http_version) == (200, "HTTP/1.1")
            (queue,) = [pid for pid, role in mta.children().items() if role == "queue"]
            os.kill(queue, signal.SIGSTOP)
            codes: dict[str, int] = {}

            def clicks(address: str) -> None:
                codes[address] = client.post(path(recipient=address), data=ONE_CLICK).status_code

            people = [f"r{number}@example.com" for number in range(8)]
            threads = [threading.Thread(target=clicks, args=(one,)) for one in people]
            for thread in threads:
                thread.start()
            assert codes == {}
            os.kill(queue, signal.SIGKILL)
            for thread in threads:
                thread.join(PATIENCE_S)
        assert codes == dict.fromkeys(people, 200)
        for one in ["first@example.com", *people]:
            _until(lambda one=one: mta.ask("suppression", address=one) is not None)  # type: ignore[misc]
            assert mta.ask("suppression", address=one)["scope"] == "campaigns:acme"
    finally:
        mta.end()


def _until(there: Callable[[], bool]) -> None:
    end = time.monotonic() + PATIENCE_S
    while True:
        with contextlib.suppress(httpx.TransportError):
            if there():
                return
        assert time.monotonic() < end
        time.sleep(0.02)
