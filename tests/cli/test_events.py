"""`zonemta events`: a real queue's events, as lines and as JSON, while it runs, while it does not, and across both."""

import json
import os
import pty
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from zonemta_py.cli.terminal.errors import Exit
from zonemta_py.disk import identity
from zonemta_py.events.schema import json_schema
from zonemta_py.mail.envelope import Envelope, Recipient
from zonemta_py.mail.reply import Reply
from zonemta_py.queue.api import BOUNCED, Outcome, Result
from zonemta_py.queue.queue import LocalQueue

SUBJECT = "Hello \x1b[2J you"
PATIENCE_S = 60


@pytest.fixture
def named(served: Callable[..., Any], tmp_path: Path) -> Callable[[], Any]:
    """named() → a queue with a name, as `zonemta run` gives it."""

    def make() -> Any:
        running = served()
        assert identity.copied(tmp_path, "") == ""
        return running

    return make


@pytest.fixture
def running(named: Callable[[], Any]) -> Any:
    return named()


async def one(queue: LocalQueue, address: str) -> str:
    envelope = Envelope("", [Recipient(address)], 4, headers={"subject": SUBJECT}, campaign="spring")
    return (await queue.accept(envelope, b"Hi\r\n")).id


async def bounced(queue: LocalQueue) -> None:
    (delivery,) = await queue.lease(1)
    reply = Reply(550, "5.1.1", "there is no such user here, and there has never been one")
    await queue.settle(Result(delivery.lease, [Outcome(BOUNCED, reply, "rcpt", [0])], remote="mx.test[127.0.0.9]:25"))
    await queue.core.disk.lines.stable()


def mail(served: Any) -> str:
    id: str = served.do(lambda queue: one(queue, "bob@x.test"))
    served.do(bounced)
    return id


def documents(out: str) -> list[dict[str, Any]]:
    return [json.loads(text) for text in out.splitlines()]


def test_what_happened_while_it_runs_and_when_it_has_ended(
    running: Any, zonemta: Callable[..., Any], tmp_path: Path
) -> None:
    id = mail(running)
    running.do(lambda queue: queue.core.disk.journal.stable())
    for runs in (True, False):
        if not runs:
            running.close()
        ran = zonemta("events", "tail", "--no-follow", "--folder", tmp_path, "--message", id, "--json")
        assert (ran.code, ran.err) == (Exit.OK, "")
        rows = documents(ran.out)
        types = [row["type"].removeprefix("zonemta.") for row in rows]
        assert types == ["accepted", "queued", "attempted", "bounced", "finished"]
        assert {row["subject"] for row in rows} == {id}
        assert rows[0]["data"]["subject"] == SUBJECT


def test_lines_for_people(running: Any, zonemta: Callable[..., Any], tmp_path: Path) -> None:
    """In a pipe an event is one line, whole; nothing in it can steer a terminal."""
    id = mail(running)
    ran = zonemta("events", "tail", "--no-follow", "--folder", tmp_path, "--campaign", "spring", "--since", "1h")
    accepted, queued, attempted, bounced = ran.out.splitlines()[:4]  # then the person is suppressed
    assert f" accepted   {id} recipients=1 size=4 subject=" in accepted
    assert "'Hello \\x1b[2J you'" in accepted
    assert "\x1b" not in ran.out
    assert f" queued     {id} bob@x.test zone=default" in queued
    assert "550 5.1.1 there is no such user here, and there has never been one" in bounced
    assert bounced.endswith("by mx.test[127.0.0.9]:25")
    assert attempted
    for options in (["--type", "deferred"], ["--domain", "y.test"], ["--recipient", "x@x.test"], ["--tenant", "t"]):
        assert zonemta("events", "tail", "--no-follow", "--folder", tmp_path, *options).out == ""
    for count in (1, 2, 3):
        ran = zonemta("events", "tail", "--no-follow", "--folder", tmp_path, "--zone", "default", "--limit", count)
        assert [row.split()[2] for row in ran.out.splitlines()] == ["queued", "attempted", "bounced"][-count:]


def test_mistakes(zonemta: Callable[..., Any], tmp_path: Path, running: Any) -> None:
    ran = zonemta("events", "tail", "--folder", tmp_path, "--type", "exploded")
    assert (ran.code, ran.err[:50]) == (Exit.USAGE, "zonemta: there is no type of event 'exploded'; the")
    ran = zonemta("events", "tail", "--folder", tmp_path / "nowhere")
    assert (ran.code, "contains no journal" in ran.err) == (Exit.NO_INPUT, True)
    assert zonemta("tail").err.startswith("zonemta: there is no `zonemta tail`; `zonemta events tail` shows")


def test_the_schema(zonemta: Callable[..., Any]) -> None:
    assert json.loads(zonemta("events", "schema").out) == json_schema()


class Following:
    """`zonemta events tail` as a process of its own."""

    def __init__(self, folder: Path, *options: str, stdout: int = subprocess.PIPE) -> None:
        arguments = [sys.executable, "-m", "zonemta_py", "events", "tail", "--folder", str(folder), *options]
        self.process = subprocess.Popen(
            arguments, stdout=stdout, stderr=subprocess.PIPE, text=True,
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),  # a shell's & ignores it
        )  # fmt: skip
        self.found: list[str] = []
        if stdout == subprocess.PIPE:
            threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        self.found += iter(self.process.stdout.readline, "")

    def until(self, text: str) -> None:
        end = time.monotonic() + PATIENCE_S
        while not any(text in line for line in list(self.found)):
            assert time.monotonic() < end, f"{text} has not come: {self.found}"
            time.sleep(0.02)

    def interrupt(self) -> tuple[int, str]:
        self.process.send_signal(signal.SIGINT)
        assert self.process.stderr is not None
        with self.process.stderr as stderr:
            return self.process.wait(PATIENCE_S), stderr.read()


def test_it_follows_across_an_end_and_a_start(named: Callable[[], Any], tmp_path: Path) -> None:
    """Each event once, those of the time between too; Ctrl-C ends it without a word."""
    running = named()
    before = mail(running)
    tail = Following(tmp_path, "--json")
    tail.until("zonemta.finished")
    assert before in tail.found[0]
    running.close()
    running = named()
    after = mail(running)
    running.close()
    tail.until('"type":"zonemta.bounced"')
    tail.until(after)
    last = named().do(lambda queue: one(queue, "eve@y.test"))
    tail.until(f'"message":"{last}","recipient":"eve@y.test"')
    assert tail.interrupt() == (Exit.INTERRUPTED, "")
    ids = [json.loads(line)["id"] for line in tail.found]
    assert len(ids) == len(set(ids))
    places = [tuple(map(int, id.split("-")[1:])) for id in ids]
    assert places == sorted(places)
    about = [json.loads(line)["type"] for line in tail.found if after in line]
    assert about == [f"zonemta.{name}" for name in ("accepted", "queued", "attempted", "bounced", "finished")]


def test_at_a_terminal_of_80_columns(running: Any, tmp_path: Path) -> None:
    mail(running)
    ours, theirs = pty.openpty()
    os.set_inheritable(theirs, True)
    tail = Following(tmp_path, "--no-follow", "--type", "bounced", stdout=theirs)
    assert tail.process.wait(PATIENCE_S) == Exit.OK
    os.close(theirs)
    text = os.read(ours, 10_000).decode()
    os.close(ours)
    lines = text.splitlines()
    assert len(lines) > 1
    assert max(map(len, lines)) <= 80
    assert "there has never been one" in " ".join(map(str.strip, lines))
    assert [line[:9].strip() for line in lines[1:]] == [""] * (len(lines) - 1)
