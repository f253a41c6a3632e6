"""What happens between the evening and the next morning: reservations end, the queue dies, copies are made, mail that
nobody fetches is returned."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from pathlib import Path

from tests.pull.conftest import Server


def command(*words: str) -> str:
    run = subprocess.run(
        [sys.executable, "-m", "zonemta_py", *words], capture_output=True, text=True, timeout=120, check=False
    )
    assert run.returncode == 0, run.stderr
    return run.stdout


def test_whoever_comes_after_its_reservation_ended_changes_nothing(server: Server) -> None:
    """Another has it by then: neither an extension nor an acknowledgement of the first one counts."""
    server.say(b"push slow\nA")
    first = server.say(b"reserve slow 0.3\n").split(b" ")[0]
    second = server.say(b"reserve slow 60 wait=60\n").split(b" ")[0]
    assert first != second
    for late in (b"extend %s 60\n", b"ack %s\n", b"nack %s\n"):
        assert "is not reserved any more: its time was up, or it is settled" in server.refused(late % first)
    assert server.say(b"size slow\n") == b"0 ready 1 leased 0 delayed 0 held\n"
    assert server.say(b"extend " + second + b" 90\n") == b""
    assert server.say(b"ack " + second + b"\n") == b""
    assert "is not reserved any more" in server.refused(b"ack " + second + b"\n")
    assert server.say(b"size slow\n") == b"0 ready 0 leased 0 delayed 0 held\n"


def test_waiting_ends_in_time_though_the_queue_was_killed(server: Server) -> None:
    """With nothing, and a clean end: there was no message."""
    said = list[bytes]()
    waiting = threading.Thread(target=lambda: said.append(server.say(b"pop nobody wait=3\n")))
    began = time.monotonic()
    waiting.start()
    time.sleep(0.3)
    assert server.mta.kill("queue")
    waiting.join(60)
    assert said == [b""]
    assert time.monotonic() - began >= 3


def test_a_backup_of_running_queues_is_adopted(tmp_path: Path) -> None:
    """A copy made while messages come and go has all that was pushed before it; it gives nothing away until then."""
    old, copy = Server(tmp_path / "old"), tmp_path / "copy"
    done = threading.Event()

    def busy() -> None:
        while not done.is_set():
            old.say(b"push busy\nx")
            old.say(b"pop busy\n")

    working = threading.Thread(target=busy)
    try:
        for number in range(20):
            old.say(b"push jobs\n%d" % number)
        old.say(b"push large\n" + bytes(3_000_000))
        old.say(b"reserve jobs 600\n")
        working.start()
        command("backup", str(copy), "--folder", str(old.mta.folder))
    finally:
        done.set()
        working.join()
        old.end()
    new = Server(copy)
    try:
        assert "this is a copy of a queue, from which nothing is taken before `zonemta queue adopt`" in new.refused(
            b"pop jobs\n"
        )
        command("queue", "adopt", "--folder", str(copy))
        assert [new.say(b"pop jobs wait=60\n") for _ in range(20)] == [b"%d" % number for number in range(20)]
        assert new.say(b"pop large\n") == bytes(3_000_000)
    finally:
        new.end()
