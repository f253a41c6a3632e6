"""`zonemta sink` as the process it is."""

import json
import os
import pty
import re
import signal
import smtplib
import subprocess
import sys
from pathlib import Path

import pytest

COMMAND = [sys.executable, "-m", "zonemta_py", "sink", "--listen", "127.0.0.1:0"]
WHERE = re.compile(r"sink listens on 127\.0\.0\.1:(\d+)")


def deliver(port: int) -> None:
    with smtplib.SMTP("127.0.0.1", port) as client:
        client.sendmail("a@b.c", ["bob@x.org", "eve@y.org"], b"Subject: x\r\n\r\nhello\r\n")


def test_it_says_where_it_listens_and_what_came(tmp_path: Path) -> None:
    """One line at the start, one at the end, counters in a file, and TERM is a clean end."""
    record = tmp_path / "record.json"
    with subprocess.Popen([*COMMAND, "--record", str(record)], stdout=subprocess.PIPE, text=True) as sink:
        assert sink.stdout is not None
        found = WHERE.match(sink.stdout.readline())
        assert found
        deliver(int(found[1]))
        sink.send_signal(signal.SIGTERM)
        out, _ = sink.communicate(timeout=60)
    assert sink.returncode == 0
    assert out == "1 messages for 2 recipients, 21 bytes\n"
    assert json.loads(record.read_text())["domains"] == {"x.org": 1, "y.org": 1}


def test_on_a_terminal_there_is_a_table() -> None:
    """It counts recipients by domain while mail comes in."""
    ours, theirs = pty.openpty()
    with subprocess.Popen(COMMAND, stdout=theirs, env={**os.environ, "TERM": "xterm", "COLUMNS": "100"}) as sink:
        os.close(theirs)
        seen = until(ours, WHERE)
        found = WHERE.search(seen)
        assert found
        deliver(int(found[1]))
        assert "y.org" in until(ours, re.compile(r"y\.org"))
        sink.send_signal(signal.SIGINT)
        sink.wait(timeout=60)
    os.close(ours)
    assert sink.returncode == 0


def until(terminal: int, pattern: re.Pattern[str]) -> str:
    """What the terminal shows up to the first match; a terminal that closes without one raises OSError."""
    seen = ""
    while not pattern.search(seen):
        seen += os.read(terminal, 4096).decode("utf-8", "replace")
    return seen


def test_it_refuses_above_a_rate_and_says_when(tmp_path: Path) -> None:
    """The first message of a client is taken, the second one refused; both have their line, the record its seconds."""
    events, record = tmp_path / "events", tmp_path / "record"
    more = ["--rate-limit", "0.001", "--rate-code", "451", "--events", str(events), "--record", str(record)]
    with subprocess.Popen([*COMMAND, *more, "--per-second"], stdout=subprocess.PIPE, text=True) as sink:
        assert sink.stdout is not None
        found = WHERE.match(sink.stdout.readline())
        assert found
        deliver(int(found[1]))
        with pytest.raises(smtplib.SMTPSenderRefused, match="451"):
            deliver(int(found[1]))
        sink.send_signal(signal.SIGTERM)
        sink.communicate(timeout=60)
    kinds = [json.loads(line)["kind"] for line in events.read_text().splitlines()]
    assert kinds == ["connect", "message", "close", "connect", "refused", "close"]
    assert [counts for counts in json.loads(record.read_text())["seconds"].values() if counts["clients"]]


def test_a_rate_that_makes_no_sense() -> None:
    """It is one sentence and the exit status of a wrong call."""
    done = subprocess.run([*COMMAND, "--rate-code", "550"], capture_output=True, text=True)
    assert done.returncode == 64
    assert "550 is not a temporary reply" in done.stderr
