"""`zonemta plugin run`: plugins in a real server, whose mail is shown, and loaded again when their files change."""

from __future__ import annotations

import re
import signal
import smtplib
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

PATIENCE_S = 60
MARK = "async def sender_headers(delivery, headers):\n    headers.add('X-Mark', 'first')\n"


class Trial:
    """The command, and what it has printed so far."""

    def __init__(self, *words: str | Path) -> None:
        command = [sys.executable, "-m", "zonemta_py", "plugin", "run", *map(str, words)]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        self.said = ""
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.said += line.decode()

    def says(self, pattern: str, times: int = 1) -> str:
        """Waits for it; its last group."""
        end = time.monotonic() + PATIENCE_S
        while len(found := re.findall(pattern, self.said)) < times:
            assert time.monotonic() < end, f"{pattern!r} is not in {self.said}"
            time.sleep(0.05)
        return str(found[-1])


@contextmanager
def trial(*words: str | Path, end: signal.Signals = signal.SIGINT) -> Iterator[Trial]:
    one = Trial(*words)
    try:
        yield one
        one.process.send_signal(end)
        assert one.process.wait(PATIENCE_S) == 0, one.said
    finally:
        one.process.kill()
        one.process.wait()


def test_what_is_sent_is_shown(tmp_path: Path) -> None:
    """By --to at once, and by any client at its port; the files that are changed hold without another start, and those
    that do not load leave what there is."""
    file = tmp_path / "mark.py"
    file.write_text(MARK)
    with trial(file, "--reload", "--to", "anna@one.test") as one:
        port = int(one.says(r"mail goes in at 127.0.0.1 port (\d+)"))
        assert one.says(r"--- to anna@one.test from <(.*)>") == "shop@example.com"
        assert one.says("X-Mark: (.*)") == "first"
        file.write_text(MARK.replace("first", "second"))
        one.says("loaded again")
        assert one.says("X-Mark: (.*)", times=2) == "second"
        file.write_text("async def sender_headrs(delivery, headers): pass\n")
        assert "mark.py:1: there is no hook 'sender_headrs', did you mean 'sender_headers'?" in one.says(
            "not loaded again: (plugin mark, .*)"
        )
        with smtplib.SMTP("127.0.0.1", port, timeout=PATIENCE_S) as client:
            client.sendmail("me@one.test", ["bob@one.test"], b"Subject: x\r\n\r\nhello\r\n")
        assert one.says(r"--- to bob@one.test from <(.*)>") == "me@one.test"
        assert one.says("X-Mark: (.*)", times=3) == "second"
        assert one.said.count("did you mean 'sender_headers'?") == 1


def test_with_the_configurations_options(tmp_path: Path) -> None:
    """Options, instances and zones' names; paths go from the configuration's folder. What is refused is said."""
    (tmp_path / "no.py").write_text(
        "from pydantic import BaseModel\nfrom zonemta_py.plugin import *\n"
        "class Options(BaseModel):\n    text: str\n"
        "def setup(api, options: Options):\n    global _text\n    _text = options.text\n"
        "async def smtp_rcpt_to(address, session):\n    raise Reject(550, _text)\n"
    )
    file = tmp_path / "zonemta.toml"
    file.write_text(
        '[plugins]\nenabled = ["again"]\n[[plugins.instances]]\nname = "again"\nplugin = "./no.py"\n'
        '[plugins.options.again]\ntext = "not today"\n[[zones]]\nname = "own"\n'
    )
    message = tmp_path / "message"
    message.write_text("Subject: x\n\nhello\n")
    with trial("-c", file, "--to", "anna@one.test", "--message", message, end=signal.SIGTERM) as one:
        assert one.says("<anna@one.test> refused: (.*)") == "550 5.7.1 not today"
    assert "Traceback" not in one.said


def test_a_plugin_that_does_not_load(tmp_path: Path) -> None:
    """With --reload it begins when that is corrected."""
    file = tmp_path / "mark.py"
    file.write_text("async def sender_headrs(delivery, headers): pass\n")
    ran = subprocess.run(
        [sys.executable, "-m", "zonemta_py", "plugin", "run", file], capture_output=True, text=True, check=False
    )
    assert (ran.returncode, "did you mean 'sender_headers'?" in ran.stderr) == (78, True)
    with trial(file, "--reload", "--to", "anna@one.test") as one:
        one.says("it is tried again when the plugins' files change")
        file.write_text(MARK)
        assert one.says("X-Mark: (.*)") == "first"
