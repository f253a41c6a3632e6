"""Bounds that the processes before and after a reload share, with the real MTA: requests in progress, streams of
events, and refusals that come later the more of them there were."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import time

from ports import free_port
from survival.rig import Mta

PATIENCE_S = 60
_HTTP = "[http]\nenabled = true\nport = {}\nrequests_per_key = 2\nstreams = 4\n"
_STREAM = "GET /v1/events HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {}\r\n\r\n"
_UPLOAD = (
    "POST /v1/inject HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {}\r\n"
    "content-type: application/json\r\ncontent-length: 99999\r\n\r\n" + 60_000 * " "
)
"""Fast enough for two minutes."""
_QUESTION = "GET /v1/status HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {}\r\n\r\n"


def test_streams_and_requests_of_both_processes_count(mta: Mta) -> None:
    """Before and after a reload; what ends, or is killed, makes room."""
    port = free_port()
    mta.config_file.write_text(mta.config_file.read_text() + _HTTP.format(port))
    mta.start()
    with contextlib.ExitStack() as held:
        streams = [_asked(held, mta, port, _STREAM) for _ in range(2)]
        assert [_status(one) for one in streams] == [200, 200]
        assert _status(_asked(held, mta, port, _STREAM)) == 429
        uploads = [_asked(held, mta, port, _UPLOAD) for _ in range(2)]
        _until(lambda: _refused(mta, port))
        _reload(mta)
        assert _status(_asked(held, mta, port, _STREAM)) == 429
        assert _refused(mta, port)
        uploads.pop().close()
        streams.pop().close()
        _until(lambda: not _refused(mta, port))
        _until(lambda: _status(one := _asked(held, mta, port, _STREAM)) == 200 or one.close())
        assert _status(_asked(held, mta, port, _STREAM)) == 429
        for pid in [pid for pid, role in mta.children().items() if role == "http"]:
            os.kill(pid, signal.SIGKILL)
        held.pop_all().close()
        _until(lambda: _status(_asked(held, mta, port, _STREAM)) == 200)
        assert [_status(_asked(held, mta, port, _STREAM)) for _ in range(2)] == [200, 429]


def test_refusals_are_remembered_over_receivers_and_reloads(mta: Mta) -> None:
    """Which of the receivers it is that a stranger meets makes no difference, and neither does a reload."""
    text = mta.config_file.read_text()
    mta.config_file.write_text(text.replace('name = "smtp"', 'name = "smtp"\nrelay_networks = []'))
    mta.start()
    _until(lambda: list(mta.children().values()).count("receiver") == 2)
    for _ in range(5):
        _relay(mta.port)
    _reload(mta)
    for _ in range(2):
        assert _relay(mta.port) > 1.5, "the sixth refusal comes after two seconds"


def _relay(port: int) -> float:
    """Tries to relay in a connection of its own; seconds until it was refused."""
    with socket.create_connection(("127.0.0.1", port), timeout=PATIENCE_S) as one, one.makefile("rb") as said:
        said.readline()
        one.sendall(b"HELO x\r\nMAIL FROM:<a@x.test>\r\n")
        assert [said.readline()[:3] for _ in range(2)] == [b"250", b"250"]
        began = time.monotonic()
        one.sendall(b"RCPT TO:<b@y.test>\r\n")
        assert said.readline().startswith(b"550 5.7.1")
        return time.monotonic() - began


def _asked(held: contextlib.ExitStack, mta: Mta, port: int, request: str) -> socket.socket:
    """A connection that has sent it."""
    end = time.monotonic() + PATIENCE_S
    while True:
        with contextlib.suppress(OSError):
            key = (mta.folder / "http.token").read_text().strip()
            one = held.enter_context(socket.create_connection(("127.0.0.1", port), timeout=PATIENCE_S))
            one.sendall(request.format(key).encode())
            return one
        assert time.monotonic() < end
        time.sleep(0.05)


def _status(one: socket.socket) -> int:
    """0: closed without an answer."""
    try:
        said = one.recv(4096)
    except ConnectionError:
        said = b""
    return int(said.split()[1]) if said else 0


def _refused(mta: Mta, port: int) -> bool:
    """Whether one more request is one too many."""
    with contextlib.ExitStack() as once:
        return _status(_asked(once, mta, port, _QUESTION)) == 429


def _reload(mta: Mta) -> None:
    """Other processes accept when it returns: each of the roles is there twice, or was."""
    mta.config_file.write_text(mta.config_file.read_text() + "[learning]\ninitial = 7\n")
    assert mta.ask("reload")["refused"] == []


def _until(done: object) -> None:
    end = time.monotonic() + PATIENCE_S
    while not done():  # type: ignore[operator]
        assert time.monotonic() < end
        time.sleep(0.05)
