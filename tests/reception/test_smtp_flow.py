"""Clients and queues that are slow, leave, refuse or flood: nothing is left over, and memory stays bounded."""

from __future__ import annotations

import socket
import threading
import time
import tracemalloc
from typing import Any

import pytest

from tests.reception.letter import MESSAGE
from zonemta_py.mail.reply import Reply
from zonemta_py.queue.api import QueueRefusal


def eventually(condition: Any) -> None:
    """Waits until something that happens in the listener's thread has happened."""
    for _ in range(12_000):
        if condition():
            return
        time.sleep(0.005)
    raise AssertionError("it never happened")


@pytest.mark.parametrize("refuse_at", ["accept", "write", "commit"])
def test_what_the_queue_refuses_is_refused(door: Any, refuse_at: str) -> None:
    """The queue's own reply is the client's, after the whole message; the connection goes on, nothing is left over."""
    door.submission.refusal = QueueRefusal(Reply(452, "4.3.1", "No space"))
    door.submission.refuse_at = refuse_at
    body = MESSAGE if refuse_at == "accept" else MESSAGE + b"x" * 70 + b"\r\n"
    body += b"" if refuse_at == "accept" else (b"y" * 98 + b"\r\n") * 5000
    with door.greeted() as wire:
        assert wire.mail(body) == "452 4.3.1 No space"
        door.submission.refusal = None
        assert wire.mail(MESSAGE)[:3] == "250"
    assert len(door.submission.kept) == 1
    assert door.submission.aborted == door.submission.begun


def test_a_commit_outlives_its_client(door: Any) -> None:
    """A client that hangs up behind the dot does not cancel the commit; the queue decides what becomes of it."""
    door.submission.gate.clear()
    wire = door.greeted()
    for command in ("MAIL FROM:<a@b.test>", "RCPT TO:<c@d.test>", "DATA"):
        wire.ask(command)
    wire.send(MESSAGE + b".\r\n")
    assert door.submission.waiting.wait(60)
    wire.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
    wire.close()
    door.submission.gate.set()
    eventually(lambda: door.submission.kept)


def test_a_client_that_leaves_in_the_middle_leaves_nothing(door: Any) -> None:
    """Half a message is forgotten."""
    wire = door.greeted()
    for command in ("MAIL FROM:<a@b.test>", "RCPT TO:<c@d.test>", "DATA"):
        wire.ask(command)
    wire.send(MESSAGE + (b"y" * 98 + b"\r\n") * 5000)
    eventually(lambda: door.submission.writes > 3)
    wire.close()
    eventually(lambda: door.submission.aborted == 1)
    assert door.submission.kept == []


def test_a_client_that_stops_sending_hears_its_replies(door: Any) -> None:
    """Half-closing after the dot (as `nc -N` does) still gives the reply."""
    door.submission.gate.clear()
    with door.wire() as wire:
        wire.send(b"EHLO x\r\nMAIL FROM:<a@b.test>\r\nRCPT TO:<c@d.test>\r\nDATA\r\n" + MESSAGE + b".\r\nQUIT\r\n")
        assert door.submission.waiting.wait(60)
        wire.socket.shutdown(socket.SHUT_WR)
        time.sleep(0.05)
        door.submission.gate.set()
        assert [wire.reply()[:3] for _ in range(7)] == ["250", "250", "250", "354", "250", "221", ""]


def pour(wire: Any, size: int) -> None:
    """In many pieces, each with a timeout of its own: it comes to that only where nobody reads any more."""
    for _ in range(size // 100_000):
        wire.send(b"y" * 100_000)


def test_a_slow_queue_slows_the_client_down(door: Any) -> None:
    """While the queue does not take chunks, no more is read than a little ahead: the client's writes stop."""
    door.submission.gate.clear()
    with door.greeted() as wire:
        for command in ("MAIL FROM:<a@b.test>", "RCPT TO:<c@d.test>", "DATA"):
            wire.ask(command)
        wire.send(MESSAGE)
        wire.socket.settimeout(0.3)
        with pytest.raises(TimeoutError):
            pour(wire, 30_000_000)
        wire.socket.settimeout(60)
        door.submission.gate.set()
        wire.send(b"\r\n.\r\n")
        assert wire.reply()[:3] == "554"  # one line of several MB
        assert wire.ask("NOOP")[:3] == "250"


def test_a_browser_is_cut_off(door: Any) -> None:
    """Who is tricked into posting HTTP to us gets no chance to have its body read as commands."""
    with door.wire() as wire:
        wire.send(b"POST / HTTP/1.1\r\nHost: x\r\n\r\nEHLO x\r\n")
        assert wire.reply()[:9] == "421 4.7.0"
        assert wire.reply() == ""


def test_long_command_lines_are_refused_once(door: Any) -> None:
    """However long, in however many packets, and the dialogue goes on behind it."""
    with door.greeted() as wire:
        for length in (4097, 60_000):
            wire.send(b"NOOP " + b"x" * length)
            time.sleep(0.02)
            wire.send(b"\r\nNOOP\r\n")
            assert wire.reply()[:9] == "500 5.5.2"
            assert wire.reply()[:9] == "250 2.0.0"


def test_a_large_message_costs_little_memory(door: Any) -> None:
    """Chunks are handed on as they come: 60 MB pass through, a few MB are held at any moment."""
    door.submission.keep_nothing = True
    block = b"0123456789 a line as lines go, more or less\r\n" * 20_000
    with door.greeted() as wire:
        for command in ("MAIL FROM:<a@b.test>", "RCPT TO:<c@d.test>", "DATA"):
            wire.ask(command)
        tracemalloc.start()
        wire.send(MESSAGE)
        for _ in range(60_000_000 // len(block)):
            wire.send(block)
        wire.send(b".\r\n")
        assert wire.reply()[:3] == "250"
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
    assert door.submission.writes > 900
    assert peak < 8_000_000


def test_a_client_that_does_not_read_is_not_read_either(open_door: Any) -> None:
    """Replies do not pile up in memory; once the client reads, all of them come, in order."""
    door = open_door(limits={"commands_per_connection": 1_000_000})
    with door.greeted() as wire:
        commands = b"NOOP\r\nVRFY x\r\n" * 150_000
        sending = threading.Thread(target=wire.send, args=(commands,))
        sending.start()
        time.sleep(0.2)
        answers = [wire.file.readline()[:3] for _ in range(300_000)]
        sending.join(60)
    assert answers == [b"250", b"252"] * 150_000
